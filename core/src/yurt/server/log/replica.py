"""This server's replica of the state, which operations and duties read, propose to and wait for.

The state is what `apply` has made of the command log, and it changes through the log only: a command is proposed, or a
decision that names the rows it is based on (`decisions`). A replica is all that most operations and duties need of the
server; what else one needs (settings, keys, a way to the nodes) it names in its own constructor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from yurt.fsm.eval_triggers import Mint
from yurt.runtime.env import Env
from yurt.runtime.turns import Turns
from yurt.server.log.decisions import Contention, Decision, Propose, decide
from yurt.server.log.log_writer import Committed, LogWriter
from yurt.server.log.state_waits import StateWaiter
from yurt.state import Snapshot
from yurt.state.watch import WatchKey
from yurt.structs.commands import AnyCommand


class Replica:
    """The newest state, the ways to change it and wait for it, and the clock."""

    __slots__ = ("_contention", "env", "waiter", "writer")

    def __init__(self, writer: LogWriter, waiter: StateWaiter, env: Env) -> None:
        self.writer = writer
        self.waiter = waiter
        self.env = env
        self._contention = Contention()

    @property
    def state(self) -> Snapshot:
        """The newest state."""
        return self.writer.state

    @property
    def turns(self) -> Turns:
        """Yields to others between the slices of long work on the event loop."""
        return self.writer.turns

    # Both return the coroutine of another call instead of awaiting it: every write passes here, and saves a frame.

    def propose(self, command: AnyCommand) -> Awaitable[Committed]:
        """Propose a command; durable and applied on return. Raises NotFound, Conflict, Invalid or Unavailable."""
        return self.writer.propose(command)

    def submit(self, command: AnyCommand) -> Awaitable[Committed]:
        """`propose`, with a rejection returned, with its index."""
        return self.writer.submit(command)

    def decide(self, decision: Decision, *, propose: Propose | None = None) -> Awaitable[Committed]:
        """Decide on the newest state and have `apply` verify the basis of the decision.

        `propose` stands in for the log writer's where a rejection is answered with more than its text.
        """
        return decide(decision, self.writer, self._contention, propose=propose)

    async def wait_past(
        self, keys: Iterable[WatchKey], index_of: Callable[[Snapshot], int], *, min_index: int, timeout_s: float
    ) -> Snapshot:
        """A blocking query: the state once `index_of` it exceeds `min_index`, or at the time limit."""
        return await self.waiter.wait_past(keys, index_of, min_index=min_index, timeout_s=timeout_s)

    def mint(self) -> Mint:
        """The present time and new ids, for evaluations."""
        return Mint(self.env.now(), self.env.uuid)
