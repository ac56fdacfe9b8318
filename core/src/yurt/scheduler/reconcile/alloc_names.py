"""Allocation names: `<job>.<group>[<index>]`, with unique indexes 0 to count-1 (invariant D2)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, islice

from yurt.structs.alloc import Allocation


def alloc_name(job_id: str, group: str, index: int) -> str:
    """The name with an index."""
    return f"{job_id}.{group}[{index}]"


def index_of(alloc: Allocation) -> int:
    """The index in an allocation's name; 0 for another format."""
    prefix = f"{alloc.job_id}.{alloc.task_group}["
    digits = alloc.name[len(prefix) : -1]
    is_own = alloc.name.startswith(prefix) and digits.isascii() and digits.isdigit() and len(digits) < 10
    return int(digits) if is_own else 0


class NameIndex:
    """The used indexes of a group."""

    def __init__(self, job_id: str, group: str, count: int, used: Iterable[Allocation]) -> None:
        self._job_id = job_id
        self._group = group
        self._count = count
        self._used = {index_of(alloc) for alloc in used}

    def free(self, alloc: Allocation) -> None:
        """Free an index."""
        self._used.discard(index_of(alloc))

    def is_above(self, alloc: Allocation) -> bool:
        """Whether the allocation's index is above the desired ones."""
        return not 0 <= index_of(alloc) < self._count

    def next(self, number: int) -> list[str]:
        """Unused names: indexes below the count first, then those beyond."""
        assert number >= 0, number
        used = self._used
        # Filling gaps keeps indexes low: an index beyond the count would be the first to stop at the next scale-down.
        indexes = list(islice((index for index in count() if index not in used), number))
        assert len(indexes) == number, (len(indexes), number, "the supply of indexes is unlimited")
        used.update(indexes)
        job_id, group = self._job_id, self._group
        return [f"{job_id}.{group}[{index}]" for index in indexes]

    def next_canaries(self, number: int, replaced: Iterable[Allocation], staying: Iterable[Allocation]) -> list[str]:
        """Names for canaries: those of the allocations that they will replace, then unused ones; none of those that
        stay, other canaries included."""
        assert number >= 0, number
        # A canary takes the name of what it will replace, so that a promotion leaves each name once (D2). After a
        # failed deployment two versions may share a name, and only one of them is replaced.
        taken = {index_of(alloc) for alloc in staying}
        indexes = sorted({index_of(alloc) for alloc in replaced} - taken)
        names = [alloc_name(self._job_id, self._group, i) for i in indexes if i < self._count][:number]
        return [*names, *self.next(number - len(names))]
