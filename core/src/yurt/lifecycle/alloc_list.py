"""Interprets the lists of a node's allocations for its client (invariant E2). Pure.

A list holds the ids of the node's allocations, each with the index of its last change, at one index of the state. A
list of an older state than an adopted one is ignored, so that a server that restores a snapshot or lags never makes a
client stop a task. Of a newer list the changed allocations are fetched. When the server that answers has an older state
than the list, nothing is adopted, and the client asks again.

A new cluster counts its indexes from the beginning, so a client cannot compare them with those of the cluster before.
The lists of a new cluster name another cluster ID, whatever the length of its log. Where a list names none, because the
servers are of an earlier version, the index of a registration decides: the log stores each registration, so in the same
log its index is above all earlier ones, and a lower index is of a new log. The client stores that, on disk too, until
it has adopted a list of the new log.

Of a new log a list is adopted that has an allocation which the client knows, and only then: before a snapshot is
restored the new cluster knows none, and its empty list would stop all tasks. A client without allocations adopts any.
The list must be of the cluster in which the client is registered: a server that is left of the cluster before still has
a list of that one, which lacks what the new cluster has placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yurt.sdk.errors import Unavailable
from yurt.sdk.value import Value
from yurt.structs.alloc import Allocation
from yurt.structs.rpc import AllocPull


class Changes(Value):
    """The effect of a list: allocations to adopt, and ids that are no longer listed."""

    fetched: tuple[Allocation, ...] = ()
    gone: tuple[str, ...] = ()


class AllocList:
    """The allocations of the last adopted list, by id with their index."""

    def __init__(self, *, seen_index: int = 0) -> None:
        self.seen_index = seen_index
        self.cluster_id = ""
        """The ID of the cluster of the adopted lists; "" before one has named it."""
        self._registered: tuple[str, int] = "", 0
        """The cluster ID and the index of the last registration."""
        self._indexes: dict[str, int] = {}
        self.new_log_index = 0
        """The index of a registration in a new log of which no list is adopted yet; 0 without one."""

    def restore(self, alloc_ids: Mapping[str, int]) -> None:
        """Add allocations from an earlier run of the agent, with their indexes."""
        self._indexes.update(alloc_ids)

    def expect(self, least_index: int) -> None:
        """Ignore lists below this index from now on."""
        self.seen_index = max(self.seen_index, least_index)

    def is_older(self, pull: AllocPull) -> bool:
        """Whether the list is of an older state than the adopted one."""
        return pull.index < self.seen_index

    def is_foreign(self, pull: AllocPull) -> bool:
        """Whether the list is of another cluster than the adopted ones."""
        return self._differs(pull.cluster_id)

    def is_unusable(self, pull: AllocPull) -> bool:
        """Whether the list cannot follow the adopted one: it is older, or a new log has no first list yet."""
        return self.has_new_log or self.is_foreign(pull) or self.is_older(pull)

    @property
    def has_new_log(self) -> bool:
        """Whether the servers have a new log, by its indexes, of which no list is adopted yet."""
        return self.new_log_index > 0

    def note_registration(self, index: int, *, seen_before: int, cluster_id: str = "") -> None:
        """Note the index of a registration; `seen_before` is the newest index before it was requested."""
        self._registered = cluster_id, index
        if index < seen_before and not self._differs(cluster_id):
            self.new_log_index = index  # a later one beyond it proves nothing: the new log grows

    def is_of_new_log(self, pull: AllocPull) -> bool:
        """Whether a list is that of a restored snapshot in a new log."""
        if self.is_foreign(pull):
            cluster_id, index = self._registered
            is_new = cluster_id in ("", pull.cluster_id) and pull.index >= index
        else:
            is_new = 0 < self.new_log_index <= pull.index
        return is_new and (not self._indexes or not self._indexes.keys().isdisjoint(pull.allocs))

    def missing_count(self, pull: AllocPull) -> int:
        """The number of known allocations that are missing in a list."""
        return len(self._indexes.keys() - pull.allocs.keys())

    def begin_anew(self, pull: AllocPull) -> None:
        """Accept this list of a new log and those after it; all its allocations count as changed."""
        assert self.is_of_new_log(pull), (pull.index, self.seen_index)
        self.seen_index, self.new_log_index = pull.index, 0
        self.cluster_id = pull.cluster_id or self.cluster_id
        self._indexes = dict.fromkeys(self._indexes, -1)

    def _differs(self, cluster_id: str) -> bool:
        return bool(cluster_id and self.cluster_id) and cluster_id != self.cluster_id

    def moved(self, pull: AllocPull) -> tuple[str, ...]:
        """The ids of new and changed allocations, which must be fetched."""
        return tuple(alloc_id for alloc_id, index in pull.allocs.items() if self._indexes.get(alloc_id, -1) < index)

    def changes(self, pull: AllocPull, fetched: Iterable[Allocation]) -> Changes:
        """The changes from the list and fetched allocations; raises Unavailable for missing or outdated ones."""
        found = tuple(fetched)
        if {alloc.id for alloc in found if alloc.alloc_modify_index >= pull.allocs[alloc.id]} != set(self.moved(pull)):
            raise Unavailable("the server's state is older than the list of allocations; the client asks again")
        return Changes(fetched=found, gone=tuple(alloc_id for alloc_id in self._indexes if alloc_id not in pull.allocs))

    def take_over(self, pull: AllocPull, changes: Changes) -> bool:
        """Adopt a list; returns whether it is as new as the latest required one."""
        self._indexes.update({alloc.id: pull.allocs[alloc.id] for alloc in changes.fetched})
        for alloc_id in changes.gone:
            del self._indexes[alloc_id]
        if not self._indexes:
            self._indexes.clear()  # deletions alone do not shrink a dictionary
        is_new = not self.is_older(pull)
        self.cluster_id = pull.cluster_id or self.cluster_id
        self.seen_index = max(self.seen_index, pull.index)
        assert self.seen_index >= pull.index, "a client never goes back to an older list (E2)"
        return is_new
