"""Where workers get evaluations and leave what came of them: the leader's own queues, or the leader from afar.

The leader hands evaluations to the workers of other servers only when more are ready than its own will soon take: what
several workers plan side by side may have to be planned again. A delivery's token is good until it has its answer, its
time is over, or the leader changes; with one that is no longer good nothing is stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from yurt.broker import Delivery
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict
from yurt.sdk.value import Value, replace
from yurt.server.log_writer import LogWriter
from yurt.server.plan_applier import PlanApplier
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.commands import UpsertEvaluations
from yurt.structs.evaluation import Evaluation
from yurt.structs.packed import packed
from yurt.structs.plan import Outcome, Plan

if TYPE_CHECKING:
    from yurt.server.eval_queue import EvalQueue
    from yurt.server.peers import PeerPort

QUEUES: Final = status.JOB_TYPES
BATCH: Final = 64
BATCH_COUNT: Final = 2_000
"""A batch ends with the evaluation that brings its jobs to so many allocations: nobody waits long for a big one."""
POLL_S: Final = 0.5
"""How long a worker elsewhere waits at the leader for something to do."""


class View(NamedTuple):
    """What an attempt looks at, and how a replay gets there."""

    state: Snapshot
    ahead: int
    after: str = ""


class PlanReply(Value):
    """What became of a plan: whether all of it, or nothing, was accepted; a state to look at when it was not all."""

    is_full: bool
    is_empty: bool = False
    refresh_index: int = 0


class Work(Protocol):
    """What a worker works on."""

    async def take(self) -> list[Delivery]:
        """Evaluations of different jobs, as soon as there are some."""
        ...

    async def ack(self, delivery: Delivery) -> None:
        """The evaluation's end is stored."""
        ...

    async def nack(self, delivery: Delivery) -> None:
        """The evaluation must be tried again."""
        ...

    async def submit(self, delivery: Delivery, plan: Plan, outcome: Outcome) -> PlanReply:
        """Store a plan, with the evaluation's end when all of it is accepted."""
        ...

    async def store(self, delivery: Delivery, evaluations: tuple[Evaluation, ...]) -> None:
        """Store the evaluation's end."""
        ...

    def view(self) -> View:
        """What to look at."""
        ...


class LeaderWork:
    """The queues of this server, while it leads."""

    def __init__(self, *, env: Env, queue: EvalQueue, applier: PlanApplier, writer: LogWriter) -> None:
        self._env = env
        self._queue = queue
        self._applier = applier
        self._writer = writer
        self.spare = BATCH
        """More ready evaluations than this are handed to other servers' workers."""

    async def take(self) -> list[Delivery]:
        """A batch for a worker of this server."""
        return self._batch(await self._queue.dequeue(QUEUES))

    async def take_spare(self, timeout_s: float) -> list[Delivery]:
        """A batch for a worker elsewhere; nothing when no more are ready than this server's workers will soon take."""
        first = await self._queue.dequeue_above(self.spare, QUEUES, timeout_s=timeout_s)
        return self._batch(first) if first is not None else []

    async def ack(self, delivery: Delivery) -> None:
        """The worker is done."""
        self._queue.ack(delivery)

    async def nack(self, delivery: Delivery) -> None:
        """The worker failed."""
        self._queue.nack(delivery)

    async def submit(self, delivery: Delivery, plan: Plan, outcome: Outcome) -> PlanReply:
        """Check and store a plan; raises Conflict for a delivery that is no longer the worker's."""
        async with self._held(delivery):
            result = await self._applier.submit(replace(plan, eval_token=delivery.token), outcome)
        return PlanReply(is_full=result.is_full, is_empty=result.accepted.is_empty, refresh_index=result.refresh_index)

    async def store(self, delivery: Delivery, evaluations: tuple[Evaluation, ...]) -> None:
        """Store the evaluation's end; raises Conflict for a delivery that is no longer the worker's."""
        async with self._held(delivery):
            await self._writer.propose(UpsertEvaluations(evaluations=evaluations))

    def view(self) -> View:
        """The newest state, with what is on its way laid over it."""
        if self._applier.history is not None:
            self._applier.history.keep(self._writer.state, batches=self._writer.batches)
        return View(self._applier.foreseen(), self._writer.last_index)

    @asynccontextmanager
    async def _held(self, delivery: Delivery) -> AsyncIterator[None]:
        """The worker keeps the evaluation while it waits for others."""
        broker, eval_id = self._queue.broker, delivery.evaluation.id
        if not broker.pause_nack(eval_id, delivery.token):
            raise Conflict(f"evaluation {eval_id} is no longer this worker's")
        try:
            yield
        finally:
            broker.resume_nack(eval_id, delivery.token, now=self._env.now())

    def _batch(self, first: Delivery) -> list[Delivery]:
        """With the first evaluation the others that are ready."""
        batch = [first]
        count = job_count(self._writer.state, first.evaluation)
        while len(batch) < BATCH and count < BATCH_COUNT:
            delivery = self._queue.dequeue_now(QUEUES)
            if delivery is None:
                break
            batch.append(delivery)
            count += job_count(self._writer.state, delivery.evaluation)
        return batch


class FarWork:
    """The queues of the leader, seen from a server that follows; raises Unavailable while it cannot be reached."""

    def __init__(self, leader: Callable[[], PeerPort], state: Callable[[], Snapshot]) -> None:
        self._leader = leader
        self._state = state

    async def take(self) -> list[Delivery]:
        """What the leader has to spare, perhaps nothing; returns in time."""
        return list(await self._leader().take_work(timeout_s=POLL_S))

    async def ack(self, delivery: Delivery) -> None:
        """The evaluation's end is stored."""
        await self._leader().finish_work(delivery, is_done=True)

    async def nack(self, delivery: Delivery) -> None:
        """The evaluation must be tried again."""
        await self._leader().finish_work(delivery, is_done=False)

    async def submit(self, delivery: Delivery, plan: Plan, outcome: Outcome) -> PlanReply:
        """Have the leader check and store a plan."""
        return await self._leader().submit_plan(delivery, packed(plan), outcome)

    async def store(self, delivery: Delivery, evaluations: tuple[Evaluation, ...]) -> None:
        """Have the leader store the evaluation's end."""
        await self._leader().store_evaluations(delivery, evaluations)

    def view(self) -> View:
        """This server's state."""
        state = self._state()
        return View(state, state.index)


def job_count(state: Snapshot, evaluation: Evaluation) -> int:
    """How many allocations the evaluation's job asks for."""
    job = state.jobs.get((evaluation.namespace, evaluation.job_id))
    return sum(group.count for group in job.task_groups) if job is not None else 0
