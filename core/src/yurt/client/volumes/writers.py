"""Finds the tasks that must have left a host volume before another task starts to write to it.

The servers count an allocation that they stopped, or lost with its node, as gone at once; its task writes until it has
ended. A task waits for allocations that are older than its own, so no two wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from yurt.client.volumes.mounts import source_of
from yurt.lifecycle.task import DEAD, TaskMachine
from yurt.structs.alloc import Allocation
from yurt.structs.predicates import is_server_terminal
from yurt.structs.volumes.host import HostVolume
from yurt.structs.volumes.host_access import HOST, excludes
from yurt.structs.volumes.request import VolumeRequest


class WritingTask(Protocol):
    """A task that may write to volumes."""

    @property
    def name(self) -> str:
        """Its name in the job."""
        ...

    @property
    def alloc(self) -> Allocation:
        """Its allocation."""
        ...

    @property
    def machine(self) -> TaskMachine:
        """Its current state."""
        ...


class Write(NamedTuple):
    """A volume to which a task writes, by its name on the node, and the group's request."""

    source: str
    request: VolumeRequest


class VolumeWriters:
    """The writers of the node's host volumes; `tasks` are all tasks that may still run.

    `volume_of` finds a dynamic volume by its name; None for a volume of the configuration.
    """

    def __init__(
        self, tasks: Callable[[], Iterable[WritingTask]], volume_of: Callable[[str], HostVolume | None]
    ) -> None:
        self._tasks = tasks
        self._volume_of = volume_of

    def before(self, alloc: Allocation, task_name: str, *, is_first_run: bool) -> tuple[WritingTask, str] | None:
        """A task of an older allocation that must end before the task may write, with the volume's name; None for none.

        Before the first run, every older writer counts as ending: the servers placed this one on the volume because
        they had ended the other, and an agent that comes back may start this one before it knows of that.
        """
        wanted = tuple(_writes(alloc, task_name))
        for other in self._tasks() if wanted else ():
            is_ending = other.machine.is_killed or is_server_terminal(other.alloc)
            if other.machine.phase == DEAD or not _is_older(other.alloc, alloc) or not (is_ending or is_first_run):
                continue
            for mine in wanted:
                if any(self._excludes(mine, theirs) for theirs in _writes(other.alloc, other.name)):
                    return other, mine.source
        return None

    def _excludes(self, mine: Write, theirs: Write) -> bool:
        return mine.source == theirs.source and excludes(self._volume_of(mine.source), mine.request, theirs.request)


def _is_older(one: Allocation, other: Allocation) -> bool:
    return (one.create_index, one.id) < (other.create_index, other.id)


def _writes(alloc: Allocation, task_name: str) -> Iterator[Write]:
    """The host volumes that a task has mounted to write."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    task = group.task(task_name) if group is not None else None
    for mount in task.volume_mounts if task is not None else ():
        request = group.volumes.get(mount.volume) if group is not None else None
        if request is not None and request.type == HOST and not (request.read_only or mount.read_only):
            yield Write(source_of(request, alloc), request)
