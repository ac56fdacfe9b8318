"""Replays: repeat an evaluation from the log, to show that the same state gives the same plan.

The state is rebuilt from a snapshot that is old enough and the commands after it. A dev agent stores no snapshots and
forgets old commands, so it keeps a few of its recent states for this.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from yurt.fsm import apply
from yurt.fsm import snapshot as snapshots
from yurt.sdk.errors import Conflict, NotFound
from yurt.server.log.replica import Replica
from yurt.state import Snapshot
from yurt.storage.log import CommandLog
from yurt.structs.commands import AnyCommand, ApplyPlan, StagePlan
from yurt.structs.commands.packed import unpacked
from yurt.structs.evaluation import AttemptRecord, Evaluation
from yurt.structs.explain.explanation import Replay, ReplayedAttempt
from yurt.structs.plan import Plan

if TYPE_CHECKING:
    from yurt.scheduler.capacity.limits import LimitsOf

STATES_MAX: Final = 3
BATCHES_APART: Final = 128
"""Together they reach back as far as the memory log keeps its entries."""
ATTEMPTS_MAX: Final = 8
"""The number of attempts kept of one evaluation, the newest ones."""


class History:
    """Some recent states."""

    def __init__(self) -> None:
        self._states: deque[tuple[int, Snapshot]] = deque(maxlen=STATES_MAX)

    def keep(self, state: Snapshot, *, batches: int) -> None:
        """Retain a state, unless one within a few batches exists."""
        if not self._states or batches - self._states[-1][0] >= BATCHES_APART:
            self._states.append((batches, state))

    def forget(self, state: Snapshot) -> None:
        """Release states from which no evaluation of this state can be replayed."""
        if not self._states:
            return
        needed = [record.state_index for row in state.evals.values() for record in row.attempts]
        if not needed:
            self._states.clear()
        while len(self._states) > 1 and self._states[1][1].index <= min(needed):
            self._states.popleft()

    def up_to(self, index: int) -> Snapshot | None:
        """The newest retained state at or below an index."""
        return next((state for _, state in reversed(self._states) if state.index <= index), None)

    @property
    def first(self) -> int:
        """The index of the oldest one; 0 without any."""
        return self._states[0][1].index if self._states else 0


class _RecordedAttempt(NamedTuple):
    """An attempt to repeat, and the evaluations before it on the same state."""

    record: AttemptRecord
    before: list[tuple[str, AttemptRecord]]


class _LogPart(msgspec.Struct, frozen=True):
    """The records of an attempt in the log."""

    states: dict[int, Snapshot]
    plans: list[tuple[int, Plan]]


class Replays:
    """Repeats the recorded attempts of evaluations."""

    def __init__(
        self, replica: Replica, command_log: CommandLog, *, history: History, limits: Mapping[str, LimitsOf]
    ) -> None:
        self._replica = replica
        self._log = command_log
        self._history = history
        self._limits = limits

    async def replay(self, eval_id: str) -> Replay:
        """Repeat an evaluation's attempts and compare; raises NotFound, or Conflict when the log is too short."""
        state = self._replica.state
        evaluation = state.evals.get(eval_id)
        if evaluation is None:
            raise NotFound("eval not found")
        if not evaluation.attempts:
            text = f'evaluation "{eval_id}" was not scheduled yet (it is {evaluation.status}): nothing to replay'
            raise Conflict(text)
        attempts = [_RecordedAttempt(record, _before(state, record)) for record in evaluation.attempts]
        base = await self._base(min(entry.record.state_index for entry in attempts))
        log_part = await self._read(base, evaluation, attempts=attempts)
        return await asyncio.to_thread(
            partial(_again, evaluation, attempts, log_part, base_index=base.index, limits=self._limits)
        )

    async def _base(self, index: int) -> Snapshot:
        """A retained state at or below the index."""
        state = self._history.up_to(index)
        if state is not None:
            return state
        stored = await self._log.load_snapshot(index)
        if stored is not None:
            return await asyncio.to_thread(snapshots.decode, stored[1])
        return Snapshot.empty()

    async def _read(self, base: Snapshot, evaluation: Evaluation, *, attempts: Sequence[_RecordedAttempt]) -> _LogPart:
        """The states of the attempts, and the plans in the log after the first of them."""
        indexes = {entry.record.state_index for entry in attempts}
        low, high = min(indexes), max(indexes)
        end = max(evaluation.modify_index, *(entry.record.ahead for entry in attempts))
        state = base
        states: dict[int, Snapshot] = {base.index: base}
        plans: list[tuple[int, Plan]] = []
        try:
            async for index, command in self._commands(base.index, end):
                if index <= high:
                    state = apply(state, command, index=index).state
                if index in indexes:
                    states[index] = state
                if index > low and isinstance(command, ApplyPlan | StagePlan):
                    plans.append((index, unpacked(command.plan)))
        except Conflict as error:
            raise Conflict(await self._too_old(low)) from error
        if not indexes <= states.keys():
            raise Conflict(await self._too_old(low))
        return _LogPart(states, plans)

    async def _commands(self, after: int, end: int) -> AsyncIterator[tuple[int, AnyCommand]]:
        """The log's commands in (after, end], yielding to other work."""
        async for entry in self._log.entries(after):
            for index, command in enumerate(entry.commands, entry.first_index):
                if after < index <= end:
                    yield index, command
            if entry.last_index >= end:
                return
            await asyncio.sleep(0)

    async def _too_old(self, index: int) -> str:
        newest = await self._log.load_snapshot()
        first = self._history.first or (newest[0] if newest is not None else 0)
        reason = f"the state is kept from index {first} on" if first else "older entries of the log are gone"
        return f"the state at index {index} is not kept any more: {reason}"


def _before(state: Snapshot, record: AttemptRecord) -> list[tuple[str, AttemptRecord]]:
    """The evaluations scheduled just before, in order."""
    from yurt.scheduler.replay import CHAIN_MAX

    chain: list[tuple[str, AttemptRecord]] = []
    after = record.after
    while after and len(chain) < CHAIN_MAX:
        other = state.evals.get(after)
        records = other.attempts if other is not None else ()
        first = next((r for r in records if r.state_index == record.state_index and r.number == 0), None)
        if first is None:
            raise Conflict(f'evaluation "{after}", which was scheduled just before on the same state, is not kept')
        chain.append((after, first))
        after = first.after
    return chain[::-1]


def _again(
    evaluation: Evaluation,
    recorded: Sequence[_RecordedAttempt],
    log_part: _LogPart,
    *,
    base_index: int,
    limits: Mapping[str, LimitsOf],
) -> Replay:
    from yurt.scheduler.capacity.in_flight import with_plans
    from yurt.scheduler.replay import compare
    from yurt.scheduler.replay import replay as attempt_again

    attempts: list[ReplayedAttempt] = []
    is_outcome_identical = True
    for record, others in recorded:
        state = log_part.states[record.state_index]
        ahead = [plan for index, plan in log_part.plans if record.state_index < index <= record.ahead]
        before = [(_required_eval(state, eval_id), first) for eval_id, first in others]
        view = with_plans(state, ahead)
        made = attempt_again(view, _required_eval(state, evaluation.id), record, before=before, **limits)
        stored = [
            plan
            for _, plan in log_part.plans
            if plan.eval_id == evaluation.id
            and (plan.snapshot_index, plan.now) == (record.state_index, record.now)
        ]  # fmt: skip
        attempts.append(compare(made, record, stored, laid_over=len(ahead) + len(before)))
        is_outcome_identical = _outcome(made.outcome.evaluation) == _outcome(evaluation)
    return Replay(
        eval_id=evaluation.id,
        job_id=evaluation.job_id,
        namespace=evaluation.namespace,
        status=evaluation.status,
        base_index=base_index,
        attempts=tuple(attempts),
        is_outcome_identical=is_outcome_identical,
        is_identical=is_outcome_identical and all(entry.is_identical for entry in attempts),
    )


def _required_eval(state: Snapshot, eval_id: str) -> Evaluation:
    evaluation = state.evals.get(eval_id)
    if evaluation is None:
        raise Conflict(f'evaluation "{eval_id}" is not in the state at index {state.index}')
    return evaluation


def _outcome(evaluation: Evaluation) -> bytes:
    return msgspec.msgpack.encode((evaluation.failed_tg_allocs, evaluation.queued_allocations), order="deterministic")
