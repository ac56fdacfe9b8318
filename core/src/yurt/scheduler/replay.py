"""Replays an attempt from its record and compares its plan with the log.

The plan applier splits a plan and drops what nodes refuse, so rows are compared, not plans: each stored row must be one
of the plan's, equal in every byte of its encoding.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable

import msgspec

from yurt.scheduler.attempts import Attempt, attempt
from yurt.scheduler.capacity.in_flight import with_plans
from yurt.scheduler.capacity.limits import LimitsOf, no_limits
from yurt.sdk.value import replace
from yurt.state.store import Snapshot
from yurt.structs.evaluation import AttemptRecord, Evaluation
from yurt.structs.explain.explanation import ReplayedAttempt
from yurt.structs.plan import Plan

CHAIN_MAX = 64
"""The maximum number of evaluations that one worker schedules on the same state, one after another."""
_encoder = msgspec.msgpack.Encoder()


def replay(
    state: Snapshot,
    evaluation: Evaluation,
    record: AttemptRecord,
    *,
    before: Iterable[tuple[Evaluation, AttemptRecord]],
    limits: LimitsOf = no_limits,
) -> Attempt:
    """Repeat the attempt; `state` includes the plans in flight, `before` is attempted first."""
    view = state
    for other, first in before:
        made = attempt(view, other, now=first.now, seed=int(first.seed, 16), attempt=first.number, limits=limits)
        view = with_plans(view, (made.plan,))
    return attempt(view, evaluation, now=record.now, seed=int(record.seed, 16), attempt=record.number, limits=limits)


def compare(made: Attempt, record: AttemptRecord, stored: Iterable[Plan], *, laid_over: int) -> ReplayedAttempt:
    """Compare the repeated plan with its parts in the log."""
    plan = replace(made.plan, eval_token="")
    rows, stored_rows = Counter(_rows(plan)), Counter(row for part in stored for row in _rows(part))
    accepted, foreign = rows & stored_rows, stored_rows - rows
    return ReplayedAttempt(
        number=record.number,
        state_index=record.state_index,
        seed=record.seed,
        now=record.now,
        laid_over=laid_over,
        placements=len(plan.placements),
        stops=len(plan.stops) + len(plan.preemptions),
        updates=len(plan.in_place) + len(plan.attributes),
        digest=_digest((_encoder.encode(plan),)),
        stored=stored_rows.total(),
        refused=(rows - stored_rows).total(),
        different=foreign.total(),
        stored_digest=_digest(sorted(stored_rows.elements())),
        accepted_digest=_digest(sorted(accepted.elements())),
        is_identical=not foreign,
    )


def _rows(plan: Plan) -> list[bytes]:
    kinds = (plan.placements, plan.in_place, plan.attributes, plan.stops, plan.preemptions, plan.deployment_updates)
    encoded = [bytes((number,)) + _encoder.encode(row) for number, rows in enumerate(kinds) for row in rows]
    if plan.deployment is not None:
        encoded.append(bytes((len(kinds),)) + plan.deployment.id.encode())
    return encoded


def _digest(parts: Iterable[bytes]) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    return hasher.hexdigest()
