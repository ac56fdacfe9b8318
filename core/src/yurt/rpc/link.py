"""The dialling end: one connection to one of several servers, reconnected whenever it ends.

A caller that needs the connection waits a moment for it, so that a server's end is a short delay for its clients and no
error. Servers are tried in turn, the next one at once, all of them again after a growing pause. Each link has an order
of its own, so that the clients of a server that ends spread over the others.

A connection is left for the next server when: it ends; the machine behind it is silent (the kernel notices within
`wire.SILENCE_S`, whatever hangs or was cut off); the process behind it answers nothing (`silence`); the servers no
longer name it; or the client says that it is of no use (`doubt`). When servers are new, some links move to
them as soon as nothing is under way, so that every server has its share.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from yurt.rpc.dialling import Dialler
from yurt.rpc.frames import Welcome
from yurt.rpc.peer import ConnectionLost, Peer, Served
from yurt.rpc.server_order import ServerOrder
from yurt.rpc.silence import WAITING_S, SilenceWatch
from yurt.rpc.wire import SocketWire
from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable, YurtError
from yurt.sdk.value import Value

log = logging.getLogger(__name__)

LOOK_S = 1.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 5.0
PATIENCE_S = 10.0
"""How long a call waits for a connection before it fails."""


class LinkTimes(Value):
    """How long a link waits between two rounds through its servers, when it gives up before its first connection, and
    how long an idle connection is silent before it is probed.

    `rounds_max` of 0 means never.
    """

    pause_max_s: float = PAUSE_MAX_S
    rounds_max: int = 0
    idle_s: float = WAITING_S


USUAL_TIMES = LinkTimes()


class Link:
    """The connection of an agent to its servers."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        *,
        dialler: Dialler,
        serves: Mapping[str, Served],
        env: Env,
        level: int = logging.INFO,
        times: LinkTimes = USUAL_TIMES,
    ) -> None:
        """Connections are logged at `level`, lower for one made for a single call."""
        self._times = times
        self.server = ""
        """The name of the server that is connected, or ""."""
        self._order = ServerOrder(addresses, env)
        self._env = env
        self._level = level
        self._listeners: list[Callable[[], None]] = []
        self._dialler = dialler
        self._serves = serves
        self._peer: Peer | None = None
        self._known_as = ""
        self._moves = False
        self._open = asyncio.Event()
        self._problem = "no connection has been tried yet"
        self._reported_problems: dict[str, str] = {}
        """The last logged state of each address; a change is logged again."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The servers in the order of attempts."""
        return self._order.addresses

    @property
    def problem(self) -> str:
        """Why there is no connection: the last failure."""
        return self._problem

    def subscribe(self, on_open: Callable[[], None]) -> None:
        """Register a callback for each established connection."""
        self._listeners.append(on_open)

    def learn(self, addresses: tuple[str, ...]) -> None:
        """Adopt the servers' own list; configured addresses come after it."""
        named, before = self._order.learn(addresses)
        if self._peer is None or not before:
            return
        fresh = named - before
        if self._known_as in before and self._known_as not in named:
            log.info("server %s is no longer one of the servers; going to the next one", self.server)
            self._peer.close()
        elif fresh and self._env.random() < len(fresh) / len(named):
            self._order.prefer(fresh)
            if not self._moves:
                self._moves = True
                self._env.call_later(LOOK_S, partial(self._move_when_idle, self._peer))

    def doubt(self, reason: str) -> None:
        """Leave the connected server if there is another one."""
        if self._peer is not None and len(self._order.addresses) > 1:
            log.warning("going from server %s to the next one: %s", self.server, reason)
            self._peer.close()

    async def peer(self) -> Peer:
        """The connection, once established; raises ConnectionLost when no server could be reached."""
        if self._peer is not None and not self._peer.is_open:
            self._peer = None
            self._open.clear()
        if self._peer is None:
            try:
                async with self._env.timeout(PATIENCE_S):
                    await self._open.wait()
            except TimeoutError:
                raise ConnectionLost(f"no server can be reached: {self._problem}") from None
            return await self.peer()
        return self._peer

    async def run(self) -> None:
        """Keep a connection until cancelled; raises Unavailable when the rounds before the first one are over."""
        pause_s, rounds_left = PAUSE_FIRST_S, self._times.rounds_max
        while True:
            tried = 0
            while tried < len(self._order.addresses):
                tried += 1
                if await self._use(self._order.next()):
                    pause_s, rounds_left = PAUSE_FIRST_S, 0
            if rounds_left == 1:
                rounds = self._times.rounds_max
                raise Unavailable(f"retry_max: no server could be reached in {rounds} rounds: {self._problem}")
            rounds_left -= 1
            pause_s = min(pause_s * 2, self._times.pause_max_s)
            await self._env.sleep(pause_s * (1 + self._env.random()) / 2)

    async def _use(self, address: str) -> bool:
        """Use a server until the connection ends; returns whether one was established."""
        wire = SocketWire()
        try:
            try:
                wire = await self._dialler.reach(address)
                welcome = await self._dialler.greet(wire)
            except YurtError as error:
                self._report_problem(address, error)
                return False
            await self._carry(wire, address, welcome)
            return True
        finally:
            wire.close()

    def _report_problem(self, address: str, error: YurtError) -> None:
        self._problem = f"{address}: {error}"
        if self._reported_problems.get(address) != str(error):
            log.warning("server cannot be used: address=%s error=%s", address, error)
        self._reported_problems[address] = str(error)

    async def _carry(self, wire: SocketWire, address: str, welcome: Welcome) -> None:
        def leave(silent_s: float) -> None:
            log.warning("server %s has said nothing for %g s", self.server, silent_s)
            wire.abort()
            peer.close()

        idle_s = self._times.idle_s
        silence = SilenceWatch(
            wire, self._env, idle_s=idle_s, is_lone=lambda: len(self._order.addresses) == 1, on_silence=leave
        )
        peer = Peer(wire, serves=self._serves, is_dialler=True, silence=silence)
        self._peer, self.server, self._known_as, self._moves = peer, welcome.name, welcome.rpc_addr or address, False
        self._open.set()
        for on_open in self._listeners:
            on_open()
        self._problem = "the connection has ended"
        self._reported_problems.clear()
        log.log(self._level, "connected to server: name=%s address=%s", welcome.name, address)
        silence.start()
        try:
            await peer.run()
        finally:
            silence.stop()
            self._open.clear()
            self._peer, self.server, self._known_as = None, "", ""
        log.warning("the connection to server %s at %s has ended", welcome.name, address)

    def _move_when_idle(self, peer: Peer) -> None:
        """Leave a server that should have fewer clients."""
        if self._peer is not peer or not peer.is_open:
            return
        if peer.is_idle:
            log.info("going from server %s to another one: there are more of them now", self.server)
            peer.close()
        else:
            self._env.call_later(LOOK_S, partial(self._move_when_idle, peer))
