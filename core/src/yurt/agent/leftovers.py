"""Finds and removes the leftovers of a dead agent on its host, by its configuration and data directory.

The data directory's lock is held meanwhile: a live agent has it, so that nothing of one is ever looked at, and none
starts in between. What the data directory itself holds stays: it is the operator's.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal

from yurt.agent.component_configs import cgroup_parent, network_settings
from yurt.agent.config import AgentConfig
from yurt.client.networks.construction import Construction
from yurt.client.networks.makers import NamespaceMakers
from yurt.client.networks.records import NetworkRecord, RecordFolder, owner_of
from yurt.executor import leftovers as tasks
from yurt.plugins.manager import OK, SKIPPED, PluginManager
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import AgentPaths, ClearingDriver, Driver, Leftover, PluginContext
from yurt.sdk.errors import Conflict, DriverError, Unavailable, YurtError
from yurt.sdk.mounting import MNT_DETACH, UMOUNT_NOFOLLOW, libc_call, points_below
from yurt.sdk.value import Value
from yurt.storage.data_dir import LOCK_NAME

ASK_LIMIT_S = 30.0
REMOVE_LIMIT_S = 120.0
State = Literal["found", "removed", "stays"]
FOUND: Final = "found"
REMOVED: Final = "removed"
STAYS: Final = "stays"

Remove = Callable[[], Awaitable[None]]
Looked = AsyncIterator[tuple[Leftover, Remove]]


class RemovalOutcome(Value):
    """The outcome for one leftover; `state` is found, removed or stays, and `problem` says why it stays."""

    kind: str
    name: str
    detail: str = ""
    state: State = FOUND
    problem: str = ""


class AgentFolders(Value):
    """The folders of an agent."""

    root: Path
    client: Path
    alloc: Path

    @property
    def plugins(self) -> Path:
        """A folder for the state of each plugin."""
        return self.client / "plugins"


def places_of(config: AgentConfig) -> AgentFolders:
    """The folders of the agent with this configuration, existing or not."""
    root = Path(config.data_dir)
    return AgentFolders(
        root=root,
        client=Path(config.client.get("state_dir") or root / "client"),
        alloc=Path(config.client.get("alloc_dir") or root / "alloc"),
    )


async def clear(config: AgentConfig, *, removes: bool) -> list[RemovalOutcome]:
    """Remove everything that the agent of this configuration left; raises Conflict while it runs."""
    places, outcomes = places_of(config), []
    with _locked(places.root):
        async for leftover, remove in _look(config, places):
            found = RemovalOutcome(kind=leftover.kind, name=leftover.name, detail=leftover.detail)
            outcomes.append(await _removed(found, remove) if removes else found)
    return outcomes


async def _removed(found: RemovalOutcome, remove: Remove) -> RemovalOutcome:
    problem = ""
    try:
        async with asyncio.timeout(REMOVE_LIMIT_S):
            await remove()
    except TimeoutError:
        problem = f"it is not gone after {REMOVE_LIMIT_S:g} s"
    except (YurtError, OSError) as error:
        problem = str(error)
    return _with(found, STAYS if problem else REMOVED, problem)


def _with(found: RemovalOutcome, state: State, problem: str) -> RemovalOutcome:
    return RemovalOutcome(kind=found.kind, name=found.name, detail=found.detail, state=state, problem=problem)


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Lock a data directory; raises Conflict when an agent has locked it. A missing one needs no lock."""
    try:
        lock = os.open(root / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise Unavailable(
            f"{root / LOCK_NAME} cannot be opened: {error.strerror}; run it as the agent's user"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise Conflict(
            f"the agent of {root} runs{f' (pid {holder})' if holder.isdigit() else ''}: what there is belongs to it. "
            "Stop its jobs, then stop the agent, and look again"
        ) from None
    try:
        yield
    finally:
        os.close(lock)


async def _look(config: AgentConfig, places: AgentFolders) -> Looked:
    """Find everything that is left, in the order in which it can be removed."""
    states = sorted(path for path in places.plugins.glob("*") if path.is_dir()) if places.plugins.is_dir() else []
    parent = cgroup_parent(config.client)
    for task in await asyncio.to_thread(tasks.find_leftover_tasks, states, str(places.alloc), parent):
        detail = f"{len(task.cgroups)} cgroups, pids {', '.join(str(pid) for pid, _ in task.members if pid)}"
        yield Leftover(kind="task", name=task.task_id, detail=detail), partial(tasks.end, task)
    for state in states:
        for container in tasks.find_leftover_containers(state):
            found = Leftover(kind="isolated task", name=container, detail=str(state))
            yield found, partial(tasks.remove_container, state, container)
    manager = PluginManager()
    loaded = manager.load(lambda name: _context(config, places, name), configs=config.plugins)
    try:
        for status in loaded.statuses:
            if status.state not in (OK, SKIPPED):
                yield Leftover(kind="plugin", name=status.name), partial(_refuse, status.reason)
        async for each in _of_drivers(loaded.drivers):
            yield each
        async for each in _networks(config, places, loaded.drivers):
            yield each
    finally:
        await manager.close()
    for folder in (places.alloc, places.client):
        for point in await asyncio.to_thread(points_below, str(folder)):
            yield Leftover(kind="mount", name=point), partial(_unmount, point)


def _context(config: AgentConfig, places: AgentFolders, name: str) -> PluginContext:
    return PluginContext(
        dev=False,
        options=config.client.get("options", {}),
        chroot_env=config.client.get("chroot_env", {}),
        paths=AgentPaths(state_dir=str(places.plugins / name), run_dir=str(places.root / "run")),
    )


async def _of_drivers(drivers: Mapping[str, Driver]) -> Looked:
    """The leftovers that drivers find in engines of their own."""
    for name, driver in sorted(drivers.items()):
        candidate: object = driver
        if not isinstance(candidate, ClearingDriver):
            continue
        try:
            async with asyncio.timeout(ASK_LIMIT_S):
                found = await candidate.leftovers()
        except (YurtError, OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {ASK_LIMIT_S:g} s"
            yield Leftover(kind="driver", name=name, detail=f"cannot be asked: {reason}"), partial(_refuse, reason)
            continue
        for each in found:
            yield each, partial(candidate.remove_leftover, each)


async def _networks(config: AgentConfig, places: AgentFolders, drivers: Mapping[str, Driver]) -> Looked:
    folder = RecordFolder.of_machine(str(places.client))
    makers = NamespaceMakers(drivers)
    construction = Construction(network_settings(config.client), RealEnv(), makers=makers, folder=folder)
    for record in await asyncio.to_thread(folder.owned_by, owner_of(str(places.client), is_dev=False)):
        detail = " ".join(filter(None, (record.namespace, record.status.address if record.status else "")))
        found = Leftover(kind="network", name=record.alloc_id, detail=detail)
        yield found, partial(_disconnect, construction, record)


async def _disconnect(construction: Construction, record: NetworkRecord) -> None:
    problem = await construction.undo(record)
    if problem:
        raise DriverError(problem)


async def _refuse(reason: str) -> None:
    raise DriverError(reason)


async def _unmount(point: str) -> None:
    failed = await asyncio.to_thread(libc_call, "umount2", os.fsencode(point), MNT_DETACH | UMOUNT_NOFOLLOW)
    if failed and point in await asyncio.to_thread(points_below, str(Path(point).parent)):
        raise OSError(failed, os.strerror(failed), point)
