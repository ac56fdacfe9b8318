"""The leader's evaluation queues, fed by applied commands, with their timers and clean-up loops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from yurt.broker import DELIVERY_LIMIT, FAILED_QUEUE, BlockedEvals, Delivery, EvalBroker
from yurt.runtime.env import Env
from yurt.runtime.metrics import Metrics
from yurt.runtime.turns import Turns
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.server.log.state_waits import wait_for
from yurt.server.scheduling.eval_times import EvalTimes, count_requeue
from yurt.server.scheduling.pool_queues import PoolQueues
from yurt.server.scheduling.unblock_events import UnblockEvents, region_of
from yurt.state import Change, Changes, Snapshot, without_plain_placements
from yurt.structs import status
from yurt.structs.commands import AnyCommand, UpsertEvaluations
from yurt.structs.evaluation import Evaluation
from yurt.structs.plan import Plan

if TYPE_CHECKING:
    from yurt.scheduler.capacity.limits import LimitsOf

log = logging.getLogger(__name__)

REAP_INTERVAL_S: Final = 5.0
REAP_BATCH: Final = 500
OF_ATTEMPT: Final = ("attempts", "snapshot_index", "modify_time", "failed_tg_allocs")
"""The fields of a blocked evaluation that describe its last attempt, and not what it waits for."""
FAILED_UNBLOCK_S: Final = 60.0
STORED_AGAIN_NS: Final = seconds(60.0)
"""The maximum age of the stored row of a blocked evaluation while it waits for the same after each attempt. The row
shows users the last attempt and its numbers, and a new leader the last changes that an attempt has seen."""
UNBLOCK_BATCH: Final = 100
"""Questions whether one piece of news unblocks one evaluation, before others get the loop: a few milliseconds at most,
when they all wait for a quota that is checked."""
PRUNE_S: Final = 300.0
FAILED_FOLLOW_UP_S: Final = 60.0
FAILED_FOLLOW_UP_SPREAD_S: Final = 300.0


class Writer(Protocol):
    """Stores commands."""

    async def propose(self, command: AnyCommand) -> object:
        """Store a command; durable and applied on return."""
        ...


class EvalQueue:
    """The broker and the blocked evaluations of one term."""

    def __init__(
        self,
        *,
        env: Env,
        writer: Writer,
        current: Callable[[], Snapshot],
        turns: Turns,
        metrics: Metrics | None = None,
        limits: LimitsOf | None = None,
    ) -> None:
        """`limits` of jobs, with the region's guarantees; None: none, and unblocked evaluations are not checked."""
        self.broker = EvalBroker()
        self.blocked = BlockedEvals()
        region = region_of(limits)
        self._events = UnblockEvents(self.blocked, current, limits)
        self._metrics = metrics or Metrics()
        self._times = EvalTimes(self._metrics, env)
        self._env = env
        self._writer = writer
        self._current = current
        self._turns = turns
        self._ready = asyncio.Condition()
        self._is_paused = False
        self._changed = asyncio.Event()
        self._reapable = asyncio.Event()
        self._has_changes = asyncio.Event()

        def release(evaluations: Iterable[Evaluation]) -> None:
            for evaluation in evaluations:
                self.broker.requeue(evaluation, now=env.now())
            self._changed.set()

        self.pools = PoolQueues(
            env=env,
            current=current,
            turns=turns,
            has_changes=lambda: self.blocked.has_changes,
            release=release,
            region=region,
        )

    def restore(self, state: Snapshot) -> None:
        """Load every evaluation that has not ended."""
        self._is_paused = state.scheduler_config.pause_eval_broker
        self.pools.start(state)
        now = self._env.now()
        for evaluation in state.evals.where("status", status.EVAL_PENDING):
            self._route(evaluation, now)
        blocked = tuple(state.evals.where("status", status.EVAL_BLOCKED))
        self._events.note_missed(state, blocked)
        for evaluation in blocked:
            self._block(evaluation, now)
        if self.blocked.has_changes:
            # The queues of node pools decide nothing before it is looked at, and no command may come for long.
            self._has_changes.set()
        self._changed.set()

    def observe(self, changes: Changes, *, index: int, notable: Changes | None = None) -> None:
        """Follow the changes of a command; `notable`: those without plain placements, if the caller has them."""
        now = self._env.now()
        if notable is None:
            notable = without_plain_placements(changes)
        for change in notable:
            if change.table == "evals":
                self._observe_eval(change, now)
            elif change.table == "allocs":
                if change.before is None and change.after is not None and change.after.reschedule_tracker is not None:
                    count_requeue(self._metrics, self._current(), change)
            elif change.table == "scheduler_config":
                self._is_paused = self._current().scheduler_config.pause_eval_broker
                self._changed.set()
        self.pools.observe(changes)
        unblocked = self._events.note(notable, index=index)
        if unblocked:
            self._enqueue(unblocked, now)
        self._unblock_some(now)

    def note_dropped(self, plan: Plan, *, index: int) -> None:
        """Unblock what waits for capacity that attempts saw used by a plan in flight, which failed at `index`."""
        now = self._env.now()
        self._enqueue(self._events.note_dropped(plan, index=index), now)
        self._unblock_some(now)

    def block_again(self, evaluation: Evaluation) -> bool:
        """Block an evaluation in memory that waits for the same as its row; False if the row must be stored.

        `snapshot_index` is then newer in memory than in the row. A new leader starts from the row, so it may attempt
        the evaluation once more than needed, for changes that this attempt has seen (invariant B4). The numbers of the
        row, such as how much of a quota was left, are those of the last attempt that was stored.
        """
        row = self._current().evals.get(evaluation.id)
        if (
            row is None
            or row.status != status.EVAL_BLOCKED
            or evaluation.modify_time - row.modify_time >= STORED_AGAIN_NS
        ):
            return False
        if evaluation.failed_tg_allocs.keys() != row.failed_tg_allocs.keys():
            return False
        if evaluation != replace(row, **{name: getattr(evaluation, name) for name in OF_ATTEMPT}):
            return False
        self._block(evaluation, self._env.now())
        return True

    async def dequeue(self, queues: tuple[str, ...]) -> Delivery:
        """The evaluation of highest priority, once there is one."""
        async with self._ready:
            await self._ready.wait_for(lambda: not self._is_paused and self.broker.has_ready(queues))
            delivery = self.broker.dequeue(queues, now=self._env.now(), token=self._env.uuid())
        assert delivery is not None
        self._times.note_delivery(delivery)
        self._changed.set()
        return delivery

    async def dequeue_above(
        self, spare: int, queues: tuple[str, ...], *, timeout_s: float, unserved: tuple[str, ...] = ()
    ) -> Delivery | None:
        """An evaluation of an `unserved` queue, or any when more than `spare` are ready, within the time limit."""

        def is_spare() -> bool:
            broker = self.broker
            is_many = broker.ready > spare and broker.has_ready(queues)
            return not self._is_paused and (is_many or broker.has_ready(unserved))

        try:
            async with self._env.timeout(timeout_s), self._ready:
                await self._ready.wait_for(is_spare)
        except TimeoutError:
            return None
        return (self.dequeue_now(unserved) if unserved else None) or self.dequeue_now(queues)

    def dequeue_now(self, queues: tuple[str, ...]) -> Delivery | None:
        """The evaluation of highest priority, if any; those dequeued together belong to different jobs."""
        if self._is_paused:
            return None
        delivery = self.broker.dequeue(queues, now=self._env.now(), token=self._env.uuid())
        if delivery is not None:
            self._times.note_delivery(delivery)
        self._changed.set()
        return delivery

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge an evaluation."""
        self.broker.ack(delivery.evaluation.id, delivery.token, now=self._env.now())
        self._times.done(delivery)
        self.pools.done(delivery.evaluation.id)
        self._changed.set()
        if self.broker.has_cancelable:
            self._reapable.set()

    def nack(self, delivery: Delivery) -> None:
        """Return an evaluation after a failure."""
        self.broker.nack(delivery.evaluation.id, delivery.token, now=self._env.now())
        self._times.forget(delivery)
        self._changed.set()

    async def run_timer(self) -> None:
        """Fire the broker's timers and wake workers; the single timer of the queues."""
        while True:
            self._changed.clear()
            self.broker.advance(self._env.now())
            async with self._ready:
                self._ready.notify_all()
            deadline = self.broker.next_deadline()
            delay = None if deadline is None else max(0.0, (deadline - self._env.now()) / 1e9)
            await wait_for(self._env, self._changed, delay)

    async def run_reaper(self) -> None:
        """Cancel superseded evaluations after acks, and at least every 5 s."""
        while True:
            await wait_for(self._env, self._reapable, REAP_INTERVAL_S)
            await self._turns.next()  # one command cancels all that this turn superseded
            self._reapable.clear()
            while canceled := self._take_canceled():
                await self._writer.propose(UpsertEvaluations(evaluations=canceled))

    async def run_failed_reaper(self) -> None:
        """Fail evaluations after too many deliveries, and create a follow-up for each."""
        while True:
            delivery = await self.dequeue((FAILED_QUEUE,))
            try:
                await self._writer.propose(UpsertEvaluations(evaluations=self._failed(delivery.evaluation)))
            except BaseException:
                self.nack(delivery)
                raise
            self.ack(delivery)

    async def run_unblocking(self) -> None:
        """Unblock the rest of large sets of evaluations in slices."""
        while True:
            await self._has_changes.wait()
            await self._turns.next()
            self._unblock_some(self._env.now())
            if not self.blocked.has_changes:
                self._has_changes.clear()

    async def run_unblocker(self) -> None:
        """Every 60 s retry evaluations that ended after too many plan conflicts."""
        while True:
            await self._env.sleep(FAILED_UNBLOCK_S)
            self._enqueue(self.blocked.unblock_failed(), self._env.now())

    async def run_pruner(self) -> None:
        """Every 5 minutes drop unblock events older than 15 minutes."""
        while True:
            await self._env.sleep(PRUNE_S)
            self._events.prune()

    def _observe_eval(self, change: Change, now: UnixNano) -> None:
        before: Evaluation | None = change.before
        after: Evaluation | None = change.after
        if after is None:
            assert before is not None
            self._end(before)
        else:
            self._route(after, now)
        self._changed.set()

    def _route(self, evaluation: Evaluation, now: UnixNano) -> None:
        """Move a changed evaluation to the queue of its status."""
        match evaluation.status:
            case "pending":
                if not self.pools.takes(evaluation):
                    self.broker.enqueue(evaluation, now=now)
            case "blocked":
                self._block(evaluation, now)
            case "complete" | "failed" | "canceled":
                self._end(evaluation)
            case _:
                assert_never(evaluation.status)

    def _end(self, evaluation: Evaluation) -> None:
        self.broker.forget(evaluation.id)
        self.blocked.forget(evaluation)
        self.pools.forget(evaluation)

    def _block(self, evaluation: Evaluation, now: UnixNano) -> None:
        if self.blocked.block(evaluation):
            self._enqueue((evaluation,), now)
        else:
            self.pools.note_blocked(evaluation)
        self._reapable.set()

    def _unblock_some(self, now: UnixNano) -> None:
        """Check some of the evaluations that events may unblock; `run_unblocking` continues with the rest."""
        if self.blocked.has_changes:
            unblocked = self.blocked.take_unblocked(UNBLOCK_BATCH)
            self._enqueue([each for each in unblocked if not self._stays_blocked(each)], now)
            if self.blocked.has_changes:
                self._has_changes.set()

    def _stays_blocked(self, evaluation: Evaluation) -> bool:
        """Whether an unblocked evaluation was blocked again without an attempt, which would place nothing."""
        blocked = self._events.still_blocked(evaluation, now=self._env.now())
        return blocked is not None and self.block_again(blocked)

    def _enqueue(self, evaluations: Iterable[Evaluation], now: UnixNano) -> None:
        for evaluation in evaluations:
            if not self.pools.takes(evaluation):
                self.broker.requeue(evaluation, now=now)
        self._changed.set()

    def _take_canceled(self) -> tuple[Evaluation, ...]:
        now = self._env.now()
        pending = [
            (evaluation, "canceled after more recent eval was processed")
            for evaluation in self.broker.take_cancelable(REAP_BATCH)
        ]
        return tuple(
            replace(evaluation, status=status.EVAL_CANCELED, status_description=reason, modify_time=now)
            for evaluation, reason in (*pending, *self.blocked.take_superseded(REAP_BATCH))
        )

    def _failed(self, evaluation: Evaluation) -> tuple[Evaluation, ...]:
        now = self._env.now()
        ended = replace(
            evaluation,
            status=status.EVAL_FAILED,
            status_description=f"evaluation reached delivery limit ({DELIVERY_LIMIT})",
            modify_time=now,
        )
        if (evaluation.namespace, evaluation.job_id) not in self._current().jobs:
            return (ended,)
        wait = seconds(FAILED_FOLLOW_UP_S + FAILED_FOLLOW_UP_SPREAD_S * self._env.random())
        follow_up = Evaluation(
            id=self._env.uuid(),
            namespace=evaluation.namespace,
            priority=evaluation.priority,
            type=evaluation.type,
            triggered_by=status.TRIGGER_FAILED_FOLLOW_UP,
            job_id=evaluation.job_id,
            job_modify_index=evaluation.job_modify_index,
            status=status.EVAL_PENDING,
            wait=wait,
            previous_eval=evaluation.id,
            create_time=now,
            modify_time=now,
        )
        return (replace(ended, next_eval=follow_up.id), follow_up)
