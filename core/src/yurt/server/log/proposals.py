"""Proposals on their way to the log: what was proposed and is not being appended yet, and who waits for its results.

They are stored in the order of their calls. A batch never exceeds `ENTRY_BYTES` in the log (A9): the commands of a
large proposal go into several, in their order, and a command that no entry can hold is refused.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from yurt.sdk.errors import Invalid, Reason, Unavailable, YurtError
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs.commands import AnyCommand, ApplyPlan, RegisterJob, Result, StagePlan
from yurt.structs.packed import packed

ENTRY_BYTES: Final = 1_048_576 - 4_096
"""A batch's commands as the log encodes them, with room for what the log adds; a larger command goes alone."""
PENDING_BYTES: Final = 64 * 1_048_576
NOT_ENCODED: Final = msgspec.Raw()
"""What an entry's command has that came from the log."""


@dataclasses.dataclass(frozen=True, slots=True)
class Committed:
    """What `apply` made of a command: its result, and the state at its position in the log.

    A caller is answered from this state and never from a newer one, which other commands may have changed.
    """

    result: Result
    state: Snapshot

    @property
    def index(self) -> int:
        """The index of the command."""
        return self.state.index


class Proposal:
    """Consecutive commands, and the results of those that were applied so far."""

    __slots__ = ("answer", "count", "results")

    def __init__(self, count: int, answer: asyncio.Future[tuple[Committed, ...]]) -> None:
        self.count = count
        self.answer = answer
        self.results: list[Committed] = []

    def add(self, committed: Committed) -> None:
        """One more was applied; the last one answers."""
        self.results.append(committed)
        if len(self.results) == self.count and not self.answer.done():
            self.answer.set_result(tuple(self.results))

    def fail(self, error: Exception) -> None:
        """The rest will not be applied."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # whoever proposed may have been cancelled


class Prepared(NamedTuple):
    """A command with what the log will hold of it, made ahead of `enqueue` and in any thread."""

    command: AnyCommand
    stored: AnyCommand
    size: int
    encoded: msgspec.Raw
    """`stored` in MessagePack: the log takes it as it is."""


class Item(NamedTuple):
    """A command on its way: as it was proposed and as the log holds it, its size there, and who waits for it."""

    command: AnyCommand
    stored: AnyCommand
    size: int
    encoded: msgspec.Raw = NOT_ENCODED
    proposal: Proposal | None = None


def _stored(command: AnyCommand) -> AnyCommand:
    """The command as the log holds it: a plan with its placements packed, which is a tenth of their size."""
    if isinstance(command, ApplyPlan | StagePlan):
        plan = packed(command.plan)
        return command if plan is command.plan else replace(command, plan=plan)
    return command


class ProposalQueue:
    """The proposals that wait to be appended."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def prepare(self, commands: Sequence[AnyCommand]) -> list[Prepared]:
        """Pack and measure commands; raises Invalid for a job that no entry of the log can hold."""
        return [self._prepared(command) for command in commands]

    def add(self, commands: Sequence[AnyCommand | Prepared]) -> asyncio.Future[tuple[Committed, ...]]:
        """Take consecutive commands; the results come when all are applied. Raises Unavailable when too much waits."""
        if self._bytes >= PENDING_BYTES:
            raise Unavailable("too many changes wait to be stored; try again in a moment", reason=Reason.OVERLOADED)
        answer: asyncio.Future[tuple[Committed, ...]] = asyncio.get_running_loop().create_future()
        if not commands:
            answer.set_result(())
        proposal = Proposal(len(commands), answer)
        made = [each if isinstance(each, Prepared) else self._prepared(each) for each in commands]
        self._items.extend([Item(*each, proposal) for each in made])
        self._bytes += sum([each.size for each in made])
        self._wake.set()
        return answer

    async def wait(self) -> None:
        """Return when something was added."""
        await self._wake.wait()
        self._wake.clear()

    def next_batch(self) -> list[Item]:
        """What goes into the next entry; nothing when nothing waits."""
        batch: list[Item] = []
        size = 0
        while self._items and (not batch or size + self._items[0].size <= ENTRY_BYTES):
            batch.append(self._items.popleft())
            size += batch[-1].size
        self._bytes -= size
        return batch

    def fail(self, error: Callable[[], YurtError]) -> None:
        """Nothing that waits is appended any more; each proposal gets an error of its own."""
        while self._items:
            proposal = self._items.popleft().proposal
            assert proposal is not None
            proposal.fail(error())
        self._bytes = 0

    def _prepared(self, command: AnyCommand) -> Prepared:
        stored = _stored(command)
        data = self._encoder.encode(stored)
        size = len(data)
        if size > ENTRY_BYTES and isinstance(command, RegisterJob):
            raise Invalid(f"the job takes {size} bytes in the command log, {ENTRY_BYTES} are possible; make it smaller")
        return Prepared(command, stored, size, msgspec.Raw(data))


def fail(batch: Sequence[Item], error: YurtError) -> None:
    """Nobody will know of a batch that it was applied."""
    for item in batch:
        if item.proposal is not None:
            item.proposal.fail(error)
