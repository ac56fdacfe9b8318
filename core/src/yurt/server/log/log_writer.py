"""The single writer: owns the state, and applies the entries appended here or by other servers.

While this server leads it gathers proposals into a batch, appends it and applies its commands in turns of the loop.
While an append is under way further proposals gather; they form the next batch. A batch never exceeds `ENTRY_BYTES`
in the log (A9): the commands of a large proposal go into several, in their order. A command is answered when it is
durable and applied. A command that no entry can hold is refused, and others go on. An append that fails leaves its
outcome unknown: nothing more is appended in this term, and what became of it is read from the log. A log that is broken
for good is never opened again (A10).

While another server leads, entries are applied as they come. Both ways go through one place, at consecutive indexes,
never at the same time: no command is applied twice and none is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, assert_never

from yurt.fsm import apply
from yurt.runtime.turns import Turns
from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied, Reason, Unavailable, YurtError
from yurt.server.failures import SHUTTING_DOWN, log_broken, no_leader, outcome_unknown, shutting_down
from yurt.server.log.proposals import ENTRY_BYTES, BatchItem, Committed, Prepared, ProposalQueue, fail
from yurt.state import Changes, Snapshot
from yurt.storage.log import CommandLog, Entry, LogBroken, LogFull
from yurt.structs.commands import AnyCommand, ApplyPlan, Rejected, UpdateAllocsFromClient
from yurt.structs.commands.versions import RegionRules

if TYPE_CHECKING:
    from yurt.server.log.log_times import LogTimes

__all__ = ["ENTRY_BYTES", "Committed", "LogWriter", "Prepared", "Stale", "error_of", "work_of"]

log = logging.getLogger(__name__)

TURN_BYTES: Final = 16_384
"""The size up to which small commands are applied together in one turn of the loop."""
PLACEMENT_WORK: Final = 256
"""The bytes of an ordinary command that take as long to apply as a placement."""
COMMAND_WORK: Final = 512
"""The cost of an entry's command of unknown size."""
LOST_APPEND_S: Final = 5.0
"""The seconds for which an append may continue after leadership was lost; then its outcome is read from the log."""

OnApplied = Callable[[AnyCommand, Changes, int], None]


class Stale(Conflict, reason=Reason.STALE):
    """A row on which the command is based has changed; deciding again on the newer state may succeed."""


def work_of(command: AnyCommand, size: int = COMMAND_WORK) -> int:
    """The cost of applying a command, in bytes of an ordinary command."""
    match command:
        case ApplyPlan(plan=plan):
            return size + (TURN_BYTES if plan.blocks else PLACEMENT_WORK * len(plan.placements))
        case UpdateAllocsFromClient(updates=updates):
            return max(size, PLACEMENT_WORK * len(updates))
    return size


class LogWriter:
    """Owns the state and is the only one to change it."""

    def __init__(
        self,
        log: CommandLog,
        *,
        on_applied: OnApplied,
        on_batch: Callable[[Changes], None],
        on_failed: Callable[[], None],
        times: LogTimes | None = None,
        rules: Callable[[], RegionRules] = RegionRules,
    ) -> None:
        """`rules`: those of the region, by default of a single server."""
        self.state = Snapshot.empty()
        self.batches = 0
        self.turns = Turns()
        """Turns of the loop, shared with other long work."""
        self._log = log
        self._times = times
        self._on_applied = on_applied
        self._on_batch = on_batch
        self._on_failed = on_failed
        self._broken = ""
        self.rules = rules
        self._pending = ProposalQueue(rules)
        self._on_their_way = 0
        self._refusal: Callable[[], Unavailable] | None = no_leader
        self._append_limit: asyncio.Timeout | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def open(self) -> None:
        """Accept proposals: this server leads and has applied the whole log. A failed log stays closed."""
        self._refusal = partial(log_broken, self._broken) if self._broken else None

    def close(self, reason: Callable[[], Unavailable] = no_leader) -> None:
        """Refuse proposals, including waiting ones; an append in progress ends within a bound."""
        refusal = self._refusal = partial(log_broken, self._broken) if self._broken else reason
        self._pending.fail(refusal)
        if self._append_limit is not None and not self._append_limit.expired():
            self._append_limit.reschedule(asyncio.get_running_loop().time() + LOST_APPEND_S)

    @property
    def broken(self) -> str:
        """The reason why the log refuses everything until a restart; "" while it works."""
        return self._broken

    @property
    def is_open(self) -> bool:
        """Whether proposals are accepted."""
        return self._refusal is None

    @property
    def last_index(self) -> int:
        """The index of the last proposed command, applied or not."""
        return self.state.index + self._on_their_way + len(self._pending)

    async def submit(self, command: AnyCommand | Prepared) -> Committed:
        """The result of `apply`, rejected or not, once the command is durable and applied."""
        (committed,) = await self.enqueue((command,))
        return committed

    async def propose(self, command: AnyCommand | Prepared) -> Committed:
        """`submit`, with a rejection raised as the exception of its kind."""
        committed = await self.submit(command)
        if isinstance(committed.result, Rejected):
            raise error_of(committed.result)
        return committed

    async def propose_all(self, commands: Sequence[AnyCommand]) -> tuple[Committed, ...]:
        """The results of consecutive commands, in order, once all of them are durable and applied."""
        return await self.enqueue(commands)

    def prepare(self, commands: Sequence[AnyCommand]) -> list[Prepared]:
        """Encode and measure commands; raises as the queue's `prepare`."""
        return self._pending.prepare(commands)

    def enqueue(self, commands: Sequence[AnyCommand | Prepared]) -> asyncio.Future[tuple[Committed, ...]]:
        """`propose_all` without waiting: commands are stored in the order of the calls."""
        if self._refusal is not None:
            raise self._refusal()
        return self._pending.add(commands)

    async def replay(self) -> int:
        """Apply the log beyond the present state at the start; returns the number of commands."""
        count = 0
        async for entry in self._log.entries(self.state.index):
            for command in self._fresh(entry):
                self.state = apply(self.state, command, index=self.state.index + 1).state
                count += 1
            await asyncio.sleep(0)
        return count

    async def wait_idle(self) -> None:
        """Wait until no append or application is in progress."""
        await self._idle.wait()

    async def catch_up(self) -> None:
        """Apply the present log, after any append of an earlier term has ended."""
        await self.wait_idle()
        async for entry in self._log.entries(self.state.index):
            await self.take(entry)

    async def take(self, entry: Entry) -> None:
        """Apply the new part of an entry; raises Conflict for a gap in the indexes.

        When this is cancelled, applied commands stay applied, and the rest is applied when the entry comes again.
        """
        assert self._idle.is_set() and not self.is_open, "the log is followed while this server writes it"
        self._idle.clear()
        try:
            await self._apply([BatchItem(command, command, COMMAND_WORK) for command in self._fresh(entry)])
        finally:
            self._idle.set()

    async def install(self, state: Snapshot) -> None:
        """Continue from another server's newer state."""
        await self.wait_idle()
        assert not self.is_open and state.index > self.state.index, (state.index, self.state.index)
        self.state = state

    def _fresh(self, entry: Entry) -> Sequence[AnyCommand]:
        """The entry's commands beyond the present state."""
        # An entry is a batch, and a snapshot may end within one: its first commands are applied already.
        applied_count = self.state.index + 1 - entry.first_index
        if applied_count < 0:
            raise Conflict(f"the command log leaves out what follows index {self.state.index}")
        return entry.commands[applied_count:]

    async def run(self) -> None:
        """Write batches until cancelled."""
        batch: list[BatchItem] = []
        try:
            while True:
                await self._pending.wait()
                while batch := self._pending.next_batch():
                    await self._write(batch)
        finally:
            fail(batch, outcome_unknown(SHUTTING_DOWN))
            self.close(shutting_down)

    async def _write(self, batch: list[BatchItem]) -> None:
        assert self._idle.is_set(), "the log is written while it is followed"
        self._on_their_way = len(batch)
        self._idle.clear()
        try:
            async with asyncio.timeout(None) as self._append_limit:
                commands, encoded = [item.stored for item in batch], [item.encoded for item in batch]
                began = self._times.now() if self._times is not None else 0.0
                await self._log.append(self.state.index + 1, commands, encoded)
        except (Invalid, LogFull) as error:  # nothing was stored; a command that is too large is alone in its batch
            fail(batch, error)
        except Exception as error:
            self._append_limit = None
            self._on_their_way = 0
            self._give_up(batch, error)
        else:
            self._append_limit = None
            if self._times is not None:
                self._times.appended(len(batch), began)
            await self._apply(batch)
        finally:
            self._append_limit = None
            self._on_their_way = 0
            self._idle.set()

    def _give_up(self, batch: list[BatchItem], error: Exception) -> None:
        """Stop leading, because another server leads or the outcome of an append is unknown."""
        if isinstance(error, TimeoutError):
            error = Unavailable("the command log does not answer")
        log.error("appending to the command log failed, this server stops leading: %s", error)
        if isinstance(error, LogBroken) or not isinstance(error, Conflict | Unavailable):
            self._broken = f"the command log failed, restart the agent once its disk is well: {error}"
        fail(batch, no_leader() if isinstance(error, Conflict) else outcome_unknown(error))
        self.close()
        self._on_failed()

    async def _apply(self, items: Sequence[BatchItem]) -> None:
        changes: list[Changes] = []
        turn = 0
        try:
            for item in items:
                work = work_of(item.command, item.size)
                # Before a command that would make the turn too long, never within one: each is applied as a whole.
                if turn + work > TURN_BYTES:
                    await self.turns.next()
                    turn = 0
                turn += work
                changes.append(self._apply_one(item))
        finally:
            self.batches += 1
            self._on_batch(tuple(chain.from_iterable(changes)))

    def _apply_one(self, item: BatchItem) -> Changes:
        times = self._times
        began = times.now() if times is not None else 0.0
        step = apply(self.state, item.command, index=self.state.index + 1)
        if times is not None:
            times.applied(item.command, began)
        assert step.state.index == self.state.index + 1, (step.state.index, self.state.index)
        # Observers of the change and waiting proposers must find it in the state: so the state comes first.
        self.state = step.state
        self._on_their_way = max(0, self._on_their_way - 1)
        self._on_applied(item.command, step.changes, item.size)
        if item.proposal is not None:
            item.proposal.add(Committed(step.result, step.state))
        return step.changes


def error_of(rejected: Rejected) -> YurtError:
    """The exception that a proposer gets for a rejection."""
    text, reason = rejected.message, rejected.reason
    match rejected.kind:
        case "not_found":
            return NotFound(text, reason=reason)
        case "conflict":
            return Conflict(text, reason=reason)
        case "invalid":
            return Invalid(text, reason=reason)
        case "denied":
            return PermissionDenied(text, reason=reason)
        case "stale":
            return Stale(text, reason=reason)
        case _:
            assert_never(rejected.kind)
