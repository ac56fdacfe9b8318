"""The layout of tasks' cgroups on hosts with cgroups v1, v2 or both, and their counters.

A run has one parent folder in each hierarchy that is used (`yurt.slice` or the configured one; a dev run has
`yurt-dev-<pid>.slice`, below the configured one if there is any); each
task has one folder below it, and the shims share one, so that a stop of the agent's own cgroup does not stop them.
On v2 one hierarchy does everything. On hybrid hosts the v2 hierarchy without controllers groups the processes, and v1
controllers count and limit. A normal user without delegation has no cgroups; everything but the limits works.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from yurt.executor.spec import CgroupPlan, CgroupSpec, file_name
from yurt.sdk.errors import DriverError
from yurt.sdk.value import Value, no_entries

MOUNTS_FILE = "/proc/self/mountinfo"
V1_CONTROLLERS = ("memory", "cpu", "cpuacct")
V2_CONTROLLERS = ("cpu", "memory", "pids", "cpuset")
SHIMS = "shims"
READ_BYTES = 16384
DEV_PREFIX = "yurt-dev-"
FULL_STALL = re.compile(r"^full .*\btotal=(\d+)", re.MULTILINE)
CPU_SHARES_MIN, CPU_SHARES_MAX = 2, 262_144


class Hierarchies(Value):
    """Mount points of the v2 hierarchy and the v1 controllers; empty without any.

    `others` are the v1 hierarchies that we do not use, but container runtimes do.
    """

    unified: str = ""
    controllers: tuple[str, ...] = ()
    v1: Mapping[str, str] = no_entries()
    others: tuple[str, ...] = ()

    @property
    def mode(self) -> str:
        """The cgroup mode: v2, v1, hybrid or none."""
        if self.unified:
            return "hybrid" if self.v1 else "v2"
        return "v1" if self.v1 else "none"


class CgroupUse(Value):
    """Counters of a task's cgroups; None where no controller counts them."""

    rss_bytes: int | None = None
    swap_bytes: int | None = None
    cpu_user_ns: int | None = None
    cpu_system_ns: int | None = None
    pids: int | None = None
    memory_stall_ns: int = 0
    memory_charged_bytes: int = 0


def parse_mounts(text: str) -> Hierarchies:
    """The hierarchies that /proc/self/mountinfo lists."""
    unified = ""
    v1: dict[str, str] = {}
    others: list[str] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 5 or len(rest) < 3:
            continue
        if rest[0] == "cgroup2" and not unified:
            unified = fields[4]
        if rest[0] == "cgroup":
            others.append(fields[4])
            v1 |= dict.fromkeys(rest[2].split(","), fields[4])
    used = {name: v1[name] for name in (*V1_CONTROLLERS, "cpuset") if name in v1}
    return Hierarchies(unified=unified, v1=used, others=tuple(each for each in others if each not in used.values()))


def prepare(parent: str, mounts_file: str = MOUNTS_FILE) -> tuple[Hierarchies, tuple[str, ...]]:
    """Create the parent folder in every permitted hierarchy; returns these hierarchies and the folders."""
    try:
        found = parse_mounts(Path(mounts_file).read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return Hierarchies(), ()
    v1 = {name: mount for name, mount in found.v1.items() if make_parent(mount, parent)}
    unified = found.unified if found.unified and make_parent(found.unified, parent) else ""
    controllers = enable_controllers(unified, parent) if unified else ()
    if "cpuset" in v1:
        copy_cpuset(v1["cpuset"], parent)
    others = found.others if v1 or unified else ()
    usable = Hierarchies(unified=unified, controllers=controllers, v1=v1, others=others)
    mounts = sorted({mount for mount in (unified, *v1.values()) if mount})
    return usable, tuple(f"{mount}/{parent}" for mount in mounts)


def missing_controllers(parent: str, mounts_file: str = MOUNTS_FILE) -> tuple[str, ...]:
    """The controllers that this host has, but tasks below the parent would not; creates the parent."""
    usable, _ = prepare(parent, mounts_file)
    try:
        found = parse_mounts(Path(mounts_file).read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return ()
    offered = read_text(f"{found.unified}/cgroup.controllers").split() if found.unified else []
    v2 = [name for name in V2_CONTROLLERS if name in offered and name not in usable.controllers]
    return (*(name for name in found.v1 if name not in usable.v1), *v2)


def restore(parent: str, parents: tuple[str, ...]) -> None:
    """Create the folders of a run again, because a closing executor removes empty ones."""
    if not all(os.path.isdir(f"{folder}/{SHIMS}") for folder in parents):
        prepare(parent)


def make_parent(mount: str, parent: str) -> bool:
    """Create the run's folder and that of its shims."""
    try:
        os.makedirs(f"{mount}/{parent}/{SHIMS}", exist_ok=True)
    except OSError:
        return False
    return os.access(f"{mount}/{parent}/cgroup.procs", os.W_OK)


def enable_controllers(mount: str, parent: str) -> tuple[str, ...]:
    """Enable the controllers for tasks, from the root down to the run's folder; returns those that work."""
    enabled = []
    folders = (mount, *levels(mount, parent))
    for controller in V2_CONTROLLERS:
        if all(passes_on(folder, controller) for folder in folders):
            enabled.append(controller)
    return tuple(enabled)


def passes_on(folder: str, controller: str) -> bool:
    """Whether the groups below a folder have the controller; enables it where they have not.

    Where they have, nothing is written: in a delegated subtree the levels above are not this agent's.
    """
    file = f"{folder}/cgroup.subtree_control"
    return controller in read_text(file).split() or write_setting(file, f"+{controller}")


def levels(mount: str, parent: str) -> tuple[str, ...]:
    """The folders from below the mount point down to the parent."""
    parts = parent.split("/")
    return tuple("/".join((mount, *parts[:end])) for end in range(1, len(parts) + 1))


def copy_cpuset(mount: str, parent: str) -> None:
    """Copy cores and memory nodes from the level above where there are none: without both a v1 cpuset takes nothing.

    What is there is the operator's.
    """
    for name in ("cpuset.cpus", "cpuset.mems"):
        above = mount
        for folder in (*levels(mount, parent), f"{mount}/{parent}/{SHIMS}"):
            if not read_text(f"{folder}/{name}").strip():
                write_setting(f"{folder}/{name}", read_text(f"{above}/{name}").strip())
            above = folder


def parse_cores(text: str) -> frozenset[int]:
    """The cores of a list such as `0,2-3`."""
    ranges = [each.partition("-") for each in text.strip().split(",") if each]
    return frozenset(core for low, _, high in ranges for core in range(int(low), int(high or low) + 1))


def write_setting(path: str, value: str) -> bool:
    """Write into a cgroup file, if permitted."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, value.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def read_text(path: str) -> str:
    """The content of a cgroup file; empty when it cannot be read."""
    try:
        # Few system calls: the usage of each task is read from several files every few seconds.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return b"".join(iter(lambda: os.read(descriptor, READ_BYTES), b"")).decode()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def plan(found: Hierarchies, parent: str, *, task_id: str, spec: CgroupSpec) -> CgroupPlan:
    """The folders and limits of a task's cgroups, and how the task and its shim enter them."""
    if spec.is_overridden:
        return override(found, parent, spec)
    name = task_folder(task_id)
    folders: list[tuple[str, tuple[tuple[str, str], ...]]] = []
    if found.unified:
        folders.append((f"{found.unified}/{parent}/{name}", v2_settings(spec, found.controllers)))
    by_mount: dict[str, list[tuple[str, str]]] = {}
    for controller, mount in found.v1.items():
        if controller != "cpuset" or spec.cores or spec.memory_nodes:
            by_mount.setdefault(mount, []).extend(v1_settings(controller, f"{mount}/{parent}", spec))
    folders += [(f"{mount}/{parent}/{name}", tuple(settings)) for mount, settings in by_mount.items()]
    oom_file = f"{found.unified}/{parent}/{name}/memory.events" if "memory" in found.controllers else ""
    if "memory" in found.v1:
        oom_file = f"{found.v1['memory']}/{parent}/{name}/memory.oom_control"
    return CgroupPlan(
        folders=tuple(folders),
        join=tuple(f"{folder}/cgroup.procs" for folder, _ in folders),
        shim_join=shim_join(found, parent),
        oom_file=oom_file,
    )


def task_folder(task_id: str) -> str:
    """The name of a task's folder in every hierarchy."""
    return f"{file_name(task_id)}.scope"


def shim_join(found: Hierarchies, parent: str) -> tuple[str, ...]:
    """The file by which a shim leaves the agent's cgroup, in the hierarchy that a service manager uses for stops."""
    return (f"{found.unified}/{parent}/{SHIMS}/cgroup.procs",) if found.unified else ()


def override(found: Hierarchies, parent: str, spec: CgroupSpec) -> CgroupPlan:
    """The plan for the operator's own cgroups: tasks join them, but Yurt never creates, limits or removes them."""
    if spec.override_v2 and not found.unified:
        raise DriverError("cgroup_v2_override is set, but this host has no cgroup v2; use cgroup_v1_override")
    unknown = [name for name in spec.override_v1 if name not in found.v1 and not controller_mount(name)]
    if unknown:
        raise DriverError(
            f"cgroup_v1_override names {', '.join(unknown)}, which this host does not have as a v1 controller"
        )
    must = [f"{found.unified}/{spec.override_v2.strip('/')}/cgroup.procs"] if spec.override_v2 else []
    for name, path in spec.override_v1.items():
        must.append(f"{found.v1.get(name) or controller_mount(name)}/{path.strip('/')}/cgroup.procs")
    return CgroupPlan(must_join=tuple(must), shim_join=shim_join(found, parent))


def controller_mount(name: str) -> str:
    """The mount point of a v1 controller that tasks do not use by default."""
    path = f"/sys/fs/cgroup/{name}"
    return path if os.path.exists(f"{path}/cgroup.procs") else ""


def v2_settings(spec: CgroupSpec, controllers: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Limits in the format of cgroup v2."""
    settings = []
    if "memory" in controllers and spec.memory_bytes:
        settings.append(("memory.max", str(spec.memory_bytes)))
    if "memory" in controllers and spec.memory_reserved_bytes:
        settings.append(("memory.low", str(spec.memory_reserved_bytes)))
    if "cpu" in controllers and spec.cpu_shares:
        settings.append(("cpu.weight", str(cpu_weight(spec.cpu_shares))))
    if "cpuset" in controllers and spec.cores:
        settings.append(("cpuset.cpus", ",".join(map(str, spec.cores))))
    if "cpuset" in controllers and spec.memory_nodes:
        settings.append(("cpuset.mems", ",".join(map(str, spec.memory_nodes))))
    return tuple(settings)


def v1_settings(controller: str, above: str, spec: CgroupSpec) -> list[tuple[str, str]]:
    """Limits in the format of a cgroup v1 controller; `above` is the folder of the parent."""
    match controller:
        case "memory" if spec.memory_bytes:
            return [("memory.limit_in_bytes", str(spec.memory_bytes))]
        case "cpu" if spec.cpu_shares:
            return [("cpu.shares", str(max(CPU_SHARES_MIN, spec.cpu_shares)))]
        case "cpuset" if spec.cores or spec.memory_nodes:
            lists = (("cpuset.cpus", spec.cores), ("cpuset.mems", spec.memory_nodes))
            return [(name, ",".join(map(str, some)) or read_text(f"{above}/{name}").strip()) for name, some in lists]
        case _:
            return []


def cpu_weight(shares: int) -> int:
    """v1 shares (2..262144) as a v2 weight (1..10000), with the mapping of container runtimes."""
    bounded = min(max(shares, CPU_SHARES_MIN), CPU_SHARES_MAX)
    return 1 + ((bounded - CPU_SHARES_MIN) * 9999) // (CPU_SHARES_MAX - CPU_SHARES_MIN)


def usage(folders: tuple[str, ...]) -> CgroupUse:
    """Present counters of a task's cgroups."""
    cpu = numbers(first_text(folders, "cpu.stat"), ("user_usec", "system_usec"))
    memory = numbers(first_text(folders, "memory.stat"), ("anon", "rss", "swap"))
    swap, pids = first_text(folders, "memory.swap.current").strip(), first_text(folders, "cgroup.procs").split()
    user, system = cpu.get("user_usec"), cpu.get("system_usec")
    stall_ns = full_stall_ns(first_text(folders, "memory.pressure"))
    return CgroupUse(
        rss_bytes=memory.get("anon", memory.get("rss")),
        swap_bytes=int(swap) if swap.isdigit() else memory.get("swap"),
        cpu_user_ns=None if user is None else user * 1000,
        cpu_system_ns=None if system is None else system * 1000,
        pids=len(pids) or None,
        memory_stall_ns=stall_ns,
        memory_charged_bytes=charged_bytes(folders) if stall_ns else 0,
    )


def charged_bytes(folders: tuple[str, ...]) -> int:
    """The memory that counts against the limit; 0 where no controller counts it."""
    text = first_text(folders, "memory.current") or first_text(folders, "memory.usage_in_bytes")
    return int(text) if text.strip().isdigit() else 0


def full_stall_ns(text: str) -> int:
    """The time in which all threads waited, of a `memory.pressure` file; 0 without one."""
    found = FULL_STALL.search(text)
    return int(found[1]) * 1000 if found else 0


def first_text(folders: tuple[str, ...], name: str) -> str:
    """The content of a file in the first folder that has any: on hybrid hosts that hierarchy counts."""
    return next(filter(None, (read_text(f"{folder}/{name}") for folder in folders)), "")


def numbers(text: str, names: tuple[str, ...]) -> dict[str, int]:
    """Parse the rows of `name number` with these names, of some dozens."""
    rows = (line.split() for line in text.splitlines() if line.startswith(names))
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[0] in names and row[1].isdigit()}


def processes(folders: tuple[str, ...]) -> list[int]:
    """The processes in the cgroups of a task."""
    pids = {int(word) for folder in folders for word in read_text(f"{folder}/cgroup.procs").split()}
    return sorted(pids)


def remove(folders: tuple[str, ...]) -> None:
    """Remove the cgroups of a task, except those in use."""
    for folder in reversed(folders):
        try:
            os.rmdir(folder)
        except OSError:
            continue


def remove_left_behind(hierarchies: Hierarchies, below: str = "") -> None:
    """Remove empty cgroups of dead dev agents; the kernel refuses to remove those with a process."""
    for mount in {hierarchies.unified, *hierarchies.v1.values(), *hierarchies.others} - {""}:
        for root in Path(mount, below).glob(f"{DEV_PREFIX}*.slice"):
            pid = root.name.removeprefix(DEV_PREFIX).removesuffix(".slice")
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                remove((str(root), *(entry.path for entry in _folders_in(root))))


def _folders_in(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
