"""The few facts of the machine that a container's limits depend on."""

from __future__ import annotations

import functools
from pathlib import Path

MAX_FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
CPU_FACTS = Path("/proc/cpuinfo")
UNKNOWN_MHZ = 1000.0
PROFILE_BYTES_MAX = 1024 * 1024


@functools.cache
def core_mhz() -> float:
    """MHz of one core; a task's MHz divided by it are the cores that it may use under a hard limit."""
    try:
        return max(1.0, float(MAX_FREQUENCY.read_text()) / 1000)
    except (OSError, ValueError):
        pass
    try:
        lines = [line for line in CPU_FACTS.read_text().splitlines() if line.startswith("cpu MHz")]
        return max(1.0, *(float(line.partition(":")[2]) for line in lines))
    except (OSError, ValueError):
        return UNKNOWN_MHZ


def read_text(path: str) -> str:
    """A small file, for a seccomp profile."""
    with open(path, encoding="utf-8") as file:
        return file.read(PROFILE_BYTES_MAX)
