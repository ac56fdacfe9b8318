"""The one writer: gathers proposals into a batch, appends it to the log, and applies its commands in turns of the loop.

While an append is under way further proposals gather; they form the next batch. A batch never exceeds `ENTRY_BYTES`
in the log (A9): the commands of a large proposal go into several, in their order. A command is answered when it is
durable and applied. An append that fails leaves its outcome unknown, so nothing more is acknowledged from this log
until a new term (A10).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from yurt.fsm import apply
from yurt.sdk.errors import Conflict, Invalid, NotFound, Unavailable, YurtError
from yurt.sdk.value import replace
from yurt.state import Changes, Snapshot
from yurt.storage.log import CommandLog
from yurt.structs.commands import AnyCommand, Applied, ApplyPlan, RegisterJob, Rejected, Result, StagePlan
from yurt.structs.packed import packed

log = logging.getLogger(__name__)

NO_LEADER: Final = "No cluster leader"
ENTRY_BYTES: Final = 1_048_576 - 4_096
"""A batch's commands as the log encodes them, with room for what the log adds; a larger command goes alone."""
PENDING_BYTES: Final = 64 * 1_048_576
TURN_BYTES: Final = 16_384
"""Small commands are applied together, up to this, before others get the loop."""
PLACEMENT_WORK: Final = 256
"""Bytes of an ordinary command whose application takes as long as that of a placement."""

OnApplied = Callable[[AnyCommand, Changes], None]
KINDS: Final[dict[str, type[YurtError]]] = {"not_found": NotFound, "conflict": Conflict, "invalid": Invalid}


class _Proposal:
    """Consecutive commands, and the results of those that were applied so far."""

    __slots__ = ("answer", "count", "results")

    def __init__(self, count: int, answer: asyncio.Future[tuple[Result, ...]]) -> None:
        self.count = count
        self.answer = answer
        self.results: list[Result] = []

    def add(self, result: Result) -> None:
        """One more was applied; the last one answers."""
        self.results.append(result)
        if len(self.results) == self.count and not self.answer.done():
            self.answer.set_result(tuple(self.results))

    def fail(self, error: Exception) -> None:
        """The rest will not be applied."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # whoever proposed may have been cancelled


class _Item(NamedTuple):
    command: AnyCommand
    stored: AnyCommand
    """The command as the log holds it."""
    size: int
    proposal: _Proposal

    @property
    def work(self) -> int:
        """What applying it takes, in bytes of an ordinary command."""
        command = self.command
        return self.size + (PLACEMENT_WORK * len(command.plan.placements) if isinstance(command, ApplyPlan) else 0)


def _stored(command: AnyCommand) -> AnyCommand:
    """The command as the log holds it: a plan with its placements packed, which is a tenth of their size."""
    if isinstance(command, ApplyPlan | StagePlan):
        plan = packed(command.plan)
        return command if plan is command.plan else replace(command, plan=plan)
    return command


class LogWriter:
    """Holds the state and is the only one to change it."""

    def __init__(
        self,
        log: CommandLog,
        *,
        on_applied: OnApplied,
        on_batch: Callable[[Changes], None],
        on_failed: Callable[[], None],
    ) -> None:
        self.state = Snapshot.empty()
        self.batches = 0
        self._log = log
        self._on_applied = on_applied
        self._on_batch = on_batch
        self._on_failed = on_failed
        self._broken = ""
        self._pending: deque[_Item] = deque()
        self._on_their_way = 0
        self._pending_bytes = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._wake = asyncio.Event()
        self._refusal = NO_LEADER

    def open(self) -> None:
        """Accept proposals: this server leads. A log that failed once stays closed."""
        self._refusal = self._broken

    def close(self, reason: str = NO_LEADER) -> None:
        """Refuse proposals from now on, those that wait included."""
        self._refusal = reason
        while self._pending:
            self._pending.popleft().proposal.fail(Unavailable(reason))
        self._pending_bytes = 0

    @property
    def is_open(self) -> bool:
        """Proposals are accepted."""
        return not self._refusal

    @property
    def last_index(self) -> int:
        """The index of the last command that was proposed, applied or not."""
        return self.state.index + self._on_their_way + len(self._pending)

    async def propose(self, command: AnyCommand) -> Applied:
        """The command's index once it is durable and applied; a rejected one is raised as its kind."""
        (result,) = await self.propose_all((command,))
        if isinstance(result, Rejected):
            raise KINDS.get(result.kind, Invalid)(result.message)
        return result

    async def propose_all(self, commands: Sequence[AnyCommand]) -> tuple[Result, ...]:
        """Results of consecutive commands, in order, once all of them are durable and applied."""
        return await self.enqueue(commands)

    def enqueue(self, commands: Sequence[AnyCommand]) -> asyncio.Future[tuple[Result, ...]]:
        """As `propose_all`, for a caller that waits later: commands are stored in the order of the calls."""
        if self._refusal:
            raise Unavailable(self._refusal)
        if self._pending_bytes >= PENDING_BYTES:
            raise Unavailable("too many changes wait to be stored; try again in a moment")
        answer: asyncio.Future[tuple[Result, ...]] = asyncio.get_running_loop().create_future()
        if not commands:
            answer.set_result(())
        proposal = _Proposal(len(commands), answer)
        items = [
            _Item(command, stored, self._size(stored), proposal)
            for command in commands
            for stored in (_stored(command),)
        ]
        self._pending.extend(items)
        self._pending_bytes += sum(item.size for item in items)
        self._wake.set()
        return answer

    def _size(self, command: AnyCommand) -> int:
        size = len(self._encoder.encode(command))
        if size > ENTRY_BYTES and isinstance(command, RegisterJob):
            raise Invalid(f"the job takes {size} bytes in the command log, {ENTRY_BYTES} are possible; make it smaller")
        return size

    async def replay(self) -> int:
        """Apply what the log holds beyond the present state; how many commands that was."""
        count = 0
        async for entry in self._log.entries(self.state.index):
            for offset, command in enumerate(entry.commands):
                if entry.first_index + offset > self.state.index:
                    self.state = apply(self.state, command, index=entry.first_index + offset).state
                    count += 1
            await asyncio.sleep(0)
        return count

    async def run(self) -> None:
        """Write batches until cancelled."""
        batch: list[_Item] = []
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._pending:
                    batch = self._gather()
                    await self._write(batch)
        finally:
            for item in batch:
                item.proposal.fail(Unavailable("the server is shutting down; the change may or may not be stored"))
            self.close("the server is shutting down")

    def _gather(self) -> list[_Item]:
        batch: list[_Item] = []
        size = 0
        while self._pending and (not batch or size + self._pending[0].size <= ENTRY_BYTES):
            batch.append(self._pending.popleft())
            size += batch[-1].size
        self._pending_bytes -= size
        return batch

    async def _write(self, batch: list[_Item]) -> None:
        self._on_their_way = len(batch)
        try:
            await self._log.append(self.state.index + 1, [item.stored for item in batch])
        except Exception as error:
            self._on_their_way = 0
            log.error("appending to the command log failed, this server stops leading: %s", error)
            if not isinstance(error, Conflict):
                self._broken = f"the command log failed, restart the agent once its disk is well: {error}"
            for item in batch:
                item.proposal.fail(Unavailable(f"the change may not be stored: {error}"))
            self.close(self._broken or NO_LEADER)
            self._on_failed()
        else:
            await self._apply(batch)

    async def _apply(self, batch: list[_Item]) -> None:
        changes: list[Changes] = []
        turn = 0
        for item in batch:
            work = item.work
            if turn and turn + work > TURN_BYTES:
                await asyncio.sleep(0)
                turn = 0
            turn += work
            step = apply(self.state, item.command, index=self.state.index + 1)
            self.state = step.state
            self._on_their_way -= 1
            changes.append(step.changes)
            self._on_applied(item.command, step.changes)
            item.proposal.add(step.result)
        self.batches += 1
        self._on_batch(tuple(change for part in changes for change in part))
