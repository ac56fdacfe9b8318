"""Evaluations that wait for capacity.

A scheduler that cannot place everything leaves a blocked evaluation behind, with what it learned of the computed node
classes. It becomes ready when something that it could use appears: a class that it did not rule out (*captured*), any
class when its constraints look past classes (*escaped*), or its own node (system jobs). An unblock that happened
after the scheduler's snapshot and before the evaluation got here would be lost; so the last unblock index of every
class and node is kept, and such an evaluation is ready at once (invariant B4). There is one per (namespace, job), for
system jobs one per node besides (B3); of two, the newer stays and the other is to be canceled.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from yurt.structs import status
from yurt.structs.evaluation import Evaluation

K = TypeVar("K")
Slot = tuple[str, str, str]
"""(namespace, job id, node id or '')."""


class Superseded(NamedTuple):
    """A blocked evaluation to cancel, and why."""

    evaluation: Evaluation
    reason: str


class BlockedEvals:
    """Blocked evaluations, and what unblocks them."""

    def __init__(self) -> None:
        self._slots: dict[Slot, Evaluation] = {}
        self._by_node: dict[str, set[Slot]] = {}
        self._class_indexes: dict[str, int] = {}
        self._node_indexes: dict[str, int] = {}
        self._limit_indexes: dict[str, int] = {}
        self._missing_indexes: dict[str, int] = {}
        self._superseded: list[Superseded] = []

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def escaped(self) -> int:
        """How many wait for any class."""
        return sum(1 for evaluation in self._slots.values() if evaluation.escaped_computed_class)

    def holds(self, eval_id: str) -> bool:
        """The evaluation waits here."""
        return any(evaluation.id == eval_id for evaluation in self._slots.values())

    def block(self, evaluation: Evaluation) -> bool:
        """Keep it until it is unblocked; True, and not kept, when it missed an unblock and is ready now."""
        slot = _slot(evaluation)
        held = self._slots.get(slot)
        if held is not None and held.id != evaluation.id:
            old, new = sorted((held, evaluation), key=lambda e: (e.snapshot_index, e.create_index, e.id))
            self._superseded.append(
                Superseded(old, f'existing blocked evaluation exists for job "{evaluation.job_id}"')
            )
            if new is held:
                return False
        self._drop(slot)
        if self._missed_unblock(evaluation):
            return True
        self._slots[slot] = evaluation
        if evaluation.node_id:
            self._by_node.setdefault(evaluation.node_id, set()).add(slot)
        return False

    def unblock_class(self, computed_class: str, *, index: int) -> tuple[Evaluation, ...]:
        """Capacity appeared on a node of the class at `index`: those that are ready now."""
        self._class_indexes[computed_class] = max(index, self._class_indexes.get(computed_class, 0))
        return self._take([slot for slot, e in self._slots.items() if not e.node_id and _can_use(e, computed_class)])

    def unblock_node(self, node_id: str, *, index: int) -> tuple[Evaluation, ...]:
        """Capacity appeared on the node at `index`: its system evaluations that are ready now."""
        self._node_indexes[node_id] = max(index, self._node_indexes.get(node_id, 0))
        return self._take(sorted(self._by_node.get(node_id, ())))

    def unblock_limit(self, name: str, *, index: int) -> tuple[Evaluation, ...]:
        """Something under a limit was freed at `index`, or the limit changed: those that it kept waiting."""
        self._limit_indexes[name] = max(index, self._limit_indexes.get(name, 0))
        return self._take([slot for slot, e in self._slots.items() if e.quota_limit_reached == name])

    def unblock_missing(self, name: str, *, index: int) -> tuple[Evaluation, ...]:
        """Something that is no node's was registered at `index`: those that lacked it."""
        self._missing_indexes[name] = max(index, self._missing_indexes.get(name, 0))
        return self._take([slot for slot, e in self._slots.items() if name in e.missing_non_node_resources])

    def unblock_failed(self) -> tuple[Evaluation, ...]:
        """Those that gave up after too many plan conflicts get another try."""
        return self._take([slot for slot, e in self._slots.items() if e.triggered_by == status.TRIGGER_MAX_PLANS])

    def forget(self, evaluation: Evaluation) -> None:
        """The evaluation ended or was deleted elsewhere."""
        held = self._slots.get(_slot(evaluation))
        if held is not None and held.id == evaluation.id:
            self._drop(_slot(evaluation))

    def take_superseded(self, limit: int) -> tuple[Superseded, ...]:
        """Up to `limit` evaluations to cancel; they are no longer here."""
        taken, self._superseded = self._superseded[:limit], self._superseded[limit:]
        return tuple(taken)

    def prune(self, below_index: int) -> None:
        """Forget unblocks older than `below_index`, which no scheduler's snapshot precedes any more."""
        self._class_indexes = {key: index for key, index in self._class_indexes.items() if index >= below_index}
        self._node_indexes = {key: index for key, index in self._node_indexes.items() if index >= below_index}
        self._limit_indexes = {key: index for key, index in self._limit_indexes.items() if index >= below_index}
        self._missing_indexes = {key: index for key, index in self._missing_indexes.items() if index >= below_index}

    def _missed_unblock(self, evaluation: Evaluation) -> bool:
        limit = evaluation.quota_limit_reached
        if limit and self._limit_indexes.get(limit, 0) > evaluation.snapshot_index:
            return True
        lacked = evaluation.missing_non_node_resources
        if any(self._missing_indexes.get(name, 0) > evaluation.snapshot_index for name in lacked):
            return True
        if evaluation.node_id:
            return self._node_indexes.get(evaluation.node_id, 0) > evaluation.snapshot_index
        return any(
            index > evaluation.snapshot_index and _can_use(evaluation, computed_class)
            for computed_class, index in self._class_indexes.items()
        )

    def _take(self, slots: list[Slot]) -> tuple[Evaluation, ...]:
        taken = tuple(self._slots[slot] for slot in slots)
        for slot in slots:
            self._drop(slot)
        return taken

    def _drop(self, slot: Slot) -> None:
        evaluation = self._slots.pop(slot, None)
        if evaluation is None:
            return
        if evaluation.node_id:
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
