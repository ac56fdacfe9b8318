"""Commands on evaluations."""

from __future__ import annotations

from yurt.structs.commands.base import Command
from yurt.structs.evaluation import Evaluation


class UpsertEvaluations(Command, tag=True):
    """Create evaluations or store their new states; also the delivery-limit follow-ups and cancellations."""

    evaluations: tuple[Evaluation, ...]


class DeleteEvaluations(Command, tag=True):
    """Garbage collection of evaluations and allocations."""

    eval_ids: tuple[str, ...] = ()
    alloc_ids: tuple[str, ...] = ()


EvaluationCommand = UpsertEvaluations | DeleteEvaluations
