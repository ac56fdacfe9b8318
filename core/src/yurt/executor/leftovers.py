"""Finds and ends tasks of a previous agent, by their shims' records or their cgroups.

When the agent's state exists, its start files name every task. When it was removed, tasks are found in the cgroups of
agents, and distinguished from those of other agents by their environment and folders. Blocking, except for `end`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from yurt.executor import cgroups, process_identity
from yurt.executor.oci import runc
from yurt.executor.process_executor import CGROUP_PARENT
from yurt.executor.spec import ProcessHandle
from yurt.executor.start_files import StartFiles, is_alive
from yurt.sdk import mounting
from yurt.sdk.errors import DriverError
from yurt.sdk.value import Value

EXECUTOR_FOLDER, CONTAINER_FOLDER = "executor", "oci"
"""The folders of executors' files, below a plugin's state."""
KILL_ROUNDS, KILL_PAUSE_S = 50, 0.1
SHIM_LIMIT_S = 10.0
ENVIRONMENT_BYTES_MAX = 1024 * 1024
LINKS = ("cwd", "root", "exe")


class LeftTask(Value):
    """A task without an agent: its processes with their start times, its shim and its cgroups."""

    task_id: str
    members: tuple[tuple[int, int], ...] = ()
    shim: tuple[int, int] = (0, 0)
    cgroups: tuple[str, ...] = ()


def find_leftover_tasks(plugin_states: Iterable[Path], alloc_dir: str, cgroup_parent: str = "") -> tuple[LeftTask, ...]:
    """The tasks of the agent with this plugin state folder, `alloc_dir` and configured parent of cgroups."""
    found: dict[str, LeftTask] = {}
    boot_id, scopes = process_identity.boot_id(), _scopes(cgroup_parent)
    for state in plugin_states:
        for handle in StartFiles(state / EXECUTOR_FOLDER).all():
            if is_alive(handle, boot_id) or (handle.boot_id == boot_id and any(map(os.path.isdir, handle.cgroups))):
                more = scopes.pop(cgroups.task_folder(handle.task_id), ())
                found[handle.task_id] = _of_handle(handle, more)
    recorded = {folder for task in found.values() for folder in task.cgroups}
    for name, folders in scopes.items():
        if recorded.isdisjoint(folders):
            task = _of_cgroups(name, tuple(folders), alloc_dir)
            if task is not None:
                found.setdefault(task.task_id, task)
    return tuple(found[name] for name in sorted(found))


def _of_handle(handle: ProcessHandle, more: Iterable[str]) -> LeftTask:
    """The task of a handle; `more` are its cgroups in hierarchies that only container runtimes use."""
    return LeftTask(
        task_id=handle.task_id,
        members=((handle.pid, handle.start_time),),
        shim=(handle.shim_pid, handle.shim_start_time),
        cgroups=tuple(dict.fromkeys((*handle.cgroups, *more))),
    )


def _scopes(cgroup_parent: str) -> dict[str, list[str]]:
    """The cgroups of all agents' tasks: the folders of each name in all hierarchies."""
    runs = f"{cgroups.DEV_PREFIX}*.slice"
    patterns = [CGROUP_PARENT, runs, *((cgroup_parent, f"{cgroup_parent}/{runs}") if cgroup_parent else ())]
    try:
        mounted = cgroups.parse_mounts(Path(cgroups.MOUNTS_FILE).read_text("utf-8", "surrogateescape"))
    except OSError:
        return {}
    found: dict[str, list[str]] = {}
    for mount in sorted({mounted.unified, *mounted.v1.values(), *mounted.others} - {""}):
        for pattern in dict.fromkeys(patterns):
            for folder in Path(mount).glob(f"{pattern}/*.scope"):
                found.setdefault(folder.name, []).append(str(folder))
    return found


def _of_cgroups(name: str, folders: tuple[str, ...], alloc_dir: str) -> LeftTask | None:
    """The task of a cgroup, if one of its processes belongs to an allocation in the folder."""
    pids = cgroups.processes(folders)
    if not any(belongs(pid, alloc_dir) for pid in pids):
        return None
    members = tuple((pid, process_identity.start_time(pid)) for pid in pids)
    return LeftTask(task_id=unquote(name.removesuffix(".scope")), members=members, cgroups=folders)


def belongs(pid: int, alloc_dir: str) -> bool:
    """Whether a process belongs to an allocation below a folder, by its variables, folders and mounts."""
    beneath = os.fsencode(f"{alloc_dir.rstrip('/')}/")
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        names = (b"NOMAD_ALLOC_DIR=", b"NOMAD_TASK_DIR=", b"NOMAD_SECRETS_DIR=")
        variables = file.read(ENVIRONMENT_BYTES_MAX).split(b"\0")
        if any(each.startswith(tuple(name + beneath for name in names)) for each in variables):
            return True
    for link in LINKS:
        with contextlib.suppress(OSError):
            if os.fsencode(os.readlink(f"/proc/{pid}/{link}")).startswith(beneath):
                return True
    device, path = _on_device(alloc_dir)
    return any(each.device == device and each.root.startswith(f"{path}/") for each in _mounts(str(pid)))


class _Mount(NamedTuple):
    """A line of mountinfo: the device, the mounted folder of it, and the mount point."""

    device: str
    root: str
    point: str


def _mounts(pid: str) -> list[_Mount]:
    """The mounts of a process."""
    try:
        lines = Path(f"/proc/{pid}/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    words = (line.split(" ") for line in lines)
    return [_Mount(each[2], mounting.plain(each[3]), mounting.plain(each[4])) for each in words if len(each) > 4]


def _on_device(folder: str) -> tuple[str, str]:
    """The device of a folder, which may be removed already, and the folder's path on that device."""
    real = os.path.realpath(folder)
    holding = [each for each in _mounts("self") if f"{real}/".startswith(f"{each.point.rstrip('/')}/")]
    if not holding:
        return "", real
    mount = max(enumerate(holding), key=lambda pair: (len(pair[1].point), pair[0]))[1]
    return mount.device, mount.root.rstrip("/") + real[len(mount.point.rstrip("/")) :]


async def end(task: LeftTask) -> None:
    """Kill all processes of a task, let its shim record the end, and remove its cgroups; raises DriverError."""
    for _ in range(KILL_ROUNDS):
        alive = await asyncio.to_thread(_living, task)
        if not alive:
            break
        process_identity.kill_all(process_identity.by_pid(alive))
        await asyncio.sleep(KILL_PAUSE_S)
    else:
        raise DriverError(
            f"processes do not end: {', '.join(map(str, alive))}; look at them with `ps -o pid,stat,wchan`"
        )
    await _end_shim(*task.shim)
    await asyncio.to_thread(_remove_cgroups, task.cgroups)


def _living(task: LeftTask) -> list[int]:
    """The living pids of a task: those in its cgroups and those of its session and shim."""
    found = set(cgroups.processes(task.cgroups))
    for pid, started in task.members:
        if process_identity.is_alive(pid, started):
            found |= {pid, *(each.pid for each in process_identity.relatives(pid, started, 0))}
    shim, shim_started = task.shim
    if process_identity.is_alive(shim, shim_started) and task.members:
        pid, started = task.members[0]
        found |= {each.pid for each in process_identity.relatives(pid, started, shim)}
    return sorted(pid for pid in found if pid != shim and process_identity.start_time(pid))


async def _end_shim(pid: int, started: int) -> None:
    """Wait for a shim, which ends after its task; kill one that does not."""
    for _ in range(int(SHIM_LIMIT_S / KILL_PAUSE_S)):
        if not process_identity.is_alive(pid, started):
            return
        await asyncio.sleep(KILL_PAUSE_S)
    process_identity.send_signal(pid, started, process_identity.signal_number("SIGKILL"))


def _remove_cgroups(folders: tuple[str, ...]) -> None:
    for folder in folders:
        cgroups.remove((folder, *_below(Path(folder))))
    left = [folder for folder in folders if os.path.isdir(folder)]
    if left:
        raise DriverError(f"the cgroup {left[0]} cannot be removed; its processes: `cat {left[0]}/cgroup.procs`")


def _below(folder: Path) -> Iterator[str]:
    """All folders below one, outer ones first."""
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(folder), key=lambda each: each.name):
            if entry.is_dir(follow_symlinks=False):
                yield entry.path
                yield from _below(Path(entry.path))


def find_leftover_containers(plugin_state: Path) -> tuple[str, ...]:
    """Containers of isolated tasks that runc has, or was about to create."""
    found: set[str] = set()
    for part in ("containers", "bundles"):
        with contextlib.suppress(OSError):
            found |= set(os.listdir(plugin_state / CONTAINER_FOLDER / part))
    return tuple(sorted(found))


async def remove_container(plugin_state: Path, container: str) -> None:
    """Delete a container in runc and remove its bundle; raises DriverError."""
    import shutil

    folder = plugin_state / CONTAINER_FOLDER
    program = runc.find_program()
    if not program and (folder / "containers" / container).exists():
        raise DriverError(f"runc is not on PATH, which made the container {container}; {runc.FIX}")
    await runc.Runc(program, folder / "containers").delete(container)
    await asyncio.to_thread(shutil.rmtree, folder / "bundles" / container, ignore_errors=True)
