"""Blocked evaluations: they wait for capacity.

A scheduler that cannot place everything leaves a blocked evaluation behind, with what it learned of the computed node
classes. It becomes ready when something that it could use appears: a class that it did not rule out (*captured*), any
class when its constraints look past classes (*escaped*), or its own node (system jobs). An unblock that happened
after the scheduler's snapshot and before the evaluation got here would be lost; so the last unblock index of every
class and node is kept, and such an evaluation is ready at once (invariant B4). There is one per (namespace, job), for
system jobs also one per node (B3); of two, the newer stays and the other is to be canceled.

One event may unblock all of them, which is a second's work where there are a hundred thousand. So `unblock_class` and
its like only take the news in, and `take_unblocked` looks at some evaluations at a time, the most urgent first, in
rounds: a round has the news that came before it began and looks at all evaluations that waited then; news that comes
meanwhile has the next round. An evaluation is unblocked by news that is younger than its scheduler's snapshot and by no
other, whether it came before the news, after it, or between two looks: none is lost, and none wakes for what it knew.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from yurt.structs import status
from yurt.structs.evaluation import Evaluation

K = TypeVar("K")
Slot = tuple[str, str, str]
"""(namespace, job id, node id or '')."""


_PRIORITY: Final = attrgetter("priority")


class _UnblockEvents:
    """The last index of each kind of event that can unblock evaluations, by name."""

    def __init__(self) -> None:
        self.classes: dict[str, int] = {}
        self.limits: dict[str, int] = {}
        self.missing: dict[str, int] = {}
        self.namespaces: dict[str, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no event came."""
        return not (self.classes or self.limits or self.missing or self.namespaces)

    def __len__(self) -> int:
        return len(self.classes) + len(self.limits) + len(self.missing) + len(self.namespaces)

    def unblocks(self, evaluation: Evaluation) -> bool:
        """Whether an event after the scheduler's snapshot unblocks the evaluation."""
        seen = evaluation.snapshot_index
        limit = evaluation.quota_limit_reached
        if limit and self.limits.get(limit, 0) > seen:
            return True
        if self.namespaces.get(evaluation.namespace, 0) > seen:
            return True
        if any(self.missing.get(name, 0) > seen for name in evaluation.missing_non_node_resources):
            return True
        if evaluation.node_id:
            return False
        return any(index > seen and _can_use(evaluation, name) for name, index in self.classes.items())

    def prune(self, below_index: int) -> None:
        """Drop older events."""
        self.classes, self.limits, self.missing, self.namespaces = (
            {name: index for name, index in indexes.items() if index >= below_index}
            for indexes in (self.classes, self.limits, self.missing, self.namespaces)
        )


class Superseded(NamedTuple):
    """A blocked evaluation to cancel, and why."""

    evaluation: Evaluation
    reason: str


class BlockedEvals:
    """The blocked evaluations, and the events that unblock them."""

    def __init__(self) -> None:
        self._slots: dict[Slot, Evaluation] = {}
        self._by_node: dict[str, set[Slot]] = {}
        self._node_indexes: dict[str, int] = {}
        self._known = _UnblockEvents()
        """Every event, for evaluations that are added after it."""
        self._round = _UnblockEvents()
        self._next_round = _UnblockEvents()
        self._unlooked: Iterator[Evaluation] = iter(())
        """The evaluations that the current round has not examined yet."""
        self._superseded: list[Superseded] = []

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def escaped(self) -> int:
        """The number of evaluations that any class may unblock."""
        return sum(1 for evaluation in self._slots.values() if evaluation.escaped_computed_class)

    def all(self) -> tuple[Evaluation, ...]:
        """The blocked evaluations, unordered."""
        return tuple(self._slots.values())

    def holds(self, eval_id: str) -> bool:
        """Whether the evaluation is blocked."""
        return any(evaluation.id == eval_id for evaluation in self._slots.values())

    def block(self, evaluation: Evaluation) -> bool:
        """Block an evaluation; returns True instead when it missed an unblock and is ready now."""
        slot = _slot(evaluation)
        current = self._slots.get(slot)
        if current is not None and current.id != evaluation.id:
            # By their schedulers' snapshots, not by arrival: a late evaluation may come from an older snapshot.
            old, new = sorted((current, evaluation), key=lambda e: (e.snapshot_index, e.create_index, e.id))
            self._superseded.append(
                Superseded(old, f'existing blocked evaluation exists for job "{evaluation.job_id}"')
            )
            if new is current:
                return False
        self._drop(slot)
        if self._missed_unblock(evaluation):
            return True
        assert slot not in self._slots, "one blocked evaluation per job and node (B3)"
        self._slots[slot] = evaluation
        if evaluation.node_id:
            self._by_node.setdefault(evaluation.node_id, set()).add(slot)
        return False

    def unblock_class(self, computed_class: str, *, index: int) -> None:
        """Capacity appeared on a node of the class at `index`."""
        for events in (self._known, self._next_round):
            events.classes[computed_class] = max(index, events.classes.get(computed_class, 0))

    def unblock_limit(self, name: str, *, index: int) -> None:
        """Capacity was freed under a limit at `index`, or the limit changed."""
        for events in (self._known, self._next_round):
            events.limits[name] = max(index, events.limits.get(name, 0))

    def unblock_missing(self, name: str, *, index: int) -> None:
        """An object that evaluations lacked, other than on a node, was registered at `index`."""
        for events in (self._known, self._next_round):
            events.missing[name] = max(index, events.missing.get(name, 0))

    def unblock_namespace(self, name: str, *, index: int) -> None:
        """The capacity that jobs of a namespace may reclaim changed at `index`."""
        for events in (self._known, self._next_round):
            events.namespaces[name] = max(index, events.namespaces.get(name, 0))

    @property
    def has_changes(self) -> bool:
        """Whether `take_unblocked` has events to check."""
        return not (self._round.is_empty and self._next_round.is_empty)

    def take_unblocked(self, limit: int) -> tuple[Evaluation, ...]:
        """Check up to `limit` pairs of an evaluation and an event; returns the evaluations that are ready now."""
        if self._round.is_empty:
            self._round, self._next_round = self._next_round, _UnblockEvents()
            self._unlooked = iter(sorted(self._slots.values(), key=_PRIORITY, reverse=True))
        # The limit counts pairs of an evaluation and an event: with more events, fewer evaluations fit into a turn.
        count = max(1, limit // max(1, len(self._round)))
        looked_at = list(islice(self._unlooked, count))
        found = [_slot(evaluation) for evaluation in looked_at if self._waits(evaluation, self._round)]
        if len(looked_at) < count:
            self._round = _UnblockEvents()
        return self._take(found)

    def unblock_node(self, node_id: str, *, index: int) -> tuple[Evaluation, ...]:
        """Capacity appeared on the node at `index`: returns its system evaluations that are ready now."""
        assert node_id, "news of no node would wake every evaluation that waits for none"
        self._node_indexes[node_id] = max(index, self._node_indexes.get(node_id, 0))
        return self._take(sorted(self._by_node.get(node_id, ())))

    def unblock_failed(self) -> tuple[Evaluation, ...]:
        """Unblock evaluations that ended after too many plan conflicts."""
        return self._take([slot for slot, e in self._slots.items() if e.triggered_by == status.TRIGGER_MAX_PLANS])

    def forget(self, evaluation: Evaluation) -> None:
        """Drop an evaluation that ended or was deleted elsewhere."""
        current = self._slots.get(_slot(evaluation))
        if current is not None and current.id == evaluation.id:
            self._drop(_slot(evaluation))

    def take_superseded(self, limit: int) -> tuple[Superseded, ...]:
        """Remove and return up to `limit` evaluations to cancel."""
        taken, self._superseded = self._superseded[:limit], self._superseded[limit:]
        return tuple(taken)

    def prune(self, below_index: int) -> None:
        """Drop unblock events older than `below_index`, which every scheduler's snapshot includes."""
        self._known.prune(below_index)
        self._node_indexes = {key: index for key, index in self._node_indexes.items() if index >= below_index}

    def check(self) -> None:
        """Assert the invariants over all data, for tests after every step."""
        assert all(_slot(evaluation) == slot for slot, evaluation in self._slots.items())
        by_node = {(slot[2], slot) for slot, evaluation in self._slots.items() if evaluation.node_id}
        assert {(node, slot) for node, slots in self._by_node.items() for slot in slots} == by_node
        ids = [evaluation.id for evaluation in self._slots.values()]
        assert len(ids) == len(set(ids)), "an evaluation waits in two slots"
        assert not {each.evaluation.id for each in self._superseded} & set(ids), "superseded, and kept"

    def _missed_unblock(self, evaluation: Evaluation) -> bool:
        at_node = self._node_indexes.get(evaluation.node_id, 0) if evaluation.node_id else 0
        return at_node > evaluation.snapshot_index or self._known.unblocks(evaluation)

    def _waits(self, evaluation: Evaluation, events: _UnblockEvents) -> bool:
        """Whether it is still blocked and an event unblocks it; a successor checked the events when it was added."""
        return events.unblocks(evaluation) and self._slots.get(_slot(evaluation)) is evaluation

    def _take(self, slots: list[Slot]) -> tuple[Evaluation, ...]:
        before = len(self._slots)
        woken = tuple(self._slots[slot] for slot in slots)
        for slot in slots:
            self._drop(slot)
        assert len(self._slots) == before - len(woken), "each evaluation wakes once"
        return woken

    def _drop(self, slot: Slot) -> None:
        evaluation = self._slots.pop(slot, None)
        if evaluation is None:
            return
        assert _slot(evaluation) == slot, (evaluation.id, slot)
        if evaluation.node_id:
            assert slot in self._by_node[evaluation.node_id], "the index by node knows each evaluation of a node"
            _discard(self._by_node, evaluation.node_id, slot)


def _slot(evaluation: Evaluation) -> Slot:
    return (evaluation.namespace, evaluation.job_id, evaluation.node_id)


def _can_use(evaluation: Evaluation, computed_class: str) -> bool:
    return evaluation.escaped_computed_class or evaluation.class_eligibility.get(computed_class, True)


def _discard(sets: dict[K, set[Slot]], key: K, slot: Slot) -> None:
    entries = sets.get(key)
    if entries is not None:
        entries.discard(slot)
        if not entries:
            del sets[key]
