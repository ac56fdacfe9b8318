"""Which evaluations that wait need the end of which idle allocations: the scheduler is asked. Pure; for a thread.

Each evaluation is the reason of one end at most, and counts from then on as placed: the next one is tried on what it
leaves. So as many allocations end as are needed, not all on which somebody would fit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from yurt.duties.idle import EndingTogether, ending_now, waiting_for_devices
from yurt.scheduler.attempts import Attempt, attempt
from yurt.scheduler.capacity.in_flight import with_plans
from yurt.scheduler.capacity.quotas import QuotaLimits
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot, Tables
from yurt.state.usage import usage_of, usage_of_resources
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import Evaluation
from yurt.structs.plan import Plan
from yurt.structs.queueing.idle import ALWAYS

WAITING_MAX: Final = 16
"""Evaluations of a pool that are tried in one look; the next one goes on with those after them."""
ATTEMPTS_MAX: Final = 96
"""Attempts of the scheduler for a pool in one look; the next one goes on with the allocations after them."""
SEED: Final = 1

log = logging.getLogger(__name__)


class Turn(NamedTuple):
    """Where the next look at a pool begins."""

    waiting: int = 0
    """With the how manieth evaluation."""
    allocs: str = ""
    """After the allocations with this id."""


class DeviceNeeds(NamedTuple):
    """What a look found."""

    waiting: Mapping[str, Evaluation]
    """The evaluation that needs the devices of allocations, by the id by which they are known."""
    untried: frozenset[str]
    """Allocations for which there was no time."""
    turns: Mapping[str, Turn]
    """Where the next look begins, by pool."""


def needs(
    state: Snapshot,
    due: Iterable[EndingTogether],
    turns: Mapping[str, Turn],
    *,
    now: UnixNano,
    region: str,
    is_late: Callable[[], bool] = lambda: False,
) -> DeviceNeeds:
    """The needs for the idle allocations that are due; once `is_late`, the rest is left untried."""
    pools: dict[str, list[EndingTogether]] = {}
    for each in due:
        job = each.allocs[0].job
        assert job is not None, each.first
        pools.setdefault(job.node_pool, []).append(each)
    ending = ending_now(state)
    waiting: dict[str, Evaluation] = {}
    untried: set[str] = set()
    after: dict[str, Turn] = {}
    for pool, endings in sorted(pools.items()):
        # Each pool is evaluated on its own: only allocations that end there free capacity.
        model = _Model(state, now, QuotaLimits(region), is_late)
        model.end([alloc for alloc in ending if alloc.job is not None and alloc.job.node_pool == pool])
        needs_of_pool, untried_of_pool, after[pool] = _needs_of_pool(model, pool, endings, turns.get(pool, Turn()))
        waiting |= needs_of_pool
        untried |= untried_of_pool
    return DeviceNeeds(waiting, frozenset(untried), after)


def _needs_of_pool(
    model: _Model, pool: str, endings: Sequence[EndingTogether], turn: Turn
) -> tuple[dict[str, Evaluation], set[str], Turn]:
    served = {alloc.idle.waiting_eval for alloc in model.ended if alloc.idle is not None}
    for each in endings:
        if each.policy.when == ALWAYS and each.is_announced:
            model.end(each.allocs)
    contended = [each for each in endings if each.policy.when != ALWAYS]
    named = {each.waiting_eval for each in contended if each.is_announced} | served
    every = waiting_for_devices(model.state, pool, named, model.now)
    first = [each for each in every if each.id in named]
    others = every[len(first) :]
    start = turn.waiting if turn.waiting < len(others) else 0
    candidates = first + (others[start:] + others[:start])[: max(1, WAITING_MAX - len(first))]
    model.settle(candidates, served)
    needs_of: dict[str, Evaluation] = {}
    untried: set[str] = set()
    last = turn.allocs
    for each in _in_turn(contended, turn.allocs):
        if model.attempts >= ATTEMPTS_MAX or model.is_late():
            untried.add(each.first)
            continue
        last = each.first
        evaluation = model.who_needs(each, candidates)
        if evaluation is not None:
            needs_of[each.first] = evaluation
    is_new = any(evaluation.id not in named for evaluation in needs_of.values())
    after = start if is_new or len(candidates) == len(every) or untried else start + WAITING_MAX
    return needs_of, untried, Turn(after, last if untried else "")


def _in_turn(endings: Sequence[EndingTogether], after: str) -> list[EndingTogether]:
    """Those that are announced, the earliest first, then the others in the order of their ids, from one on."""
    return sorted(endings, key=lambda each: (not each.is_announced, each.ends_at, each.first <= after, each.first))


class _Model:
    """The state as it will be when allocations have ended and evaluations are placed."""

    def __init__(self, state: Snapshot, now: UnixNano, limits: QuotaLimits, is_late: Callable[[], bool]) -> None:
        self.state = state
        self.now = now
        self.is_late = is_late
        self.attempts = 0
        self.ended: list[Allocation] = []
        self._limits = limits
        self._plans: list[Plan] = []
        self._view: Snapshot | None = None
        self._placed: dict[str, int] = {}
        """How much of an evaluation is placed without any more ends; those that are settled are not among them."""

    def end(self, allocs: Iterable[Allocation]) -> None:
        """Let allocations end."""
        self.ended += allocs
        self._view = None

    def settle(self, candidates: Sequence[Evaluation], served: Iterable[str] = ()) -> None:
        """Place what fits as it is; `served` ones have their end, whether they fit or not."""
        before, done = self._placed, set(served)
        self._placed = {}
        for evaluation in candidates:
            if (before and evaluation.id not in before) or self.is_late():
                continue  # It does not justify an end in this step.
            made = self._attempt(evaluation)
            if made is None:
                continue
            if evaluation.id in done or not _is_unplaced(made):
                self._lay(made.plan)
            else:
                self._placed[evaluation.id] = len(made.plan.placements)

    def who_needs(self, ending: EndingTogether, candidates: Sequence[Evaluation]) -> Evaluation | None:
        """The evaluation that is placed on the devices of allocations when they end, and not without that."""
        job = ending.allocs[0].job
        own = job.key if job is not None else None
        devices = {(alloc.node_id, _instance(key)) for alloc in ending.allocs for key in usage_of(alloc).devices}
        for evaluation in sorted(candidates, key=lambda each: each.id != ending.waiting_eval):
            key = evaluation.namespace, evaluation.job_id
            if evaluation.id not in self._placed or key == own:
                continue
            made = self._attempt(evaluation, ending.allocs)
            if made is None or len(made.plan.placements) <= self._placed[evaluation.id]:
                continue
            if devices.isdisjoint(self._devices_of(made.plan)):
                continue
            self.end(ending.allocs)
            self._lay(made.plan)
            del self._placed[evaluation.id]
            if self._placed:
                self.settle(candidates)
            return evaluation
        return None

    def _devices_of(self, plan: Plan) -> set[tuple[str, str]]:
        job = self.state.jobs.get((plan.namespace, plan.job_id))
        return {
            (placement.node_id, _instance(key))
            for placement in plan.placements
            for key in usage_of_resources(
                placement.resources, job.group(placement.task_group) if job is not None else None
            ).devices
        }

    def _attempt(self, evaluation: Evaluation, more: Sequence[Allocation] = ()) -> Attempt | None:
        self.attempts += 1
        try:
            return attempt(self._with(more), evaluation, now=self.now, seed=SEED, limits=self._limits)
        except Exception:
            log.exception("an evaluation was not tried on idle devices: eval_id=%s", evaluation.id)
            return None

    def _with(self, more: Sequence[Allocation]) -> Snapshot:
        if not more and self._view is not None:
            return self._view
        edit = self.state.edit(self.state.index + 1)
        for alloc in (*self.ended, *more):
            ended = replace(alloc, desired_status=status.DESIRED_EVICT, client_status=status.CLIENT_FAILED)
            edit.put(Tables.allocs, alloc.id, ended)
        view = with_plans(edit.commit(), self._plans)
        if not more:
            self._view = view
        return view

    def _lay(self, plan: Plan) -> None:
        self._plans.append(plan)
        self._view = None


def _is_unplaced(made: Attempt) -> bool:
    """Whether a part of the evaluation is unplaced."""
    return bool(made.outcome.evaluation.failed_tg_allocs) or made.outcome.reblock is not None


def _instance(key: str) -> str:
    """The instance of a booked device, whatever its share."""
    return key.split("|", 1)[0]
