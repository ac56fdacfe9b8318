"""Facts and checks common to all container engines. Pure, except for the reading of two small files."""

from __future__ import annotations

import calendar
import functools
import hashlib
import os
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from yurt.sdk.errors import DriverError
from yurt.sdk.value import UnixNano

MIB = 1 << 20
NOMAD_LABEL = "com.hashicorp.nomad."
TASK_LABEL = "yurt.task_id"
OWNER_LABEL = "yurt.owner"
ROLE_LABEL = "yurt.role"
LOGS_LABEL = "yurt.logs"
"""The label with the location and settings of the task's output, for an agent that has only the task's id."""
DEFAULT_CAPS = (
    "audit_write", "chown", "dac_override", "fowner", "fsetid", "kill", "mknod", "net_bind_service", "setfcap",
    "setgid", "setpcap", "setuid", "sys_chroot",
)  # fmt: skip
STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$")
SIGNALS = {each.name: int(each) for each in signal.Signals}
SIGNAL_BASE = 128
SIGNAL_MAX = 64
MAX_FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
CPU_FACTS = Path("/proc/cpuinfo")
UNKNOWN_MHZ = 1000.0


def wall_clock() -> UnixNano:
    """The system's clock; used where the agent provides none."""
    return UnixNano(time.time_ns())  # noqa: TID251 - a driver that is used without an agent


def owner_of(state_dir: str) -> str:
    """The label value that marks this client's containers on a shared engine."""
    return hashlib.blake2b(os.path.abspath(state_dir).encode(), digest_size=8).hexdigest()


def merged(entries: Iterable[dict[str, str]]) -> dict[str, str]:
    """Repeated blocks as one map."""
    return {name: value for each in entries for name, value in each.items()}


def parse_stamp(text: bytes) -> int:
    """An RFC 3339 time in nanoseconds since 1970; 0 for an invalid one."""
    found = STAMP.match(text)
    if not found:
        return 0
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    whole = calendar.timegm((year, month, day, hour, minute, second)) - zone_seconds(found[8])
    return max(0, whole * 1_000_000_000 + int((found[7] or b"0").ljust(9, b"0")))


def zone_seconds(zone: bytes) -> int:
    """The offset of a time zone from UTC."""
    if zone == b"Z":
        return 0
    sign = -1 if zone.startswith(b"-") else 1
    return sign * (int(zone[1:3]) * 3600 + int(zone[4:6]) * 60)


def signal_name(text: str) -> str:
    """The canonical name of a signal that engines accept; raises DriverError for others."""
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    if name not in SIGNALS:
        raise DriverError(f'"{text}" is not a valid signal; write for example SIGHUP or SIGTERM')
    return name


def signal_in(exit_code: int) -> int:
    """The signal encoded in an exit code, as shells do: 137 is 128 + 9."""
    return exit_code - SIGNAL_BASE if SIGNAL_BASE < exit_code <= SIGNAL_BASE + SIGNAL_MAX else 0


def cap_name(text: str) -> str:
    """The canonical capability name, the same for `CAP_NET_RAW` and `net_raw`."""
    return text.strip().lower().removeprefix("cap_")


def capabilities(
    cap_add: Iterable[str], cap_drop: Iterable[str], *, allow_caps: Iterable[str], plugin: str
) -> tuple[str, ...]:
    """The capabilities of a container: the allowed defaults, less `cap_drop`, plus `cap_add`."""
    allowed = {cap_name(each) for each in allow_caps}
    added, dropped = {cap_name(each) for each in cap_add}, {cap_name(each) for each in cap_drop}
    refused = [] if "all" in allowed else sorted(added - allowed)
    if refused:
        raise DriverError(
            f"cap_add: this client does not allow {', '.join(refused)};"
            f' add them to allow_caps in plugin "{plugin}" of its configuration'
        )
    if "all" in added:
        return ("ALL",)
    usual = set(DEFAULT_CAPS) if "all" in allowed else set(DEFAULT_CAPS) & allowed
    retained = set() if "all" in dropped else usual - dropped
    return tuple(sorted(f"CAP_{each.upper()}" for each in retained | added))


@functools.cache
def core_mhz() -> float:
    """MHz of one core; a task's MHz divided by it give its cores under a hard limit."""
    try:
        return max(1.0, float(MAX_FREQUENCY.read_text()) / 1000)
    except (OSError, ValueError):
        pass
    try:
        lines = [line for line in CPU_FACTS.read_text().splitlines() if line.startswith("cpu MHz")]
        return max(1.0, *(float(line.partition(":")[2]) for line in lines))
    except (OSError, ValueError):
        return UNKNOWN_MHZ


def pids_limit(limit: int, most: int) -> int:
    """The process limit of a task, capped by the agent's."""
    if most > 0 and limit > most:
        raise DriverError(f"pids_limit = {limit} exceeds the {most} that this client allows (pids_limit of its plugin)")
    return limit or most


def soft_and_hard(name: str, text: str) -> tuple[int, int]:
    """A ulimit: `"1024:2048"` (soft, hard) or one number for both."""
    soft, _, hard = text.partition(":")
    try:
        return int(soft), int(hard or soft)
    except ValueError:
        raise DriverError(f'ulimit {name} = "{text}" is not a valid limit; write it as "1024" or "1024:2048"') from None


def check_rights(*, privileged: bool, oom_score_adj: int, allow_privileged: bool, plugin: str) -> None:
    """Refuse privileged mode unless the agent allows it, and a negative OOM score adjustment."""
    if privileged and not allow_privileged:
        raise DriverError(
            "privileged containers are off on this client;"
            f' set plugin "{plugin}" {{ config {{ allow_privileged = true }} }} in its configuration'
        )
    if oom_score_adj < 0:
        raise DriverError("oom_score_adj must not be negative: a task may not be safer from the OOM killer than others")
