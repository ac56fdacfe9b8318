"""Divides the cores of a node between tasks that reserve some and the tasks that share the rest.

All drivers of an agent share one `CorePartitions`, whether their tasks are processes or containers. A task with `cores`
runs on these alone; every other one is a member with the cores that it could use, and gets them without the reserved
ones. Where the reserved cores are all that a member has, it keeps all of them: a task without a core could not run.

A member says how its list of cores is written. Nothing is written to a member whose list is right, and nothing to any
while writes are held: an agent that starts does not know the cores of its predecessor's tasks before all are recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from yurt.sdk.value import Value

SHARED: dict[tuple[str, bool], CorePartitions] = {}
"""The partitions of each parent cgroup, and of dev agents."""
HOLDS: list[object] = []
"""What holds writes now."""


@contextmanager
def held() -> Iterator[None]:
    """Hold the writes of all partitions; at the end of the last hold each writes what has changed.

    A hold that ends with an error, as at the end of the agent, writes nothing: not all tasks are counted.
    """
    hold = object()
    HOLDS.append(hold)
    try:
        yield
    finally:
        HOLDS.remove(hold)
    for each in SHARED.values():
        each.write()


class CoreSharer(Value):
    """A task without reserved cores: the cores that it could use, and the function that writes its list.

    `write` returns whether the list was written; a member whose list was not is written again at the next change.
    """

    cores: frozenset[int]
    write: Callable[[tuple[int, ...]], bool]


class CorePartitions:
    """The reserved cores of tasks, and the members that share the rest."""

    def __init__(self) -> None:
        self._reserved: dict[str, tuple[int, ...]] = {}
        self._members: dict[str, CoreSharer] = {}
        self._stale: set[str] = set()
        """The members with another list than their share, or an unknown one."""
        self._written: frozenset[int] = frozenset()
        """The cores that were reserved when the lists were last written."""

    @property
    def reserved(self) -> frozenset[int]:
        """All reserved cores."""
        return frozenset().union(*self._reserved.values())

    def share(self, cores: frozenset[int]) -> tuple[int, ...]:
        """What a member with these cores gets of them."""
        return tuple(sorted(cores - self.reserved or cores))

    def reserve(self, key: str, cores: tuple[int, ...]) -> None:
        """Count a task with cores of its own; the others leave them at the next `write`."""
        self._reserved[key] = cores

    def join(self, key: str, member: CoreSharer, has: tuple[int, ...] | None) -> None:
        """Count a task that shares; it `has` this list now, None for an unknown one."""
        self._members[key] = member
        if has != self.share(member.cores):
            self._stale.add(key)

    def is_member(self, key: str) -> bool:
        """Whether the task shares."""
        return key in self._members

    def leave(self, key: str) -> None:
        """Forget a task; the others get its cores at the next `write`."""
        self._reserved.pop(key, None)
        self._members.pop(key, None)
        self._stale.discard(key)

    def write(self) -> None:
        """Write the lists of the members that have another one; those that fail are tried at the next change."""
        if HOLDS:
            return
        reserved = self.reserved
        if reserved != self._written:
            self._written, self._stale = reserved, set(self._members)
        self._stale = {key for key in self._stale if not self._put(self._members[key])}

    def _put(self, member: CoreSharer) -> bool:
        return member.write(self.share(member.cores))


def partitions_of(cgroup_parent: str, *, dev: bool) -> CorePartitions:
    """The partitions of an agent, by its configured parent of cgroups."""
    return SHARED.setdefault((cgroup_parent, dev), CorePartitions())
