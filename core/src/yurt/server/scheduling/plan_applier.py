"""The plan applier: checks plans against the newest state and stores what still fits.

It is the only one to store plans. While some are being written it checks the next ones, against the state with the
plans on their way laid over it: a plan is never checked against a state that lacks an earlier one (invariant B6). What
does not fit is dropped, node by node, and the worker must look again at a newer state. The evaluation's own end
travels with its last command: an evaluation is never seen done before its plan.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from yurt import scheduler
from yurt.broker import PlanQueue, cut_plan, size_of
from yurt.broker.rejections import Rejections
from yurt.fsm.basis import expectation
from yurt.fsm.eval_triggers import Mint, evaluations_of
from yurt.runtime.metrics import Metrics
from yurt.runtime.supervise import outcome_of
from yurt.sdk.errors import Unavailable, YurtError
from yurt.sdk.value import replace
from yurt.server.log.log_writer import Committed, Prepared
from yurt.server.log.replica import Replica
from yurt.server.metrics import observe_plan
from yurt.server.scheduling.replay import History
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.commands import (
    AnyCommand,
    Applied,
    ApplyPlan,
    DropStagedPlans,
    KeepAlive,
    Rejected,
    SetNodeEligibility,
    StagePlan,
    UpsertEvaluations,
)
from yurt.structs.commands.versions import as_stored
from yurt.structs.evaluation import Evaluation
from yurt.structs.node import NodeEvent
from yurt.structs.plan import JOB_REFUSAL, QUOTA_REFUSAL, Outcome, Plan, PlanResult
from yurt.structs.predicates import is_ready

if TYPE_CHECKING:
    from yurt.scheduler.capacity.limits import LimitsOf

log = logging.getLogger(__name__)

THREAD_SIZE: Final = 500
"""The number of allocations from which a plan is checked in a thread."""
INELIGIBLE_MESSAGE: Final = "Node marked as ineligible for scheduling due to multiple plan rejections"
QUEUE_LIMIT: Final = 1024
EVALUATIONS_TOGETHER: Final = 32
"""The number of evaluations that are stored by one command, which is applied in one turn of the loop."""
ON_THEIR_WAY_MAX: Final = 128
"""The maximum number of commands with plans in flight while the next plan is checked."""
TURN_SIZE: Final = 16
"""The number of allocations of plans checked in one turn of the loop."""


class _Submission(msgspec.Struct, frozen=True):
    outcome: Outcome
    answer: asyncio.Future[PlanResult]

    def accept(self, result: PlanResult) -> None:
        """Answer the waiting worker."""
        if not self.answer.done():
            self.answer.set_result(result)


class _Checked(msgspec.Struct, frozen=True):
    """A checked plan: its accepted part, the parts' commands, and the future of their results.

    Without parts nothing of the plan is stored, and it is answered after another command.
    """

    result: PlanResult
    parts: tuple[Plan, ...]
    written: asyncio.Future[tuple[Committed, ...]]
    staged: str = ""
    """The id under which the parts are staged, when they must appear together."""
    ahead: int = 0
    """The number of commands before the parts (`commands_ahead`)."""

    def results(self) -> tuple[Committed, ...]:
        """The results of the parts' commands, once they are stored."""
        return self.written.result()[self.ahead :]


class _Landed(msgspec.Struct, frozen=True):
    """A plan rejected by `apply`, before it is answered."""

    checked: _Checked
    submission: _Submission
    results: tuple[Committed, ...]


class PlanApplier:
    """The plan queue and the loop that processes it."""

    def __init__(
        self,
        *,
        replica: Replica,
        metrics: Metrics,
        limits: Mapping[str, LimitsOf],
        history: History | None = None,
        rejections: Rejections | None = None,
        on_dropped: Callable[[Plan, int], None] = lambda _, __: None,
    ) -> None:
        """`limits` returns the limits for the check, or nothing.

        `history` keeps states for replays, where the log does not; `rejections` counts the nodes that refuse plans.
        `on_dropped` is called with each plan that was counted as in flight and has failed, and an index after all those
        of the states to which it was added.
        """
        self._env = replica.env
        self._writer = replica.writer
        self._metrics = metrics
        self._limits = limits
        self.history = history
        self._rejections = rejections
        self._on_dropped = on_dropped
        self._queue: PlanQueue[_Submission] = PlanQueue()
        self._arrived = asyncio.Event()
        self._in_flight: scheduler.InFlightPlans | None = None
        """Made with the first plan: until then nothing that schedules need be loaded."""
        self._landed = asyncio.Event()
        self._unsettled: deque[_Landed] = deque()
        self._unanswered: dict[asyncio.Future[PlanResult], None] = {}
        """In the order of the plans, by which workers are refused: a set of objects goes by their addresses."""

    def __len__(self) -> int:
        return len(self._queue)

    def rejection_scores(self) -> dict[str, int]:
        """Recent refusals by node; empty while they are not counted."""
        return {} if self._rejections is None else self._rejections.scores(self._env.now())

    async def submit(self, plan: Plan, outcome: Outcome) -> PlanResult:
        """Store the plan; if all of it is accepted, the outcome of its evaluation is stored with it."""
        return await self.hand_in(plan, outcome)

    def hand_in(self, plan: Plan, outcome: Outcome) -> asyncio.Future[PlanResult]:
        """`submit` without waiting."""
        if len(self._queue) >= QUEUE_LIMIT:
            raise Unavailable("too many plans wait to be applied")
        submission = _Submission(outcome, asyncio.get_running_loop().create_future())
        self._unanswered[submission.answer] = None
        submission.answer.add_done_callback(self._unanswered.pop)
        self._queue.push(plan, submission)
        self._arrived.set()
        self._time("plan.submit", submission.answer)
        return submission.answer

    def _time(self, name: str, work: asyncio.Future[Any]) -> None:
        """Record how long the work takes from now on."""
        started = self._env.monotonic()
        work.add_done_callback(lambda _: self._metrics.time(name, self._env.monotonic() - started))

    def predicted_state(self) -> Snapshot:
        """The newest state including the plans in flight."""
        return self._writer.state if self._in_flight is None else self._in_flight.view(self._writer.state)

    async def run(self) -> None:
        """Apply plans until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._arrived.wait()
                    self._arrived.clear()
                    await self._work_off(group)
        finally:
            self._in_flight = None
            self._queue.drain()
            self._unsettled.clear()
            for answer in tuple(self._unanswered):
                refuse(answer, Unavailable("this server stopped leading"))

    async def _work_off(self, group: asyncio.TaskGroup) -> None:
        """Check queued plans and start storing each."""
        turn = 0
        while len(self._queue) or self._unsettled:
            if self._unsettled:
                group.create_task(self._settle(self._unsettled.popleft()))
                continue
            # A bound on the plans in flight, which are added to the state again after each of its changes.
            while self._in_flight is not None and len(self._in_flight) >= ON_THEIR_WAY_MAX:
                self._landed.clear()
                await self._landed.wait()
            plan, submission = self._queue.pop()
            size = size_of(plan)
            checked = await outcome_of(self._check(plan, submission.outcome, size))
            if isinstance(checked, Exception):
                refuse(submission.answer, checked)
                continue
            if isinstance(checked, PlanResult):
                submission.accept(checked)
            else:
                # Not awaited: the next plan is checked on top of this one while the disk writes it.
                checked.written.add_done_callback(partial(self._land, checked, submission))
            turn += size
            if turn >= TURN_SIZE:
                await self._writer.turns.next()
                turn = 0

    async def _check(self, plan: Plan, outcome: Outcome, size: int) -> _Checked | PlanResult:
        """Check a plan of this size and propose the accepted part; returns a result when there is none.

        The plan is checked again after each step back of the region's rules; only the last check is counted.
        """
        # Older servers store less of a plan. Quotas must count what the log will have: without the part of a device a
        # share counts as a whole one.
        rules = self._writer.rules()
        plan = as_stored(plan, rules)
        # Read together: `checked_at` below is the index of this state, and `apply` refuses changes since then.
        state, view = self._writer.state, self.predicted_state()
        started = self._env.monotonic()
        # A large check would hold the loop for longer than a turn; a thread costs a small one more than it takes.
        if size > THREAD_SIZE:
            result = await self._env.in_thread(scheduler.check_plan, view, plan, **self._limits)
            await self._writer.turns.next()
        else:
            result = scheduler.check_plan(view, plan, **self._limits)
        accepted = result.accepted
        size, seconds = size if accepted is plan else size_of(accepted), self._env.monotonic() - started
        if accepted.is_empty and not result.is_full:
            self._count(plan, result, size=size, seconds=seconds)
            if self._writer.rules().version < self._writer.state.last_rules:
                # Attempts plan by the rules of the last command: without a newer one the next would repeat this plan.
                return _Checked(result, (), self._writer.enqueue((KeepAlive(),)))
            return replace(result, refresh_index=max(result.refresh_index, state.index))
        evaluations = outcome_evaluations(outcome) if result.is_full else follow_ups(outcome)
        is_large = size > THREAD_SIZE or len(outcome.created) > EVALUATIONS_TOGETHER
        ahead, evaluations = commands_ahead(evaluations)
        parts = await self._env.in_thread(cut_plan, accepted) if is_large else cut_plan(accepted)
        mint = Mint(self._env.now(), self._env.uuid)
        staged = self._env.uuid() if accepted.is_indivisible and len(parts) > 1 else ""
        preempted = partial(preemption_evals, state, mint=mint)
        if staged:
            commands = staged_commands(parts, (*evaluations, *preempted(accepted)), staged, checked_at=state.index)
        else:
            commands = part_commands(parts, evaluations, follow_ups(outcome), preempted, checked_at=state.index)
        commands = [*ahead, *commands]  # the end of an evaluation is stored after all that it leaves
        prepared = await self._env.in_thread(self._writer.prepare, commands) if is_large else commands
        if self._rules_of(prepared) < rules.version:
            # During one of the waits an older server has come back: the log will have less than was checked.
            return await self._check(plan, outcome, size_of(plan))
        self._count(plan, result, size=size, seconds=seconds)
        # No wait between `enqueue` and `add`: a state with the plan stored would be taken for one without it.
        written = self._writer.enqueue(prepared)
        self._time("plan.apply", written)
        if self._in_flight is None:
            self._in_flight = scheduler.InFlightPlans()
        self._in_flight.add(self._writer.state, parts)
        return _Checked(result, parts, written, staged, len(ahead))

    def _rules_of(self, commands: Sequence[AnyCommand | Prepared]) -> int:
        """The oldest rules that commands are stored by: those of now, or of the moment at which one was encoded."""
        encoded = [each.command.rules_version for each in commands if isinstance(each, Prepared)]
        return min([self._writer.rules().version, *encoded])

    def _count(self, plan: Plan, result: PlanResult, *, size: int, seconds: float) -> None:
        """Count a checked plan and the nodes that refuse it; `size` is that of the accepted part."""
        observe_plan(self._metrics, plan, result, size=size, seconds=seconds)
        if self._rejections is not None and result.rejected_nodes:
            self._take_out(result, self._rejections)

    def _take_out(self, result: PlanResult, rejections: Rejections) -> None:
        """Make nodes ineligible that repeatedly refuse plans; one skipped now is detected again."""
        now = self._env.now()
        for node_id, reason in result.rejected_nodes.items():
            state = self._writer.state
            node = state.nodes.get(node_id)
            if (
                node is None
                or not is_ready(node)
                or reason.startswith((JOB_REFUSAL, QUOTA_REFUSAL))
                or not rejections.add(node_id, now)
            ):
                continue
            log.warning("node marked ineligible after repeated plan refusals: node=%s reason=%s", node_id, reason)
            command = SetNodeEligibility(
                node_id=node_id,
                eligibility=status.INELIGIBLE,
                event=NodeEvent(
                    message=INELIGIBLE_MESSAGE, subsystem="Scheduler", details={"reason": reason}, timestamp=now
                ),
                based_on=(expectation(state, "nodes", node_id),),
            )
            self._writer.enqueue((command,)).add_done_callback(lambda done: done.cancelled() or done.exception())

    def _land(self, checked: _Checked, submission: _Submission, written: asyncio.Future[tuple[Committed, ...]]) -> None:
        """Answer a plan that is stored or has failed."""
        # Taken away first, stored or not: the next view counts the plan from the state alone.
        if self._in_flight is not None:
            self._in_flight.remove(checked.parts)
        self._landed.set()
        error = written.exception()
        if isinstance(error, Exception):
            if checked.parts:
                self._tell_dropped(checked)
            refuse(submission.answer, error)
            return
        results = checked.results()
        if all(map(_is_applied, results)):
            submission.accept(_stored(checked.result, results))
        else:
            if results:
                self._tell_dropped(checked)
            self._unsettled.append(_Landed(checked, submission, results))
            self._arrived.set()

    def _tell_dropped(self, checked: _Checked) -> None:
        """Tell what waits for the capacity of a plan that has failed.

        Until now the plan was added to each state, also to the newest one, which has more commands than the plan's. An
        evaluation that was attempted on it waits for what comes after its index: so the news is that of one more
        command.
        """
        try:
            written = self._writer.enqueue((KeepAlive(),))
        except YurtError:
            return  # the term has ended

        def tell(done: asyncio.Future[tuple[Committed, ...]]) -> None:
            if not done.cancelled() and done.exception() is None:
                self._on_dropped(checked.result.accepted, self._writer.state.index)

        written.add_done_callback(tell)

    async def _settle(self, landed: _Landed) -> None:
        """Answer a partly rejected plan, after dropping its staged parts."""
        checked, answer, results = landed.checked, landed.submission.answer, landed.results
        if checked.staged:
            error = await outcome_of(self._writer.propose(DropStagedPlans(plan_id=checked.staged)))
            if isinstance(error, Exception):
                refuse(answer, error)
                return
            results = results[-1:]
        rejected = [part.result for part in results if isinstance(part.result, Rejected)]
        if all(each.kind == "stale" for each in rejected):
            self._metrics.count("plan.stale")
            landed.submission.accept(_partial(checked, results, rejected[0].message))
        else:
            other = next(each for each in rejected if each.kind != "stale")
            refuse(answer, Unavailable(f"the plan no longer fits the state: {other.message}"))


def commands_ahead(
    evaluations: tuple[Evaluation, ...],
) -> tuple[tuple[UpsertEvaluations, ...], tuple[Evaluation, ...]]:
    """The commands that store many blocked evaluations ahead of their plan, and the evaluations that stay with it.

    A system job leaves one for each node without room: thousands would be more than an entry of the log can hold, and
    their command would hold the loop for longer than a turn. They come before the end of the evaluation that created
    them. Without it, as after a refused plan or a crash, the next attempt replaces them: only the newest evaluation of
    a job and a node stays blocked (invariant B3).
    """
    if len(evaluations) <= EVALUATIONS_TOGETHER:
        return (), evaluations
    blocked = [each for each in evaluations[:-1] if each.status == status.EVAL_BLOCKED]
    ahead = set(map(id, blocked))
    return upserts(blocked), tuple(each for each in evaluations if id(each) not in ahead)


def upserts(evaluations: Sequence[Evaluation]) -> tuple[UpsertEvaluations, ...]:
    """The commands that store these evaluations, in their order."""
    starts = range(0, len(evaluations), EVALUATIONS_TOGETHER)
    return tuple(
        UpsertEvaluations(evaluations=tuple(evaluations[start : start + EVALUATIONS_TOGETHER])) for start in starts
    )


def staged_commands(
    parts: Sequence[Plan], evaluations: tuple[Evaluation, ...], staged: str, *, checked_at: int = 0
) -> list[AnyCommand]:
    """The commands of an atomic plan: all parts but the last are staged under the id `staged`."""
    first: list[AnyCommand] = [
        StagePlan(plan_id=staged, number=number, plan=part) for number, part in enumerate(parts[:-1])
    ]
    last = ApplyPlan(plan=parts[-1], evaluations=evaluations, staged=staged, parts=len(first), checked_at=checked_at)
    return [*first, last]


def part_commands(
    parts: Sequence[Plan],
    evaluations: tuple[Evaluation, ...],
    delayed: tuple[Evaluation, ...],
    preempted: Callable[[Plan], tuple[Evaluation, ...]],
    *,
    checked_at: int = 0,
) -> list[AnyCommand]:
    """The commands of a plan that may be applied in parts. Each depends on the one before it.

    The first one brings the delayed evaluations that allocations of any part may refer to, each one the evaluations of
    the jobs that it preempts, and the last one the end of the plan's evaluation.
    """
    commands: list[AnyCommand] = []
    follows: tuple[str, ...] = ()
    for number, part in enumerate(parts):
        is_first, is_last = number == 0, number == len(parts) - 1
        own = (*(delayed if is_first and not is_last else ()), *(evaluations if is_last else ()), *preempted(part))
        commands.append(ApplyPlan(plan=part, evaluations=own, checked_at=checked_at, follows=follows))
        follows = (part.placements[0].id,) if part.placements else follows
    return commands


def _stored(result: PlanResult, results: Sequence[Committed]) -> PlanResult:
    """The result of an applied plan."""
    index = max((part.index for part in results if _is_applied(part)), default=0)
    return replace(result, alloc_index=index, refresh_index=0 if result.is_full else max(result.refresh_index, index))


def _is_applied(part: Committed) -> bool:
    return isinstance(part.result, Applied)


def _partial(checked: _Checked, results: Sequence[Committed], reason: str) -> PlanResult:
    """The result of a plan with stale parts: its worker refreshes to the state that rejected them."""
    plan = checked.result.accepted
    whole = (plan,) if checked.staged else checked.parts
    outcomes = list(zip(whole, results, strict=True))
    applied = [part for part, committed in outcomes if _is_applied(committed)]
    nodes = {
        placement.node_id: reason
        for part, committed in outcomes
        if not _is_applied(committed)
        for placement in part.placements
    }
    nothing = Plan(eval_id=plan.eval_id, namespace=plan.namespace, job_id=plan.job_id)
    return PlanResult(
        accepted=_joined(nothing, applied),
        alloc_index=max((each.index for each in results if _is_applied(each)), default=0),
        refresh_index=results[-1].index,
        rejected_nodes={**checked.result.rejected_nodes, **(nodes or {"": reason})},
    )


def _joined(plan: Plan, parts: Sequence[Plan]) -> Plan:
    """One plan with the changes of all parts."""
    fields = ("placements", "in_place", "attributes", "stops", "preemptions", "deployment_updates")
    return replace(plan, **{name: tuple(chain.from_iterable(getattr(part, name) for part in parts)) for name in fields})


def refuse(answer: asyncio.Future[PlanResult], error: Exception) -> None:
    """Fail the waiting worker."""
    if not answer.done():
        answer.set_exception(error)


def outcome_evaluations(outcome: Outcome) -> tuple[Evaluation, ...]:
    """All evaluations stored with the end of an evaluation."""
    reblock = (outcome.reblock,) if outcome.reblock is not None else (outcome.evaluation,)
    return (*outcome.created, *reblock)


def follow_ups(outcome: Outcome) -> tuple[Evaluation, ...]:
    """Delayed evaluations that accepted parts of a plan may already refer to."""
    return tuple(evaluation for evaluation in outcome.created if evaluation.wait_until)


def preemption_evals(state: Snapshot, plan: Plan, *, mint: Mint) -> tuple[Evaluation, ...]:
    """One evaluation for each job with preempted allocations."""
    allocs = [alloc for stop in plan.preemptions if (alloc := state.allocs.get(stop.id)) is not None]
    jobs = [job for alloc in allocs if (job := state.jobs.get((alloc.namespace, alloc.job_id))) is not None]
    return evaluations_of(jobs, status.TRIGGER_PREEMPTION, mint)
