"""A scheduler worker: has evaluations scheduled on a snapshot, submits the plans, tries again on what was refused.

Every delivery gets exactly one answer: ack when the evaluation's end is stored, nack for anything else, shutdown
included.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from yurt import scheduler
from yurt.broker import Delivery
from yurt.runtime.env import Env
from yurt.sdk.errors import YurtError
from yurt.sdk.value import replace
from yurt.server.eval_queue import EvalQueue
from yurt.server.log_writer import LogWriter
from yurt.server.metrics import Metrics
from yurt.server.plan_applier import PlanApplier, outcome_evaluations
from yurt.server.waiting import StateWaiter
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.commands import UpsertEvaluations
from yurt.structs.evaluation import Evaluation
from yurt.structs.plan import Outcome, Plan, PlanResult

log = logging.getLogger(__name__)

QUEUES: Final = status.JOB_TYPES
INDEX_WAIT_S: Final = 5.0
BEHIND_WAIT_S: Final = 50.0
THREAD_COUNT: Final = 500
"""Jobs of more allocations are scheduled beside the loop, not in it."""


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

    async def run(self) -> None:
        """Serve evaluations until cancelled."""
        while True:
            delivery = await self._queue.dequeue(QUEUES)
            try:
                index = delivery.evaluation.modify_index
                if not await self._waiter.wait_index(index, timeout_s=INDEX_WAIT_S):
                    self._queue.nack(delivery)
                    await self._waiter.wait_index(index, timeout_s=BEHIND_WAIT_S)
                    continue
                started = self._env.monotonic()
                await self._process(delivery)
            except Exception as error:
                self._metrics.count("worker.failed")
                trace = None if isinstance(error, YurtError) else error
                eval_id = delivery.evaluation.id
                log.error("evaluation %s failed, it will be tried again: %s", eval_id, error, exc_info=trace)
                self._queue.nack(delivery)
            except asyncio.CancelledError:
                self._queue.nack(delivery)
                raise
            else:
                self._metrics.count("worker.evaluations")
                self._metrics.time("worker.invoke", self._env.monotonic() - started)
                self._queue.ack(delivery)

    async def _process(self, delivery: Delivery) -> None:
        evaluation = delivery.evaluation
        limit = scheduler.max_attempts(evaluation.type)
        tries = 0
        outcome: Outcome | None = None
        while tries < limit:
            plan, outcome = await self._schedule(self._writer.state, evaluation, tries)
            if plan.is_empty:
                await self._writer.propose(UpsertEvaluations(evaluations=outcome_evaluations(outcome)))
                return
            result = await self._submit(delivery, replace(plan, eval_token=delivery.token), outcome)
            if result.is_full:
                return
            tries = 0 if not result.accepted.is_empty else tries + 1
            await self._waiter.wait_index(result.refresh_index, timeout_s=INDEX_WAIT_S)
        await self._give_up(evaluation, outcome)

    async def _schedule(self, snapshot: Snapshot, evaluation: Evaluation, tries: int) -> tuple[Plan, Outcome]:
        seed = self._seed()
        now = self._env.now()
        job = snapshot.jobs.get((evaluation.namespace, evaluation.job_id))
        count = sum(group.count for group in job.task_groups) if job is not None else 0
        if count > THREAD_COUNT:
            made = await asyncio.to_thread(scheduler.attempt, snapshot, evaluation, now=now, seed=seed, attempt=tries)
        else:
            made = scheduler.attempt(snapshot, evaluation, now=now, seed=seed, attempt=tries)
        return made.plan, made.outcome

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
