"""Commands on evaluations."""

from __future__ import annotations

from yurt.structs.commands.base import Command, EventType
from yurt.structs.evaluation import Evaluation


class UpsertEvaluations(Command, tag=True):
    """Create evaluations or store their new states, including follow-ups and cancellations."""

    event_type = EventType("EvaluationUpdated")

    evaluations: tuple[Evaluation, ...]


class DeleteEvaluations(Command, tag=True):
    """Delete evaluations and allocations that have ended.

    Unended ones are left out; with `is_strict`, a missing evaluation or one that must stay rejects all. When
    `requires_pause`, the command is rejected unless the evaluation broker is paused: that is the rule for deletions by
    hand. Garbage collection, and entries of versions before this field, have no such condition.
    """

    eval_ids: tuple[str, ...] = ()
    alloc_ids: tuple[str, ...] = ()
    is_strict: bool = False
    requires_pause: bool = False


EvaluationCommand = UpsertEvaluations | DeleteEvaluations
