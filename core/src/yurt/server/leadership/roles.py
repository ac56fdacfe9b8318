"""Leading and following: what this server is in the cluster, and what runs because of it.

The log says by `campaign` who leads. Each word of it is taken in at once, whatever is under way: a loss closes the
writer in the same moment. A second task brings what runs into line with the newest word: it ends the work of the role
before, waits until that is gone, and begins the other one. So however gains and losses follow each other, at most one
term or one follower runs, nothing waits for its notifications to be read, and no work of a term outlives it (A3, A4).

Following: the entries that others append are applied as they come. Leading: the log is read to its end, then the
writer is opened and the term begins. A word that came meanwhile is seen before the writer is opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from yurt.runtime.supervise import attempted, supervised
from yurt.sdk.errors import YurtError
from yurt.sdk.value import replace
from yurt.server.failures import LeaderMoved
from yurt.server.leadership.term import Term
from yurt.server.log.catch_up import fetch_snapshot
from yurt.storage.log import CommandLog, Leadership, LogTrimmed
from yurt.structs.cluster import AutopilotConfiguration, SchedulerConfiguration
from yurt.structs.commands import DropStagedPlans, SetAutopilotConfiguration, SetSchedulerConfiguration

if TYPE_CHECKING:
    from yurt.server.server import Server

log = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
RESIGN_LIMIT_S: Final = 2.0
CONTACT_S: Final = 1.0
"""How often a server that follows asks the leader whether it is there."""


class Roles:
    """The role of one server."""

    def __init__(self, server: Server, command_log: CommandLog) -> None:
        self.term: Term | None = None
        self.leader_since = 0
        self.contact_at = server.env.monotonic()
        self._server = server
        self._log = command_log
        self._told = Leadership(is_leader=False, epoch=0)
        self._turn = 0
        self._turned = asyncio.Event()
        self.news = 0
        self._has_news = asyncio.Event()
        self._lookers: set[Callable[[], None]] = set()
        self._ready = asyncio.Event()
        self._must_resign = False

    @property
    def leader_name(self) -> str:
        """The server that leads, as far as this one knows; "" for nobody."""
        if self._told.is_leader:
            return self._server.config.name if self._server.writer.is_open else ""
        return self._told.leader if self._told.leader != self._server.config.name else ""

    @property
    def epoch(self) -> int:
        """The number of the term that this server knows of; 0: none yet."""
        return self._told.epoch

    @property
    def last_contact_s(self) -> float:
        """How long ago this server heard of the leader; 0 while it leads."""
        return 0.0 if self.term is not None else self._server.env.monotonic() - self.contact_at

    async def wait_news(self, seen: int, timeout_s: float) -> None:
        """Wait until more is known of who leads than at `news == seen`, or the time is over."""
        if self.news != seen:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._has_news.wait()
        except TimeoutError:
            return

    @asynccontextmanager
    async def while_led_by(
        self, name: str, may_end: Callable[[], bool] = lambda: True, *, grace_s: float = 0.0
    ) -> AsyncIterator[None]:
        """Ends what is done inside by LeaderMoved once another server leads than the one of that name, or soon after.

        A leader that hangs does not answer, and its connection stands for some seconds more.
        """
        loop, limit, has_moved = asyncio.get_running_loop(), asyncio.timeout(None), False

        def look() -> None:
            nonlocal has_moved
            if self.leader_name not in (name, "") and may_end() and not has_moved:
                has_moved = True
                limit.reschedule(loop.time() + grace_s)

        try:
            async with limit:
                self._lookers.add(look)
                try:
                    yield
                finally:
                    self._lookers.discard(look)
        except TimeoutError:
            if not limit.expired():
                raise
            raise LeaderMoved(name) from None

    async def wait_following(self) -> None:
        """Return when another server leads."""
        while self.leader_name in ("", self._server.config.name):
            await self._has_news.wait()

    async def run(self, ready: asyncio.Event) -> None:
        """Follow or lead until cancelled; `ready` is set once a leader is known."""
        self._ready = ready
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_campaign(), name="campaign")
            group.create_task(self._keep(), name="role")

    async def run_contact(self) -> None:
        """Stay in contact with the leader, until cancelled: what it stores tells of it too, but it may be idle."""
        server = self._server
        while True:
            await self.wait_following()
            name = self.leader_name
            try:
                async with asyncio.timeout(CONTACT_S):
                    status = await server.peers.peer(name).status()
                if status.is_leader:
                    self.contact_at = server.env.monotonic()
            except (YurtError, TimeoutError) as error:
                log.debug("no contact with the leader: %s", error)
            await server.env.sleep(CONTACT_S)

    def step_down(self) -> None:
        """An append failed: lead no more until the log says that this server has won again."""
        if self._told.is_leader:
            self._must_resign = True
            self._take(replace(self._told, is_leader=False, leader=""))

    def begin_anew(self) -> None:
        """The state was replaced: the duties of a leader begin again on the new one."""
        if self.term is not None:
            self._turn += 1
            self._turned.set()

    async def _read_campaign(self) -> None:
        """Take in what the log says, until it is closed; one that fails is asked again."""
        while True:
            try:
                async for told in self._log.campaign():
                    self._must_resign = False
                    self._take(told)
                return
            except YurtError as error:
                log.warning("the campaign for leadership broke off and begins again: %s", error)
                self._take(Leadership(is_leader=False, epoch=self._told.epoch))
            await self._server.env.sleep(RETRY_MAX_S)

    def _take(self, told: Leadership) -> None:
        before, self._told = self._told, told
        if not told.is_leader or told.epoch != before.epoch:
            self._server.writer.close()
        if told.leader:
            self.contact_at = self._server.env.monotonic()
        if told.is_leader or before.is_leader:
            self._turn += 1
            self._turned.set()
        if told.leader and told.leader != before.leader and not told.is_leader:
            log.info("server %s leads: term=%d", told.leader, told.epoch)
        self._tell()

    def _tell(self) -> None:
        self.news += 1
        for look in tuple(self._lookers):
            look()
        told, self._has_news = self._has_news, asyncio.Event()
        told.set()
        if self.leader_name:
            self._ready.set()

    async def _keep(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._turned.clear()
                role, name = (self._lead, "leader") if self._told.is_leader else (self._follow, "follower")
                if self._server.writer.broken:
                    role, name = self._stand_still, "without a log"
                work = supervised(group, name, role(self._turn), on_error=lambda _: self.step_down())
                await self._turned.wait()
                self.term = None
                work.cancel()
                await asyncio.wait({work})

    async def _stand_still(self, turn: int) -> None:
        """Neither: the log takes and tells nothing any more."""
        await asyncio.Event().wait()

    # Leading.

    async def _lead(self, turn: int) -> None:
        """Begin a term, again and again until it stands, and run it."""
        pause_s = RETRY_FIRST_S
        while True:
            try:
                term = await self._begin_term(turn)
                break
            except LogTrimmed as error:
                log.error("this server cannot lead, it is too far behind: %s", error)
                self.step_down()
                return
            except YurtError as error:
                log.error("leading cannot begin yet: %s", error)
            await self._server.env.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_MAX_S)
        await term.run()

    async def _begin_term(self, turn: int) -> Term:
        server, writer = self._server, self._server.writer
        if not writer.is_open:
            await writer.catch_up()
            if turn != self._turn:
                await asyncio.Event().wait()  # this role is about to be cancelled
            writer.open()
            await self._set_defaults()
            if len(server.state.staged_plans):
                await server.propose(DropStagedPlans())
        term = Term(server)
        term.restore()
        self.term = term
        self.leader_since = server.env.now()
        log.info("this server leads: term=%d index=%d", self._told.epoch, server.state.index)
        self._tell()
        return term

    async def _set_defaults(self) -> None:
        """What the agent's file says of the scheduler and of autopilot holds until somebody stores something else."""
        server = self._server
        minding, configured = server.config.autopilot_config, server.config.scheduler_config
        if minding != AutopilotConfiguration() and "" not in server.state.autopilot_configurations:
            await server.writer.submit(SetAutopilotConfiguration(configuration=minding, check_index=0))
        if configured != SchedulerConfiguration() and "" not in server.state.scheduler_configurations:
            await server.writer.submit(SetSchedulerConfiguration(configuration=configured, check_index=0))

    # Following.

    async def _follow(self, turn: int) -> None:
        """Apply what others append, until cancelled."""
        if self._must_resign:
            self._must_resign = False
            await self.resign()
        await self._server.writer.wait_idle()
        pause_s = RETRY_FIRST_S
        while turn == self._turn:
            before = self._server.state.index
            await attempted(f"following the command log from index {before}", self._follow_log(), level=logging.WARNING)
            if self._server.state.index > before:
                pause_s = RETRY_FIRST_S
                continue
            await self._server.env.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_MAX_S)

    async def _follow_log(self) -> None:
        writer = self._server.writer
        try:
            async for entry in self._log.follow(writer.state.index):
                self.contact_at = self._server.env.monotonic()
                await writer.take(entry)
        except LogTrimmed as error:
            log.warning("this server is too far behind and fetches a snapshot: %s", error)
            await self._server.install(await fetch_snapshot(self._server.peers, self._log, after=writer.state.index))

    async def resign(self) -> None:
        """Let another server lead at once, if there is one and this one leads."""
        try:
            async with asyncio.timeout(RESIGN_LIMIT_S):
                await self._log.resign()
        except (YurtError, TimeoutError) as error:
            log.warning("leadership could not be given up: %s", str(error) or "no answer in time")
