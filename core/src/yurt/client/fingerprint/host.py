"""Facts about the host: processor, memory, system, signals. Blocking; call in a thread."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import msgspec
import psutil

from yurt import NOMAD_VERSION, __version__

DEFAULT_MHZ = 1000
OS_RELEASE = Path("/etc/os-release")
CPUINFO = Path("/proc/cpuinfo")
PRODUCT_UUID, MACHINE_ID = Path("/sys/class/dmi/id/product_uuid"), Path("/etc/machine-id")
NO_UUIDS = frozenset(
    {"03000200-0400-0500-0006-000700080009", "not settable", "not specified", "not present", "uninitialized"}
)
"""Placeholders that many machines have in place of a UUID; besides them, one digit repeated."""
CGROUP_ROOT = Path("/sys/fs/cgroup")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}


class CpuFacts(msgspec.Struct, frozen=True):
    """Cores that this agent may use, MHz of one core, and total MHz; tasks can reserve the `reservable` cores."""

    cores: tuple[int, ...]
    mhz: int
    total_mhz: int
    model: str
    reservable: tuple[int, ...] = ()


def cpu_facts(total_override: int) -> CpuFacts:
    """The processor; `total_override` (MHz) replaces the detected total."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = tuple(sorted(affinity(0))) if affinity else tuple(range(os.cpu_count() or 1))
    mhz = _core_mhz()
    return CpuFacts(cores, mhz, total_override or mhz * len(cores), _cpu_model(), cores)


def _core_mhz() -> int:
    try:
        frequency = psutil.cpu_freq()
    except (OSError, RuntimeError, NotImplementedError):
        return DEFAULT_MHZ
    return round(frequency.max or frequency.current or DEFAULT_MHZ) if frequency else DEFAULT_MHZ


def _cpu_model() -> str:
    try:
        for line in CPUINFO.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor()


def memory_bytes() -> int:
    """The memory of the host in bytes."""
    return int(psutil.virtual_memory().total)


def host_name() -> str:
    """The host's name."""
    return socket.gethostname()


def _os_release() -> dict[str, str]:
    try:
        text = OS_RELEASE.read_text(errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def signal_names() -> tuple[str, ...]:
    """The signals that this system can send to tasks."""
    return tuple(sorted(each.name for each in signal.Signals if not each.name.startswith("SIGRT")))


def cgroup_version() -> str:
    """The version of control groups: "v2", "v1", or "" without any."""
    if (CGROUP_ROOT / "cgroup.controllers").exists():
        return "v2"
    return "v1" if CGROUP_ROOT.is_dir() and any(CGROUP_ROOT.iterdir()) else ""


def host_uuid(files: Sequence[Path] = (PRODUCT_UUID, MACHINE_ID)) -> str:
    """A UUID made of the machine's own, the firmware's or else the system's, which it does not reveal; "" without.

    A file that is empty or holds a placeholder does not count.
    """
    for file in files:
        with contextlib.suppress(OSError):
            text = file.read_text(encoding="ascii", errors="replace").strip().lower()
            if text not in NO_UUIDS and len(set(text.replace("-", ""))) > 1:
                return str(UUID(bytes=hashlib.sha512(text.encode()).digest()[:16]))
    return ""


def host_attributes(cpu: CpuFacts) -> dict[str, str]:
    """Attributes of processor, memory and system, by Nomad's names."""
    release = _os_release()
    machine = platform.machine()
    attributes = {
        "cpu.arch": ARCHITECTURES.get(machine, machine),
        "cpu.modelname": cpu.model,
        "cpu.numcores": str(len(cpu.cores)),
        "cpu.reservablecores": str(len(cpu.reservable)),
        "cpu.frequency": str(cpu.mhz),
        "cpu.totalcompute": str(cpu.total_mhz),
        "memory.totalbytes": str(memory_bytes()),
        "os.name": release.get("ID", platform.system().lower()),
        "os.version": release.get("VERSION_ID", platform.release()),
        "os.signals": ",".join(signal_names()),
        "kernel.name": platform.system().lower(),
        "kernel.version": platform.release(),
        "kernel.arch": machine,
        "unique.hostname": host_name(),
        "nomad.version": NOMAD_VERSION,
        "yurt.version": __version__,
    }
    version = cgroup_version()
    if version:
        attributes["unique.cgroup.version"] = version
        attributes["unique.cgroup.mountpoint"] = str(CGROUP_ROOT)
    return {name: value for name, value in attributes.items() if value}
