"""Commands on evaluations."""

from __future__ import annotations

from yurt.structs.commands.base import Command, EventType
from yurt.structs.evaluation import Evaluation


class UpsertEvaluations(Command, tag=True):
    """Create evaluations or store their new states; also the delivery-limit follow-ups and cancellations."""

    event_type = EventType("EvaluationUpdated")

    evaluations: tuple[Evaluation, ...]


class DeleteEvaluations(Command, tag=True):
    """Forget evaluations and allocations that have ended.

    What has not ended is left out; when `is_strict`, an evaluation that is gone or must stay rejects all.
    """

    eval_ids: tuple[str, ...] = ()
    alloc_ids: tuple[str, ...] = ()
    is_strict: bool = False


EvaluationCommand = UpsertEvaluations | DeleteEvaluations
