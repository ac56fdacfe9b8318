"""A scheduler worker: schedules evaluations on a snapshot, submits plans, and retries refused parts.

It takes some ready evaluations at once. The broker never hands out two of one job, so each is scheduled on
the same snapshot with the plans of those before it laid over, and all plans are on their way into the log together:
one append then serves many. An evaluation with refused parts is scheduled again alone, on a newer state.

Every delivery gets exactly one answer: ack when the evaluation's end is stored, nack for anything else, shutdown
included.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from yurt import scheduler
from yurt.broker import Delivery
from yurt.rules.bounds import is_costly
from yurt.runtime.metrics import Metrics
from yurt.runtime.supervise import outcome_of
from yurt.sdk.errors import Reason, Unavailable, YurtError
from yurt.sdk.value import replace
from yurt.server.log.replica import Replica
from yurt.server.peers import PlanReply
from yurt.server.scheduling.plan_applier import outcome_evaluations
from yurt.server.scheduling.replay import ATTEMPTS_MAX
from yurt.server.scheduling.work_sources import Made, SchedulingView, Work, evaluation_size
from yurt.state import Snapshot
from yurt.structs.evaluation import AttemptRecord, Evaluation
from yurt.structs.plan import Outcome

if TYPE_CHECKING:
    from yurt.scheduler.capacity.limits import LimitsOf

log = logging.getLogger(__name__)

INDEX_WAIT_S: Final = 5.0
BEHIND_WAIT_S: Final = 50.0
TAKE_RETRY_FIRST_S, TAKE_RETRY_MAX_S = 0.02, 10.0
OTHER_SCHEDULER_WAIT_S: Final = 30.0
"""The seconds for which a worker avoids a leader whose scheduler has another version."""
NACK_LIMIT_S: Final = 1.0
TOGETHER: Final = 16
"""Plans of a batch submitted at once: enough to share an append, few enough not to delay the first."""
THREAD_COUNT: Final = 500
"""The number of a job's allocations from which its attempts run in a thread."""


class _FirstAttempt(msgspec.Struct, frozen=True):
    """A delivery with its first attempt or the error, and its start time."""

    delivery: Delivery
    first: scheduler.Attempt | Exception
    started: float


class Worker:
    """One scheduling loop."""

    def __init__(self, work: Work, replica: Replica, *, metrics: Metrics, limits: Mapping[str, LimitsOf]) -> None:
        self._work = work
        self._replica = replica
        self._env = replica.env
        self._waiter = replica.waiter
        self._metrics = metrics
        self._limits = limits
        self._retrying = asyncio.Lock()
        self.serving = asyncio.Lock()
        """Held while evaluations are with this worker: it can be cancelled without a loss while nobody holds it."""

    async def run(self) -> None:
        """Process evaluations until cancelled; loads the scheduler while idle."""
        await self._load()
        await self._env.in_thread(self._replica.state.columns_maker())
        while True:
            async with self.serving:
                pass  # Who waits to end this worker has its turn here, while no evaluations are with it.
            started = self._env.monotonic()
            batch = await self._work.take()
            self._since("worker.dequeue_eval", started)
            async with self.serving:
                await self._serve(batch)

    async def run_afar(self, may_take: Callable[[], Awaitable[None]]) -> None:
        """Process another server's evaluations until cancelled, whenever `may_take` returns and it is reachable."""
        pause_s = TAKE_RETRY_FIRST_S
        while True:
            await may_take()
            fetched = await self._take_and_serve()
            if fetched is None:
                pause_s = TAKE_RETRY_FIRST_S
                continue
            if fetched.reason is Reason.SCHEDULER_MISMATCH:
                log.warning("no evaluations are fetched for %g s: %s", OTHER_SCHEDULER_WAIT_S, fetched)
                await self._env.sleep(OTHER_SCHEDULER_WAIT_S)
                continue
            log.debug("no evaluations can be fetched: %s", fetched)
            await self._env.sleep(pause_s)
            pause_s = min(pause_s * 2, TAKE_RETRY_MAX_S)

    async def _take_and_serve(self) -> YurtError | None:
        """One round; why no evaluations could be fetched, or None."""
        async with self.serving:
            fetched = await outcome_of(self._work.take())
            if isinstance(fetched, YurtError):
                return fetched
            if isinstance(fetched, Exception):
                raise fetched
            if fetched:
                await self._load()
                await self._serve(fetched)
        return None

    async def _load(self) -> None:
        if not scheduler.is_loaded():
            await self._env.in_thread(scheduler.load)

    async def _serve(self, batch: list[Delivery]) -> None:
        """Attempt each in turn, and let each finish independently; returns when all are answered."""
        unanswered = {delivery.evaluation.id: delivery for delivery in batch}
        index = max(delivery.needed_index for delivery in batch)
        # A follower may be behind the evaluations that it was given: their jobs must be in its state, and what earlier
        # evaluations of these jobs have placed, or it would be placed twice.
        try:
            started = self._env.monotonic()
            await self._waiter.wait_index(index, timeout_s=INDEX_WAIT_S)
            self._since("worker.wait_for_index", started)
            async with asyncio.TaskGroup() as group:
                await self._start_all(group, batch, unanswered=unanswered)
        finally:
            for delivery in tuple(unanswered.values()):
                await self._nack(delivery)
        await self._waiter.wait_index(index, timeout_s=BEHIND_WAIT_S)

    async def _start_all(
        self, group: asyncio.TaskGroup, batch: list[Delivery], *, unanswered: dict[str, Delivery]
    ) -> None:
        """Make each first attempt on top of the earlier plans, and submit some together."""
        view, seed = self._work.view(), self._seed()
        series = scheduler.Series(view.state, seed=seed, **self._limits)
        company: list[_FirstAttempt] = []
        for number, delivery in enumerate(batch, 1):
            if delivery.needed_index <= view.state.index:
                started = self._env.monotonic()
                record = self._record(view, seed)
                attempt = partial(series.attempt, delivery.evaluation, now=record.now)
                first = await outcome_of(self._schedule(delivery.evaluation, attempt, record))
                # An evaluation that waits again may not store this attempt (`EvalQueue.block_again`), which a replay of
                # the next one would need. Without a plan it does not matter to that one.
                if not isinstance(first, Exception) and not first.plan.is_empty:
                    view = replace(view, after=delivery.evaluation.id)
                company.append(_FirstAttempt(delivery, first, started))
            # Some plans at a time share a write to the disk; more would keep the first of them waiting.
            if company and (number % TOGETHER == 0 or number == len(batch)):
                group.create_task(self._finish(company, unanswered))
                company = []
            await asyncio.sleep(0)

    async def _finish(self, company: Sequence[_FirstAttempt], unanswered: dict[str, Delivery]) -> None:
        """Finish deliveries from their first attempts; refused plans are retried separately."""
        refused: list[tuple[_FirstAttempt, PlanReply]] = []
        ended: list[_FirstAttempt] = []
        for work, reply in await self._carried_out(company):
            if isinstance(reply, Exception):
                await self._fail(unanswered.pop(work.delivery.evaluation.id), reply)
            elif reply.is_full:
                ended.append(work)
            else:
                refused.append((work, reply))
        await self._end(ended, unanswered)
        for work, reply in refused:
            error = await outcome_of(self._again(work, reply))
            if error is not None:
                await self._fail(unanswered.pop(work.delivery.evaluation.id), error)
            else:
                await self._end((work,), unanswered)

    async def _carried_out(self, company: Sequence[_FirstAttempt]) -> list[tuple[_FirstAttempt, PlanReply | Exception]]:
        """The result of each plan, where there is one."""
        made = [
            Made(each.delivery, first.plan, first.outcome)
            for each in company
            if not isinstance(first := each.first, Exception)
        ]
        started = self._env.monotonic()
        replies = iter(await self._work.carry_out(made))
        self._since("worker.submit_plan", started)
        return [(each, each.first if isinstance(each.first, Exception) else next(replies)) for each in company]

    async def _again(self, work: _FirstAttempt, refused: PlanReply) -> None:
        """Retry separately until the evaluation ends."""
        assert not isinstance(work.first, Exception)
        # One at a time: retries of the same conflict on fresh states would refuse each other again.
        async with self._retrying:
            await self._try_again(work.delivery, work.first, refused)

    async def _fail(self, delivery: Delivery, error: Exception) -> None:
        self._metrics.count("worker.failed")
        trace = None if isinstance(error, YurtError) else error
        log.error(
            "evaluation failed, it will be tried again: eval=%s error=%s", delivery.evaluation.id, error, exc_info=trace
        )
        await self._nack(delivery)

    async def _end(self, ended: Sequence[_FirstAttempt], unanswered: dict[str, Delivery]) -> None:
        if not ended:
            return
        now = self._env.monotonic()
        self._metrics.count("worker.evaluations", len(ended))
        for work in ended:
            self._metrics.time("worker.invoke", now - work.started)
        deliveries = [unanswered.pop(work.delivery.evaluation.id) for work in ended]
        try:
            await self._work.ack(*deliveries)
        except YurtError as error:
            log.debug("the leader does not hear of the end of some evaluations: %s", error)
        self._since("worker.send_ack", now)

    def _since(self, name: str, started: float) -> None:
        """Record how long something took."""
        self._metrics.time(name, self._env.monotonic() - started)

    async def _nack(self, delivery: Delivery) -> None:
        """Return an evaluation, also during cancellation; otherwise the leader's timer expires."""
        try:
            async with self._env.timeout(NACK_LIMIT_S):
                await self._work.nack(delivery)
        except (YurtError, TimeoutError) as error:
            log.debug("evaluation cannot be returned: eval=%s error=%s", delivery.evaluation.id, error)

    async def _try_again(self, delivery: Delivery, made: scheduler.Attempt, refused: PlanReply) -> None:
        evaluation = delivery.evaluation
        limit = scheduler.max_attempts(evaluation.type)
        tries = 1 if refused.is_empty else 0
        while tries < limit:
            if not await self._waiter.wait_index(refused.refresh_index, timeout_s=INDEX_WAIT_S):
                # Without the accepted part of the last plan, the next one would place it again.
                raise Unavailable(f"this server has not reached index {refused.refresh_index}, of the refused plan")
            view, seed = self._work.view(), self._seed()
            record = self._record(view, seed, tries)
            attempt = partial(
                scheduler.attempt, view.state, evaluation, now=record.now, seed=seed, attempt=tries, **self._limits
            )
            made = await self._schedule(evaluation, attempt, *made.outcome.evaluation.attempts, record)
            (reply,) = await self._work.carry_out((Made(delivery, made.plan, made.outcome),))
            if isinstance(reply, Exception):
                raise reply
            if reply.is_full:
                return
            refused = reply
            tries = tries + 1 if refused.is_empty else 0
        await self._give_up(delivery, made.outcome)

    async def _schedule(
        self, evaluation: Evaluation, attempt: Callable[[], scheduler.Attempt], *records: AttemptRecord
    ) -> scheduler.Attempt:
        """Make an attempt, the last one of those recorded."""
        state = self._replica.state
        job = state.jobs.get((evaluation.namespace, evaluation.job_id))
        is_large = (
            evaluation_size(state, evaluation) > THREAD_COUNT
            or (job is not None and is_costly(job))
            or self._may_reclaim(state, evaluation.namespace)
        )
        started = self._env.monotonic()
        made = await self._env.in_thread(attempt) if is_large else attempt()
        self._since(f"worker.invoke_scheduler.{evaluation.type}", started)
        return _recorded(made, records[-ATTEMPTS_MAX:])

    def _may_reclaim(self, state: Snapshot, namespace: str) -> bool:
        """Whether something is guaranteed to a namespace: a search for what to reclaim takes longer than a turn."""
        limits = self._limits.get("limits")
        if limits is None or not len(state.quotas):
            return False
        from yurt.scheduler.capacity.limits import region_of
        from yurt.state.quota_tree import tree_of

        tree = tree_of(state, region_of(limits))
        return tree is not None and bool(tree.guaranteed(namespace))

    def _record(self, view: SchedulingView, seed: int, tries: int = 0) -> AttemptRecord:
        """The record of the inputs of an attempt that starts now."""
        return AttemptRecord(
            seed=f"{seed:032x}",
            state_index=view.state.index,
            now=self._env.now(),
            number=tries,
            ahead=view.ahead,
            after=view.after,
        )

    async def _give_up(self, delivery: Delivery, last: Outcome | None) -> None:
        outcome = scheduler.exhausted(
            delivery.evaluation,
            seed=self._seed(),
            now=self._env.now(),
            snapshot_index=self._replica.state.index,
            last=last,
        )
        await self._work.store(delivery, outcome_evaluations(outcome))

    def _seed(self) -> int:
        return int(self._env.uuid().replace("-", ""), 16)


def _recorded(made: scheduler.Attempt, records: tuple[AttemptRecord, ...]) -> scheduler.Attempt:
    """The attempt with its inputs recorded in its evaluation."""
    outcome = made.outcome
    ended = replace(outcome.evaluation, attempts=records)
    reblock = None if outcome.reblock is None else replace(outcome.reblock, attempts=records)
    return made._replace(outcome=replace(outcome, evaluation=ended, reblock=reblock))
