"""Sources of evaluations and receivers of results: the leader's own queues, or a remote leader.

The leader hands evaluations to the workers of other servers only when more are ready than its own will soon take: what
several workers plan side by side may have to be planned again. A delivery's token is good until it has its answer, its
time is over, or the leader changes; with an expired one nothing is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from yurt.broker import Delivery
from yurt.runtime.env import Env
from yurt.runtime.supervise import outcome_of
from yurt.sdk.errors import Conflict, YurtError
from yurt.sdk.value import replace
from yurt.server.failures import is_no_leader, is_passing
from yurt.server.log.log_writer import Committed, LogWriter, error_of
from yurt.server.peers import PeerPort, PlanReply
from yurt.server.scheduling.plan_applier import EVALUATIONS_TOGETHER, PlanApplier, outcome_evaluations
from yurt.server.scheduling.retries import repeated
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.commands import Rejected, UpsertEvaluations
from yurt.structs.commands.packed import packed
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import Outcome, Plan, PlanResult

if TYPE_CHECKING:
    from yurt.server.scheduling.eval_queue import EvalQueue

QUEUES: Final = status.JOB_TYPES
BATCH: Final = 64
BATCH_COUNT: Final = 2_000
"""A batch is closed by the evaluation that brings it to this many allocations, so that none waits long."""
SCHEDULER_VERSION: Final = 1
"""The version of the scheduler; raised when servers with the old one must not make plans for a leader with the new
one."""
OTHER_SCHEDULER: Final = "scheduler version mismatch"
POLL_S: Final = 0.5
"""The seconds for which another server's worker waits at the leader for evaluations."""


class SchedulingView(msgspec.Struct, frozen=True):
    """The state for an attempt, and how a replay reconstructs it."""

    state: Snapshot
    ahead: int
    after: str = ""


class Made(NamedTuple):
    """A worker's result for a delivery: a plan, possibly empty, and the end of the evaluation."""

    delivery: Delivery
    plan: Plan
    outcome: Outcome


class Work(Protocol):
    """A worker's source of evaluations."""

    async def take(self) -> list[Delivery]:
        """Evaluations of different jobs, as soon as there are some."""
        ...

    async def ack(self, *deliveries: Delivery) -> None:
        """Acknowledge evaluations whose ends are stored."""
        ...

    async def nack(self, delivery: Delivery) -> None:
        """Return an evaluation for a retry."""
        ...

    async def carry_out(self, made: Sequence[Made]) -> list[PlanReply | Exception]:
        """Store the plans concurrently, each with its evaluation's end if accepted completely; returns results."""
        ...

    async def store(self, delivery: Delivery, evaluations: tuple[Evaluation, ...]) -> None:
        """Store the evaluation's end."""
        ...

    def view(self) -> SchedulingView:
        """The state for an attempt."""
        ...


class WorkersHere(Protocol):
    """The workers of this server, as an operator has set them."""

    @property
    def count(self) -> int:
        """The number of workers."""
        ...

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues from which they take."""
        ...


_Answer = Awaitable[PlanResult | tuple[Committed, ...]] | Exception


class LeaderWork:
    """This server's queues, while it leads."""

    def __init__(
        self, *, env: Env, queue: EvalQueue, applier: PlanApplier, writer: LogWriter, workers: WorkersHere
    ) -> None:
        """When more evaluations are ready than the workers take at once, some go to other servers' workers."""
        self._env = env
        self._queue = queue
        self._applier = applier
        self._writer = writer
        self._workers = workers

    async def take(self) -> list[Delivery]:
        """A batch for a worker of this server."""
        queues = self._workers.queues
        return self._batch(await self._queue.dequeue(queues), queues)

    async def take_spare(self, timeout_s: float, queues: tuple[str, ...] = QUEUES) -> list[Delivery]:
        """A batch for another server's worker; empty when this server's workers will soon take all that are ready."""
        workers = self._workers
        unserved = tuple(name for name in queues if not workers.count or name not in workers.queues)
        first = await self._queue.dequeue_above(BATCH * workers.count, queues, unserved=unserved, timeout_s=timeout_s)
        if first is None:
            return []
        batch = self._batch(first, unserved if first.evaluation.type in unserved else queues)
        index = self._writer.state.index
        return [msgspec.structs.replace(delivery, stored_index=index) for delivery in batch]

    async def ack(self, *deliveries: Delivery) -> None:
        """Acknowledge an evaluation."""
        for delivery in deliveries:
            self._queue.ack(delivery)

    async def nack(self, delivery: Delivery) -> None:
        """Return an evaluation after a failure."""
        self._queue.nack(delivery)

    async def submit(self, delivery: Delivery, plan: Plan, outcome: Outcome) -> PlanReply:
        """Check and store a plan; raises Conflict when the worker no longer owns the delivery."""
        (reply,) = await self.carry_out((Made(delivery, plan, outcome),))
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def store(self, delivery: Delivery, evaluations: tuple[Evaluation, ...]) -> None:
        """Store the evaluation's end; raises Conflict when the worker no longer owns the delivery."""
        self._hold(delivery)
        try:
            stored = await (await self._enqueued(delivery, evaluations))
        finally:
            self._let_go(delivery)
        for each in stored:
            if isinstance(each.result, Rejected):
                raise error_of(each.result)

    async def carry_out(self, made: Sequence[Made]) -> list[PlanReply | Exception]:
        """Check and store the plans; Conflict for a delivery that the worker no longer owns."""
        try:
            answers = [await self._begin(one) for one in made]
            return [await _reply(answer) for answer in answers]
        finally:
            for one in made:
                self._let_go(one.delivery)

    def view(self) -> SchedulingView:
        """The newest state including the plans in flight."""
        if self._applier.history is not None:
            self._applier.history.keep(self._writer.state, batches=self._writer.batches)
        return SchedulingView(self._applier.predicted_state(), self._writer.last_index)

    async def _begin(self, made: Made) -> _Answer:
        """Submit a result; the evaluation stays with the worker while it waits for others."""
        delivery, plan, outcome = made
        try:
            self._hold(delivery)
            if plan.is_empty:
                return await self._enqueued(delivery, outcome_evaluations(outcome))
            return self._applier.hand_in(replace(plan, eval_token=delivery.token), outcome)
        except YurtError as error:
            return error

    async def _enqueued(
        self, delivery: Delivery, evaluations: tuple[Evaluation, ...]
    ) -> asyncio.Future[tuple[Committed, ...]]:
        """The results of the evaluations' commands; many are encoded in a thread, as that takes longer than a turn.

        A blocked evaluation whose attempt has the same result as before is not stored: an end under a full quota may
        unblock hundreds of evaluations, of which one can be placed.
        """
        if len(evaluations) == 1 and self._queue.block_again(evaluations[0]):
            return _nothing_stored()
        commands = one_by_one(evaluations)
        if len(commands) <= EVALUATIONS_TOGETHER:
            return self._writer.enqueue(commands)
        prepared = await self._env.in_thread(self._writer.prepare, commands)
        self._hold(delivery)  # Meanwhile the term may have ended, and the next one delivered the evaluation again.
        return self._writer.enqueue(prepared)

    def _hold(self, delivery: Delivery) -> None:
        eval_id = delivery.evaluation.id
        if not self._queue.broker.pause_nack(eval_id, delivery.token):
            raise Conflict(f"evaluation {eval_id} does not belong to this worker any more")

    def _let_go(self, delivery: Delivery) -> None:
        self._queue.broker.resume_nack(delivery.evaluation.id, delivery.token, now=self._env.now())

    def _batch(self, first: Delivery, queues: tuple[str, ...]) -> list[Delivery]:
        """A batch of ready evaluations around the first one."""
        batch = [first]
        count = evaluation_size(self._writer.state, first.evaluation)
        while len(batch) < BATCH and count < BATCH_COUNT:
            delivery = self._queue.dequeue_now(queues)
            if delivery is None:
                break
            batch.append(delivery)
            count += evaluation_size(self._writer.state, delivery.evaluation)
        return batch


class FarWork:
    """The leader's queues as seen from a follower; raises Unavailable while it is unreachable.

    What a worker has made is handed in again while nobody leads, as far as this server knows: a plan only where it was
    not carried out for certain, the answer to a delivery, which bears being given twice, over lost connections too.
    """

    def __init__(
        self,
        leader: Callable[[], PeerPort],
        state: Callable[[], Snapshot],
        *,
        env: Env,
        queues: tuple[str, ...] = QUEUES,
    ) -> None:
        self._leader = leader
        self._queues = queues
        self._state = state
        self._env = env

    async def take(self) -> list[Delivery]:
        """Evaluations delegated by the leader, possibly none; returns in time. Raises Conflict for another version."""
        return list(await self._leader().take_work(timeout_s=POLL_S, scheduler=SCHEDULER_VERSION, queues=self._queues))

    async def ack(self, *deliveries: Delivery) -> None:
        """Acknowledge evaluations whose ends are stored; tries all before it raises."""
        results = await asyncio.gather(*map(self._ack, deliveries), return_exceptions=True)
        for error in results:
            if error is not None:
                raise error

    async def _ack(self, delivery: Delivery) -> None:
        async def call() -> None:
            await self._leader().finish_work(delivery, is_done=True)

        await repeated(call, self._env, while_=is_passing)

    async def nack(self, delivery: Delivery) -> None:
        """Return an evaluation for a retry."""
        await self._leader().finish_work(delivery, is_done=False)

    async def carry_out(self, made: Sequence[Made]) -> list[PlanReply | Exception]:
        """Have the leader check and store the plans."""
        return list(await asyncio.gather(*(outcome_of(self._carry_out(one)) for one in made)))

    async def _carry_out(self, made: Made) -> PlanReply:
        delivery, plan, outcome = made
        if not plan.is_empty:
            return await self.submit(delivery, plan, outcome)
        await self.store(delivery, outcome_evaluations(outcome))
        return PlanReply(is_full=True)

    async def submit(self, delivery: Delivery, plan: Plan, outcome: Outcome) -> PlanReply:
        """Have the leader check and store a plan."""
        small = packed(plan)

        async def call() -> PlanReply:
            return await self._leader().submit_plan(delivery, small, outcome)

        return await repeated(call, self._env, while_=is_no_leader)

    async def store(self, delivery: Delivery, evaluations: tuple[Evaluation, ...]) -> None:
        """Have the leader store the evaluation's end."""

        async def call() -> None:
            await self._leader().store_evaluations(delivery, evaluations)

        await repeated(call, self._env, while_=is_no_leader)

    def view(self) -> SchedulingView:
        """This server's state."""
        state = self._state()
        return SchedulingView(state, state.index)


def one_by_one(evaluations: Iterable[Evaluation]) -> tuple[UpsertEvaluations, ...]:
    """A command for each evaluation, in their order: readers of events get a line for each, as in Nomad.

    As one proposal they are in one entry of the log up to `ENTRY_BYTES` (`ProposalQueue`): an evaluation's end is not
    stored without the evaluations that it created. Beyond that the end comes last.
    """
    return tuple(UpsertEvaluations(evaluations=(each,)) for each in evaluations)


def _nothing_stored() -> asyncio.Future[tuple[Committed, ...]]:
    done: asyncio.Future[tuple[Committed, ...]] = asyncio.get_running_loop().create_future()
    done.set_result(())
    return done


async def _reply(answer: _Answer) -> PlanReply | Exception:
    """The result of a plan, or of the end of an evaluation without one."""
    result = answer if isinstance(answer, Exception) else await outcome_of(answer)
    if isinstance(result, Exception):
        return result
    if isinstance(result, PlanResult):
        return PlanReply(is_full=result.is_full, is_empty=result.accepted.is_empty, refresh_index=result.refresh_index)
    rejected = next((part.result for part in result if isinstance(part.result, Rejected)), None)
    return PlanReply(is_full=True) if rejected is None else error_of(rejected)


def attempt_size(state: Snapshot, job: Job) -> int:
    """The number of allocations that an attempt for a job reads or places."""
    is_of_every_node = job.type in (status.JOB_SYSTEM, status.JOB_SYSBATCH)
    requested = sum([len(state.nodes) if is_of_every_node else group.count for group in job.task_groups])
    return max(0 if job.stop else requested, state.allocs.count_where("job", (job.namespace, job.id)))


def evaluation_size(state: Snapshot, evaluation: Evaluation) -> int:
    """The same for the job of an evaluation; it may be deleted."""
    key = (evaluation.namespace, evaluation.job_id)
    job = state.jobs.get(key)
    return state.allocs.count_where("job", key) if job is None else attempt_size(state, job)
