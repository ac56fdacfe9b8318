"""Finds the cgroup of a container on this machine, by its first process, and reads what engines do not report.

The path of a container's cgroup has its id in one component; runtimes may put its processes further down. Nothing is
found for a container without a cgroup of its own, or of an engine on another machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from yurt.sdk.driver import TaskStats
from yurt.sdk.value import Value, replace

MOUNTS_FILE = "/proc/self/mountinfo"
ONLINE_CORES = "/sys/devices/system/cpu/online"
CORES_MAX, RANGES_MAX = 8_191, 256
FULL_STALL = re.compile(r"^full .*\btotal=(\d+)", re.MULTILINE)


class ContainerCgroup(Value):
    """The folders of a container's cgroup: of the controller `cpuset`, and those that count its usage."""

    cpuset: str = ""
    memory: tuple[str, ...] = ()
    cpu: tuple[str, ...] = ()
    pids: tuple[str, ...] = ()

    @property
    def is_found(self) -> bool:
        """Whether there is one, so that the container runs under this kernel and with its clocks."""
        return self != ContainerCgroup()

    def allowed_cores(self) -> frozenset[int]:
        """The cores that the level above allows, or those of the machine."""
        above = self.cpuset.rpartition("/")[0]
        return cores_in(above) or parse_cores(read_text(ONLINE_CORES))

    def listed_cores(self) -> tuple[int, ...] | None:
        """The cores on which the container runs; None when that is unknown."""
        return tuple(sorted(cores_in(self.cpuset))) or None

    def memory_stall_ns(self) -> int:
        """The total time in which all threads waited for memory; 0 where nothing counts it."""
        found = FULL_STALL.search(self.first_text(self.memory, "memory.pressure"))
        return int(found[1]) * 1000 if found else 0

    def memory_charged_bytes(self) -> int:
        """The memory that counts against the limit, pages of files included; 0 where nothing counts it."""
        texts = (self.first_text(self.memory, name) for name in ("memory.current", "memory.usage_in_bytes"))
        text = next(filter(None, texts), "").strip()
        return int(text) if text.isdigit() else 0

    def with_memory_stall(self, stats: TaskStats) -> TaskStats:
        """A sample with the time in which the container waited for memory, and with what counted then."""
        stall_ns = self.memory_stall_ns()
        charged = self.memory_charged_bytes() if stall_ns else 0
        return replace(stats, memory_stall_ns=stall_ns, memory_charged_bytes=charged)

    @staticmethod
    def first_text(folders: tuple[str, ...], name: str) -> str:
        """The content of a file in the first folder that has it; empty where none has."""
        return next(filter(None, (read_text(f"{folder}/{name}") for folder in folders)), "")


def cgroup_of(pid: int, container_id: str) -> ContainerCgroup:
    """The cgroup of a container by its first process; without folders when there is none."""
    mounts = mount_points()
    found = {
        name: mounts[name] + path
        for name, path in paths_of(read_text(f"/proc/{pid}/cgroup"), container_id)
        if name in mounts
    }

    def counting(controller: str) -> tuple[str, ...]:
        return tuple(found[name] for name in ("", controller) if name in found)

    return ContainerCgroup(
        cpuset=found.get("cpuset") or found.get("", ""),
        memory=counting("memory"),
        cpu=counting("cpuacct"),
        pids=counting("pids"),
    )


def paths_of(text: str, container_id: str) -> Iterator[tuple[str, str]]:
    """Each controller of a /proc/PID/cgroup file, "" for version 2, with the path down to the container's component."""
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        before, own, after = path.partition(container_id)
        if own:
            yield from ((each, before + own + after.partition("/")[0]) for each in controllers.split(","))


def mount_points() -> dict[str, str]:
    """The mount point of each v1 controller, and of version 2 as ""."""
    mounts: dict[str, str] = {}
    for line in read_text(MOUNTS_FILE).splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) >= 5 and len(rest) >= 3 and rest[0] in ("cgroup", "cgroup2"):
            names = [""] if rest[0] == "cgroup2" else rest[2].split(",")
            mounts = {**dict.fromkeys(names, fields[4]), **mounts}
    return mounts


def cores_in(folder: str) -> frozenset[int]:
    """The cores that a folder of the controller `cpuset` allows; empty where it is none."""
    names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus") if folder else ()
    return parse_cores(next(filter(str.strip, (read_text(f"{folder}/{name}") for name in names)), ""))


def parse_cores(text: str) -> frozenset[int]:
    """The cores of a list such as `0,2-3`, up to `CORES_MAX`; empty for text that is none.

    A job may write any list, and only its engine knows which cores there are.
    """
    try:
        ranges = [each.partition("-") for each in text.strip().split(",") if each]
        bounds = [(int(low), min(int(high or low), CORES_MAX)) for low, _, high in ranges[:RANGES_MAX]]
    except ValueError:
        return frozenset()
    return frozenset(core for low, high in bounds for core in range(low, high + 1))


def read_text(path: str) -> str:
    """The content of a file; empty when it cannot be read. A mount point may have any bytes in its name."""
    with suppress(OSError), open(path, "rb", buffering=0) as file:
        return file.readall().decode(errors="surrogateescape")
    return ""
