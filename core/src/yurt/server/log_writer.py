"""The one writer: gathers proposals into a batch, appends it to the log, and applies its commands one a loop turn.

While an append is under way further proposals gather; they form the next batch. A command is answered when it is
durable and applied. An append that fails leaves its outcome unknown, so nothing more is acknowledged from this log
until a new term (A10).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from yurt.fsm import apply
from yurt.sdk.errors import Conflict, Invalid, NotFound, Unavailable, YurtError
from yurt.state import Changes, Snapshot
from yurt.storage.log import CommandLog
from yurt.structs.commands import AnyCommand, Applied, ApplyPlan, Rejected, Result

log = logging.getLogger(__name__)

NO_LEADER: Final = "No cluster leader"
BATCH_WEIGHT: Final = 2_000
"""Commands in a batch, an allocation of a plan counting as one; keeps an entry under 1 MiB."""
PENDING_LIMIT: Final = 50_000

OnApplied = Callable[[AnyCommand, Changes], None]
KINDS: Final[dict[str, type[YurtError]]] = {"not_found": NotFound, "conflict": Conflict, "invalid": Invalid}


class _Proposal(NamedTuple):
    commands: tuple[AnyCommand, ...]
    answer: asyncio.Future[tuple[Result, ...]]


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
        self._pending: deque[_Proposal] = deque()
        self._pending_weight = 0
        self._wake = asyncio.Event()
        self._refusal = NO_LEADER

    def open(self) -> None:
        """Accept proposals: this server leads. A log that failed once stays closed."""
        self._refusal = self._broken

    def close(self, reason: str = NO_LEADER) -> None:
        """Refuse proposals from now on, those that wait included."""
        self._refusal = reason
        while self._pending:
            _fail(self._pending.popleft(), Unavailable(reason))
        self._pending_weight = 0

    @property
    def is_open(self) -> bool:
        """Proposals are accepted."""
        return not self._refusal

    async def propose(self, command: AnyCommand) -> Applied:
        """The command's index once it is durable and applied; a rejected one is raised as its kind."""
        (result,) = await self.propose_all((command,))
        if isinstance(result, Rejected):
            raise KINDS.get(result.kind, Invalid)(result.message)
        return result

    async def propose_all(self, commands: Sequence[AnyCommand]) -> tuple[Result, ...]:
        """Results of consecutive commands, in order, once all of them are durable and applied."""
        if self._refusal:
            raise Unavailable(self._refusal)
        if self._pending_weight >= PENDING_LIMIT:
            raise Unavailable("too many changes wait to be stored; try again in a moment")
        proposal = _Proposal(tuple(commands), asyncio.get_running_loop().create_future())
        self._pending.append(proposal)
        self._pending_weight += _weight(proposal)
        self._wake.set()
        return await proposal.answer

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
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._pending:
                    await self._write(self._gather())
        finally:
            self.close("the server is shutting down")

    def _gather(self) -> list[_Proposal]:
        batch: list[_Proposal] = []
        weight = 0
        while self._pending and (not batch or weight + _weight(self._pending[0]) <= BATCH_WEIGHT):
            proposal = self._pending.popleft()
            weight += _weight(proposal)
            batch.append(proposal)
        self._pending_weight -= weight
        return batch

    async def _write(self, batch: list[_Proposal]) -> None:
        commands = [command for proposal in batch for command in proposal.commands]
        try:
            await self._log.append(self.state.index + 1, commands)
        except Exception as error:
            log.error("appending to the command log failed, this server stops leading: %s", error)
            if not isinstance(error, Conflict):
                self._broken = f"the command log failed, restart the agent once its disk is well: {error}"
            for proposal in batch:
                _fail(proposal, Unavailable(f"the change may not be stored: {error}"))
            self.close(self._broken or NO_LEADER)
            self._on_failed()
            return
        except asyncio.CancelledError:
            for proposal in batch:
                _fail(proposal, Unavailable("the server is shutting down; the change may or may not be stored"))
            raise
        await self._apply(batch)

    async def _apply(self, batch: list[_Proposal]) -> None:
        changes: list[Changes] = []
        for proposal in batch:
            results: list[Result] = []
            for command in proposal.commands:
                if changes:
                    await asyncio.sleep(0)
                step = apply(self.state, command, index=self.state.index + 1)
                self.state = step.state
                changes.append(step.changes)
                results.append(step.result)
                self._on_applied(command, step.changes)
            if not proposal.answer.done():
                proposal.answer.set_result(tuple(results))
        self.batches += 1
        self._on_batch(tuple(change for part in changes for change in part))


def _weight(proposal: _Proposal) -> int:
    return sum(
        1 + len(c.plan.placements) + len(c.plan.stops) if isinstance(c, ApplyPlan) else 1 for c in proposal.commands
    )


def _fail(proposal: _Proposal, error: Exception) -> None:
    if not proposal.answer.done():
        proposal.answer.set_exception(error)
