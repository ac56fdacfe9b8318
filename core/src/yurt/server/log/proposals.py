"""Proposals that wait to be appended, and the waiters for their results.

They are stored in the order of their calls. A batch never exceeds `ENTRY_BYTES` in the log (A9): the commands of a
large proposal go into several, in their order, and a command that no entry can hold is refused. The commands of a
smaller proposal are in one entry, so they are stored together or not at all, and a lost leader leaves no part of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from yurt.sdk.errors import Invalid, Reason, Unavailable, YurtError
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs.commands import AnyCommand, ApplyPlan, RegisterJob, Result, StagePlan
from yurt.structs.commands.packed import packed
from yurt.structs.commands.versions import RegionRules, ruled

ENTRY_BYTES: Final = 1_048_576 - 4_096
"""The encoded size of a batch's commands, with a margin for the log's overhead; a larger command is written alone."""
PENDING_BYTES: Final = 64 * 1_048_576
NOT_ENCODED: Final = msgspec.Raw()
"""The placeholder for the encoding of a command that came from the log."""


class Committed(msgspec.Struct, frozen=True):
    """The result of a command, and the state at its position in the log.

    A caller is answered from this state and never from a newer one, which other commands may have changed.
    """

    result: Result
    state: Snapshot

    @property
    def index(self) -> int:
        """The index of the command."""
        return self.state.index


class Proposal:
    """Consecutive commands, and the results of those applied so far."""

    __slots__ = ("answer", "count", "results")

    def __init__(self, count: int, answer: asyncio.Future[tuple[Committed, ...]]) -> None:
        self.count = count
        self.answer = answer
        self.results: list[Committed] = []

    def add(self, committed: Committed) -> None:
        """Record an applied command; the last one completes the proposal."""
        assert not self.results or committed.index > self.results[-1].index, "applied in the order of the proposal"
        self.results.append(committed)
        if len(self.results) == self.count and not self.answer.done():
            self.answer.set_result(tuple(self.results))

    def fail(self, error: Exception) -> None:
        """Fail the remaining commands."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # the proposer may have been cancelled


class Prepared(NamedTuple):
    """A command with its encoding, made ahead of `enqueue` in any thread."""

    command: AnyCommand
    stored: AnyCommand
    size: int
    encoded: msgspec.Raw
    """`stored` in MessagePack: the log takes it as it is."""


class BatchItem(NamedTuple):
    """A waiting command: as proposed, as encoded, its size, and its waiter."""

    command: AnyCommand
    stored: AnyCommand
    size: int
    encoded: msgspec.Raw = NOT_ENCODED
    proposal: Proposal | None = None


def _stored(command: AnyCommand) -> AnyCommand:
    """The command as encoded in the log: a plan's placements are packed, to a tenth of their size."""
    if isinstance(command, ApplyPlan | StagePlan):
        plan = packed(command.plan)
        return command if plan is command.plan else replace(command, plan=plan)
    return command


class ProposalQueue:
    """The queue of proposals to append."""

    def __init__(self, rules: Callable[[], RegionRules]) -> None:
        """`rules`: those of the region, which commands are written by."""
        self._rules = rules
        self._items: deque[BatchItem] = deque()
        self._bytes = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def prepare(self, commands: Sequence[AnyCommand]) -> list[Prepared]:
        """Encode and measure commands.

        Raises Invalid for a job too large for a log entry, Conflict for what a server of the region does not know yet.
        """
        return [self._prepared(command) for command in commands]

    def add(self, commands: Sequence[AnyCommand | Prepared]) -> asyncio.Future[tuple[Committed, ...]]:
        """Add consecutive commands; results arrive when all are applied.

        Raises Unavailable for a full queue, otherwise as `prepare`.
        """
        if self._bytes >= PENDING_BYTES:
            raise Unavailable("too many changes wait to be stored; try again in a moment", reason=Reason.OVERLOADED)
        answer: asyncio.Future[tuple[Committed, ...]] = asyncio.get_running_loop().create_future()
        if not commands:
            answer.set_result(())
        proposal = Proposal(len(commands), answer)
        # All or none: one that cannot be prepared must leave none of them waiting.
        made = [self._current(each) for each in commands]
        for each in made:
            self._items.append(BatchItem(*each, proposal))
            self._bytes += each.size
        self._wake.set()
        return answer

    async def wait(self) -> None:
        """Return when the queue is not empty."""
        await self._wake.wait()
        self._wake.clear()

    def next_batch(self) -> list[BatchItem]:
        """The commands for the next entry; empty when none wait."""
        batch: list[BatchItem] = []
        size = 0
        # The first goes whatever its size: one that no entry can hold is refused by the log, and others go on.
        while self._items and (not batch or size + self._items[0].size <= ENTRY_BYTES):
            batch.append(self._items.popleft())
            size += batch[-1].size
        # A proposal that does not fit begins the next batch, so that only one larger than an entry is cut.
        cut = self._items[0].proposal if self._items else None
        while cut is not None and batch[-1].proposal is cut and batch[0].proposal is not cut:
            self._items.appendleft(batch.pop())
            size -= self._items[0].size
        self._bytes -= size
        assert self._bytes >= 0 and (self._items or self._bytes == 0), (self._bytes, len(self._items))
        assert len(batch) <= 1 or size <= ENTRY_BYTES, (len(batch), size, "no entry exceeds its bound (A9)")
        return batch

    def fail(self, error: Callable[[], YurtError]) -> None:
        """Fail all waiting proposals, each with an exception of its own."""
        while self._items:
            proposal = self._items.popleft().proposal
            assert proposal is not None
            proposal.fail(error())
        self._bytes = 0

    def _current(self, each: AnyCommand | Prepared) -> Prepared:
        """The command by the rules of now: while it was encoded, an older server may have come back."""
        if not isinstance(each, Prepared):
            return self._prepared(each)
        return each if each.command.rules_version <= self._rules().version else self._prepared(each.command)

    def _prepared(self, command: AnyCommand) -> Prepared:
        command = ruled(command, self._rules())
        stored = _stored(command)
        data = self._encoder.encode(stored)
        size = len(data)
        if size > ENTRY_BYTES and isinstance(command, RegisterJob):
            raise Invalid(f"the job takes {size} bytes in the command log, {ENTRY_BYTES} are possible; make it smaller")
        return Prepared(command, stored, size, msgspec.Raw(data))


def fail(batch: Sequence[BatchItem], error: YurtError) -> None:
    """Fail a batch whose application will not be reported."""
    for item in batch:
        if item.proposal is not None:
            item.proposal.fail(error)
