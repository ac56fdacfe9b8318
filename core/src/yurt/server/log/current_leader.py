"""The leader as far as this server knows: the log's last report, and whether a term runs here.

`leadership.roles` is the only one to change it. Everybody else asks: operations whether they may be carried out here,
calls for a leader where to go, and requests under way whether the server that they were passed to still leads.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable
from yurt.server.failures import LeaderMoved, no_leader
from yurt.server.log.log_writer import LogWriter
from yurt.server.peers import PeerPort, Peers
from yurt.storage.log import CommandLog, Leadership

CONFIRM_LIMIT_S: Final = 5.0
CONFIRMED_S: Final = 2.0
"""The seconds for which a confirmed leader's state counts as the newest."""


class CurrentLeader:
    """The leader of the region."""

    def __init__(self, own_name: str, *, command_log: CommandLog, writer: LogWriter, peers: Peers, env: Env) -> None:
        self.own_name = own_name
        self.terms = 0
        """The number of terms that have begun on this server. If it is unchanged, and this server led both times, it
        led without a break."""
        self.report_count = 0
        """A number that grows with each report."""
        self._log = command_log
        self._writer = writer
        self.peers = peers
        self._env = env
        self._leadership = Leadership(is_leader=False, epoch=0)
        self._has_term = False
        self._contact_at = env.monotonic()
        self.newest_at_s = -math.inf
        """The last time, by the monotonic clock, at which the state here is known to have been the newest."""
        self._target: tuple[int, float] | None = None
        """An index that the leader had at a time, and that this server has not reached yet."""
        self._has_changes = asyncio.Event()
        self._observers: dict[Callable[[], None], None] = {}
        """In the order in which they came: the address of a function, which a set goes by, differs from run to run."""

    @property
    def monotonic(self) -> Callable[[], float]:
        """The clock of `newest_at_s`."""
        return self._env.monotonic

    @property
    def is_local(self) -> bool:
        """Whether this server leads and its duties run."""
        return self._has_term and self._writer.is_open

    @property
    def is_confirmed_by_others(self) -> bool:
        """Whether `confirm` asks other servers, and so waits."""
        return self._log.has_other_servers

    @property
    def name(self) -> str:
        """The leader's name; "" for none."""
        if self._leadership.is_leader:
            return self.own_name if self._writer.is_open else ""
        return self._leadership.leader if self._leadership.leader != self.own_name else ""

    @property
    def leadership(self) -> Leadership:
        """The last report of the log's campaign."""
        return self._leadership

    @property
    def last_contact_s(self) -> float:
        """The seconds since the last contact with the leader; 0 while this server leads."""
        return 0.0 if self._has_term else self._env.monotonic() - self._contact_at

    @property
    def state_age_s(self) -> float:
        """The seconds since the state of this server was known to be the newest; infinite before it ever was.

        Contact with the leader is not enough: the log may not reach a server that hears from the leader. A leader
        confirms each second that it leads, and its state counts as the newest in between. When it was frozen, another
        server may have led meanwhile, which it learns a moment after it goes on.
        """
        if not self._has_term:
            self._update_newest_at()
        age_s = self._env.monotonic() - self.newest_at_s
        return 0.0 if self._has_term and age_s <= CONFIRMED_S else age_s

    def peer(self) -> PeerPort:
        """The leader; raises Unavailable ("No cluster leader") without one, or when it is this server."""
        name = self.name
        if name in ("", self.own_name):
            raise no_leader()
        return self.peers.peer(name)

    async def confirm(self) -> None:
        """Return once this server is confirmed to lead; raises Unavailable ("No cluster leader").

        The log may confirm a later term than the one in which it was asked, whose state is not applied here yet.
        """
        requested_at = self._env.monotonic()
        try:
            if self._log.has_other_servers:
                async with asyncio.timeout(CONFIRM_LIMIT_S):
                    await self._log.confirm()
            else:
                await self._log.confirm()  # which asks nobody: a time limit would cost each read more than that
        except (Unavailable, TimeoutError):
            raise no_leader() from None
        if not self.is_local:
            raise no_leader()
        self.newest_at_s = max(self.newest_at_s, requested_at)

    async def resign(self, to: str) -> None:
        """Transfer the leadership of this server to another one."""
        await self._log.resign(to=to)

    async def wait_change(self, seen: int, timeout_s: float) -> None:
        """Wait for a report newer than `report_count == seen`, up to a time limit."""
        if self.report_count != seen:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._has_changes.wait()
        except TimeoutError:
            return

    async def wait_following(self) -> None:
        """Return when another server leads."""
        while self.name in ("", self.own_name):
            await self._has_changes.wait()

    async def wait_settled(self) -> None:
        """Return when another server leads, or a term runs here."""
        while not self.is_local and self.name in ("", self.own_name):
            await self._has_changes.wait()

    @asynccontextmanager
    async def while_led_by(
        self, name: str, may_end: Callable[[], bool] = lambda: True, *, grace_s: float = 0.0
    ) -> AsyncIterator[None]:
        """Interrupts its block with LeaderMoved, after `grace_s`, when a server of another name leads.

        A leader that hangs does not answer, and its connection stands for some seconds more.
        """
        loop, limit, has_moved = asyncio.get_running_loop(), asyncio.timeout(None), False

        def observe() -> None:
            nonlocal has_moved
            if self.name not in (name, "") and may_end() and not has_moved:
                has_moved = True
                limit.reschedule(loop.time() + grace_s)

        try:
            async with limit:
                self._observers[observe] = None
                try:
                    yield
                finally:
                    self._observers.pop(observe, None)
        except TimeoutError:
            if not limit.expired():
                raise
            raise LeaderMoved(name) from None

    # What the role of this server changes.

    def learn(self, leadership: Leadership) -> None:
        """Record a report of the campaign; waiters are woken by `announce`, after the role has acted."""
        self._leadership = leadership
        if leadership.leader:
            self.note_contact()

    def note_contact(self) -> None:
        """Record a contact with the leader."""
        self._contact_at = self._env.monotonic()

    def note_index(self, index: int, requested_at: float) -> None:
        """Record the index that the leader reported for a query at that time; the oldest one not reached counts."""
        self.note_contact()
        self._update_newest_at()
        if self._target is None:
            self._target = (index, requested_at)

    def _update_newest_at(self) -> None:
        """A state that has reached the leader's index was the newest when the leader was queried."""
        if self._target is not None and self._writer.state.index >= self._target[0]:
            self.newest_at_s, self._target = max(self.newest_at_s, self._target[1]), None

    def begin_term(self, read_at: float) -> None:
        """Record that this server's duties run; it began at `read_at` to read the log to its end."""
        self._has_term = True
        self.newest_at_s = max(self.newest_at_s, read_at)
        self.terms += 1

    def end_term(self) -> None:
        """Record that this server's duties have ended."""
        self._has_term = False

    def announce(self) -> None:
        """Wake all waiters for a report or a change of the leader."""
        self.report_count += 1
        for observe in tuple(self._observers):
            observe()
        changed, self._has_changes = self._has_changes, asyncio.Event()
        changed.set()
