"""Interprets the lists of a node's allocations for its client: pure, and the whole of invariant E2.

A list is the ids of the allocations with the index at which the servers changed each, as of the index of a state. A
list of an older state than one that was taken over says nothing: a server that restores, or that lags, never makes a
client stop a task. Of a newer one the allocations that moved are fetched; when they come from a server that knows
less than the one that listed them, nothing is taken over either, and the client asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yurt.sdk.errors import Unavailable
from yurt.sdk.value import Value
from yurt.structs.alloc import Allocation
from yurt.structs.rpc import AllocPull


class Changes(Value):
    """The effect of a list: allocations to adopt, and ids no longer listed."""

    fetched: tuple[Allocation, ...] = ()
    gone: tuple[str, ...] = ()


class AllocList:
    """The last adopted list."""

    def __init__(self, *, seen_index: int = 0) -> None:
        self.seen_index = seen_index
        self._known: dict[str, int] = {}

    def know(self, alloc_ids: Mapping[str, int]) -> None:
        """Record allocations from an earlier run, with their indexes."""
        self._known.update(alloc_ids)

    def expect(self, least_index: int) -> None:
        """Refuse lists older than this."""
        self.seen_index = max(self.seen_index, least_index)

    def is_older(self, pull: AllocPull) -> bool:
        """Whether the list is of an older state than an adopted one."""
        return pull.index < self.seen_index

    def moved(self, pull: AllocPull) -> tuple[str, ...]:
        """The changed allocations, which must be fetched."""
        return tuple(alloc_id for alloc_id, index in pull.allocs.items() if self._known.get(alloc_id, -1) < index)

    def changes(self, pull: AllocPull, fetched: Iterable[Allocation]) -> Changes:
        """The changes from the list and fetched allocations; raises Unavailable for missing or outdated ones."""
        found = tuple(fetched)
        if {alloc.id for alloc in found if alloc.alloc_modify_index >= pull.allocs[alloc.id]} != set(self.moved(pull)):
            raise Unavailable("the server does not know all that was listed yet")
        return Changes(fetched=found, gone=tuple(alloc_id for alloc_id in self._known if alloc_id not in pull.allocs))

    def take_over(self, pull: AllocPull, changes: Changes) -> bool:
        """Adopt a list; returns whether it is as new as the latest required one."""
        self._known.update({alloc.id: pull.allocs[alloc.id] for alloc in changes.fetched})
        for alloc_id in changes.gone:
            del self._known[alloc_id]
        if not self._known:
            self._known.clear()  # deletions alone leave a dictionary as large as it ever was
        is_new = not self.is_older(pull)
        self.seen_index = max(self.seen_index, pull.index)
        assert self.seen_index >= pull.index, "a client never goes back to an older list (E2)"
        return is_new
