"""A scheduler worker: has evaluations scheduled on a snapshot, submits the plans, tries again on what was refused.

It takes up to `BATCH` ready evaluations at once. The broker never hands out two of one job, so each is scheduled on
the same snapshot with the plans of those before it laid over, and all plans are on their way into the log together:
one append then serves many. An evaluation of which parts were refused is scheduled anew alone, on a newer state.

Every delivery gets exactly one answer: ack when the evaluation's end is stored, nack for anything else, shutdown
included.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, NamedTuple

from yurt import scheduler
from yurt.broker import Delivery
from yurt.runtime.env import Env
from yurt.sdk.errors import YurtError
from yurt.sdk.value import replace
from yurt.server.eval_queue import EvalQueue
from yurt.server.log_writer import LogWriter
from yurt.server.metrics import Metrics
from yurt.server.plan_applier import PlanApplier, outcome_evaluations
from yurt.server.replay import ATTEMPTS_KEPT
from yurt.server.waiting import StateWaiter
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.commands import UpsertEvaluations
from yurt.structs.evaluation import AttemptRecord, Evaluation
from yurt.structs.plan import Outcome, Plan, PlanResult

log = logging.getLogger(__name__)

QUEUES: Final = status.JOB_TYPES
INDEX_WAIT_S: Final = 5.0
BEHIND_WAIT_S: Final = 50.0
BATCH: Final = 64
TOGETHER: Final = 16
"""Plans of a batch that are submitted at once: enough to share an append, few enough that the first is not kept."""
BATCH_COUNT: Final = 2_000
"""A batch ends with the evaluation that brings its jobs to so many allocations: nobody waits long for a big one."""
THREAD_COUNT: Final = 500
"""Jobs of more allocations are scheduled beside the loop, not in it."""


class _View(NamedTuple):
    """What an attempt looks at, and how a replay gets there."""

    state: Snapshot
    ahead: int
    after: str = ""


class Worker:
    """One of the loops that schedule."""

    def __init__(
        self,
        *,
        env: Env,
        queue: EvalQueue,
        applier: PlanApplier,
        writer: LogWriter,
        waiter: StateWaiter,
        metrics: Metrics,
    ) -> None:
        self._env = env
        self._queue = queue
        self._applier = applier
        self._writer = writer
        self._waiter = waiter
        self._metrics = metrics
        self._retrying = asyncio.Lock()

    async def run(self) -> None:
        """Serve evaluations until cancelled; what schedules is loaded while there is nothing to do yet."""
        if not scheduler.is_loaded():
            await asyncio.to_thread(scheduler.load)
        while True:
            await self._serve(self._batch(await self._queue.dequeue(QUEUES)))

    def _batch(self, first: Delivery) -> list[Delivery]:
        """With the first evaluation the others that are ready."""
        batch = [first]
        count = self._count(first.evaluation)
        while len(batch) < BATCH and count < BATCH_COUNT:
            delivery = self._queue.dequeue_now(QUEUES)
            if delivery is None:
                break
            batch.append(delivery)
            count += self._count(delivery.evaluation)
        return batch

    async def _serve(self, batch: list[Delivery]) -> None:
        """Schedule one after another, and let each finish by itself; returns when all have their answer."""
        unanswered = {delivery.evaluation.id: delivery for delivery in batch}
        index = max(delivery.evaluation.modify_index for delivery in batch)
        try:
            await self._waiter.wait_index(index, timeout_s=INDEX_WAIT_S)
            async with asyncio.TaskGroup() as group:
                await self._start_all(group, batch, unanswered=unanswered)
        finally:
            for delivery in unanswered.values():
                self._queue.nack(delivery)
        await self._waiter.wait_index(index, timeout_s=BEHIND_WAIT_S)

    async def _start_all(
        self, group: asyncio.TaskGroup, batch: list[Delivery], *, unanswered: dict[str, Delivery]
    ) -> None:
        """Make each one's first attempt on the plans of those before it, and submit some together."""
        view = self._view()
        together = asyncio.Event()
        for number, delivery in enumerate(batch, 1):
            if delivery.evaluation.modify_index <= view.state.index:
                started = self._env.monotonic()
                view, first = await self._first(delivery.evaluation, view, is_alone=len(batch) == 1)
                group.create_task(
                    self._finish(delivery, first, started=started, unanswered=unanswered, together=together)
                )
            if number % TOGETHER == 0 or number == len(batch):
                together.set()
                together = asyncio.Event()
            await asyncio.sleep(0)

    async def _first(
        self, evaluation: Evaluation, view: _View, *, is_alone: bool
    ) -> tuple[_View, scheduler.Attempt | Exception]:
        """The first attempt, and the view with its plan laid over."""
        try:
            made = await self._schedule(view, evaluation, 0)
            if is_alone:
                return view, made
            laid = scheduler.foresee(view.state, (made.plan,))
            return view._replace(state=laid, after=evaluation.id), made
        except Exception as error:
            return view, error

    async def _finish(
        self,
        delivery: Delivery,
        first: scheduler.Attempt | Exception,
        *,
        started: float,
        unanswered: dict[str, Delivery],
        together: asyncio.Event,
    ) -> None:
        """From the first attempt to the answer, once the plans of its company are made."""
        eval_id = delivery.evaluation.id
        await together.wait()
        try:
            if isinstance(first, Exception):
                raise first
            await self._process(delivery, first)
        except Exception as error:
            self._metrics.count("worker.failed")
            trace = None if isinstance(error, YurtError) else error
            log.error("evaluation %s failed, it will be tried again: %s", eval_id, error, exc_info=trace)
            self._queue.nack(unanswered.pop(eval_id))
        else:
            self._metrics.count("worker.evaluations")
            self._metrics.time("worker.invoke", self._env.monotonic() - started)
            self._queue.ack(unanswered.pop(eval_id))

    async def _process(self, delivery: Delivery, first: scheduler.Attempt) -> None:
        """Submit the first plan; what was refused is tried again alone."""
        refused = await self._carry_out(delivery, first)
        if refused is not None:
            async with self._retrying:
                await self._try_again(delivery, first, refused)

    async def _try_again(self, delivery: Delivery, made: scheduler.Attempt, refused: PlanResult) -> None:
        evaluation = delivery.evaluation
        limit = scheduler.max_attempts(evaluation.type)
        tries = 1 if refused.accepted.is_empty else 0
        while tries < limit:
            await self._waiter.wait_index(refused.refresh_index, timeout_s=INDEX_WAIT_S)
            earlier = made.outcome.evaluation.attempts
            made = await self._schedule(self._view(), evaluation, tries, earlier=earlier)
            result = await self._carry_out(delivery, made)
            if result is None:
                return
            refused = result
            tries = tries + 1 if refused.accepted.is_empty else 0
        await self._give_up(evaluation, made.outcome)

    async def _carry_out(self, delivery: Delivery, made: scheduler.Attempt) -> PlanResult | None:
        """Store the end of the evaluation with its plan; the result when parts of the plan were refused."""
        if made.plan.is_empty:
            await self._writer.propose(UpsertEvaluations(evaluations=outcome_evaluations(made.outcome)))
            return None
        result = await self._submit(delivery, replace(made.plan, eval_token=delivery.token), made.outcome)
        return None if result.is_full else result

    def _view(self) -> _View:
        """The newest state, with what is on its way laid over it."""
        if self._applier.history is not None:
            self._applier.history.keep(self._writer.state, batches=self._writer.batches)
        return _View(self._applier.foreseen(), self._writer.last_index)

    async def _schedule(
        self, view: _View, evaluation: Evaluation, tries: int, *, earlier: tuple[AttemptRecord, ...] = ()
    ) -> scheduler.Attempt:
        seed, now, state = self._seed(), self._env.now(), view.state
        limits = self._applier.limits
        attempt = partial(scheduler.attempt, state, evaluation, now=now, seed=seed, attempt=tries, **limits)
        made = await asyncio.to_thread(attempt) if self._count(evaluation) > THREAD_COUNT else attempt()
        record = AttemptRecord(
            seed=f"{seed:032x}", state_index=state.index, now=now, number=tries, ahead=view.ahead, after=view.after
        )
        return _recorded(made, (*earlier, record)[-ATTEMPTS_KEPT:])

    def _count(self, evaluation: Evaluation) -> int:
        job = self._writer.state.jobs.get((evaluation.namespace, evaluation.job_id))
        return sum(group.count for group in job.task_groups) if job is not None else 0

    async def _submit(self, delivery: Delivery, plan: Plan, outcome: Outcome) -> PlanResult:
        broker = self._queue.broker
        broker.pause_nack(delivery.evaluation.id, delivery.token)
        try:
            return await self._applier.submit(plan, outcome)
        finally:
            broker.resume_nack(delivery.evaluation.id, delivery.token, now=self._env.now())

    async def _give_up(self, evaluation: Evaluation, last: Outcome | None) -> None:
        outcome = scheduler.exhausted(
            evaluation,
            seed=self._seed(),
            now=self._env.now(),
            snapshot_index=self._writer.state.index,
            last=last,
        )
        await self._writer.propose(UpsertEvaluations(evaluations=outcome_evaluations(outcome)))

    def _seed(self) -> int:
        return int(self._env.uuid().replace("-", ""), 16)


def _recorded(made: scheduler.Attempt, records: tuple[AttemptRecord, ...]) -> scheduler.Attempt:
    """The attempt with what it was made from stored in its evaluation."""
    outcome = made.outcome
    ended = replace(outcome.evaluation, attempts=records)
    reblock = None if outcome.reblock is None else replace(outcome.reblock, attempts=records)
    return made._replace(outcome=replace(outcome, evaluation=ended, reblock=reblock))
