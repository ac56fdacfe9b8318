"""The role of a server, leader or follower, and the loops that it runs in that role.

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
from collections.abc import Awaitable, Callable
from typing import Final

from yurt.runtime.supervise import attempted, supervised
from yurt.sdk.errors import YurtError
from yurt.sdk.value import replace
from yurt.server.config import ServerConfig
from yurt.server.leadership.term import Term
from yurt.server.log.cluster_identity import ClusterIdentity, cluster_id_of
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.replica import Replica
from yurt.storage.log import CommandLog, Leadership, LogTrimmed
from yurt.structs.cluster import AutopilotConfiguration, SchedulerConfiguration
from yurt.structs.commands import DropStagedPlans, SetAutopilotConfiguration, SetSchedulerConfiguration

log = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
RESIGN_LIMIT_S: Final = 2.0
CONTACT_S: Final = 1.0
"""The interval in seconds at which a follower confirms that the leader is alive."""


class Roles:
    """The role of one server."""

    def __init__(
        self,
        replica: Replica,
        leader: CurrentLeader,
        command_log: CommandLog,
        *,
        config: ServerConfig,
        make_term: Callable[[], Term],
        fetch_state: Callable[[], Awaitable[None]],
    ) -> None:
        """`make_term` creates the leader's parts; `fetch_state` loads a newer state from another server."""
        self.term: Term | None = None
        """The running term while this server leads."""
        self._replica = replica
        self._leader = leader
        self._log = command_log
        self._config = config
        self._make_term = make_term
        self._fetch_state = fetch_state
        self._turn = 0
        self._role_changed = asyncio.Event()
        self._ready = asyncio.Event()
        self._must_resign = False

    async def run(self, ready: asyncio.Event) -> None:
        """Follow or lead until cancelled; `ready` is set once a leader is known."""
        self._ready = ready
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_campaign(), name="campaign")
            group.create_task(self._run_roles(), name="role")

    async def run_contact(self) -> None:
        """Stay in contact with the leader until cancelled, since an idle leader stores nothing that shows it is alive.

        A server that leads confirms that it does so still.
        """
        while True:
            await self._leader.wait_settled()
            try:
                if self._leader.is_local:
                    await self._leader.confirm()
                else:
                    await self._ask_leader()
            except (YurtError, TimeoutError) as error:
                log.debug("no contact with the leader: %s", error)
            await self._replica.env.sleep(CONTACT_S)

    async def _ask_leader(self) -> None:
        name, requested_at = self._leader.name, self._replica.env.monotonic()
        async with asyncio.timeout(CONTACT_S):
            status = await self._leader.peers.peer(name).status()
        if status.is_leader:
            self._leader.note_index(status.index, requested_at)

    async def confirm(self) -> None:
        """Return once this server is confirmed to lead; raises Unavailable ("No cluster leader")."""
        await self._leader.confirm()

    def step_down(self) -> None:
        """Stop leading after a failed append, until the log reports the next election won."""
        if self._leader.leadership.is_leader:
            self._must_resign = True
            self._adopt(replace(self._leader.leadership, is_leader=False, leader=""))

    def restart_duties(self) -> None:
        """Restart the leader's duties after the state was replaced."""
        if self.term is not None:
            self._turn += 1
            self._role_changed.set()

    async def _read_campaign(self) -> None:
        """Process the log's campaign until it is closed; a failed campaign is retried."""
        while True:
            try:
                async for reported in self._log.campaign():
                    self._must_resign = False
                    self._adopt(reported)
                return
            except YurtError as error:
                log.warning("the campaign for leadership broke off and begins again: %s", error)
                self._adopt(Leadership(is_leader=False, epoch=self._leader.leadership.epoch))
            await self._replica.env.sleep(RETRY_MAX_S)

    def _adopt(self, reported: Leadership) -> None:
        before = self._leader.leadership
        self._leader.learn(reported)
        # Before anything else of the new term: what an earlier term accepted must not be appended in this one.
        if not reported.is_leader or reported.epoch != before.epoch:
            self._replica.writer.close()
        if reported.is_leader or before.is_leader:
            self._turn += 1
            self._role_changed.set()
        if reported.leader and reported.leader != before.leader and not reported.is_leader:
            log.info("another server leads: server=%s term=%d", reported.leader, reported.epoch)
        self._announce()

    def _announce(self) -> None:
        self._leader.announce()
        if self._leader.name:
            self._ready.set()

    async def _run_roles(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._role_changed.clear()
                role, name = (self._lead, "leader") if self._leader.leadership.is_leader else (self._follow, "follower")
                if self._replica.writer.broken:
                    role, name = self._run_without_log, "without a log"
                work = supervised(group, name, role(self._turn), on_error=lambda _: self.step_down())
                await self._role_changed.wait()
                # Nobody finds the queues of a term that is over; only then are its duties cancelled.
                self.term = None
                self._leader.end_term()
                work.cancel()
                await asyncio.wait({work})

    async def _run_without_log(self, turn: int) -> None:
        """Neither lead nor follow: the log has failed."""
        await asyncio.Event().wait()

    # Leading.

    async def _lead(self, turn: int) -> None:
        """Begin a term, with retries, and run it."""
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
            await self._replica.env.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_MAX_S)
        await term.run()

    async def _begin_term(self, turn: int) -> Term:
        replica, writer = self._replica, self._replica.writer
        read_at = replica.env.monotonic()
        if not writer.is_open:
            # The log first: a leader that decides on an older state would refuse, or accept, what others know better.
            await writer.catch_up()
            if turn != self._turn:
                await asyncio.Event().wait()  # this role is about to be cancelled
            writer.open()
            await ClusterIdentity(writer, replica.env).ensure()
            await self._set_defaults()
            # Parts that an earlier leader staged and did not apply belong to nobody, and would stay for ever.
            if len(replica.state.staged_plans):
                await replica.propose(DropStagedPlans())
        term = self._make_term()
        term.restore()
        self.term = term
        self._leader.begin_term(read_at)
        term_number, state = self._leader.leadership.epoch, replica.state
        cluster_id = cluster_id_of(state) or "none"
        log.info("this server leads: term=%d index=%d cluster_id=%s", term_number, state.index, cluster_id)
        self._announce()
        return term

    async def _set_defaults(self) -> None:
        """Store the agent's configuration of scheduler and autopilot as defaults until an operator changes them."""
        replica = self._replica
        autopilot, configured = self._config.autopilot_config, self._config.scheduler_config
        if autopilot != AutopilotConfiguration() and "" not in replica.state.autopilot_configurations:
            await replica.writer.submit(SetAutopilotConfiguration(configuration=autopilot, check_index=0))
        if configured != SchedulerConfiguration() and "" not in replica.state.scheduler_configurations:
            await replica.writer.submit(SetSchedulerConfiguration(configuration=configured, check_index=0))

    # Following.

    async def _follow(self, turn: int) -> None:
        """Apply other servers' entries, until cancelled."""
        if self._must_resign:
            self._must_resign = False
            await self.resign()
        await self._replica.writer.wait_idle()
        pause_s = RETRY_FIRST_S
        while turn == self._turn:
            before = self._replica.state.index
            await attempted(f"following the command log from index {before}", self._follow_log(), level=logging.WARNING)
            if self._replica.state.index > before:
                pause_s = RETRY_FIRST_S
                continue
            await self._replica.env.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_MAX_S)

    async def _follow_log(self) -> None:
        writer = self._replica.writer
        try:
            async for entry in self._log.follow(writer.state.index):
                self._leader.note_contact()
                await writer.take(entry)
        except LogTrimmed as error:
            log.warning("this server is too far behind and fetches a snapshot: %s", error)
            await self._fetch_state()

    async def resign(self) -> None:
        """Transfer leadership to another server at once, if this server leads and another exists."""
        try:
            async with asyncio.timeout(RESIGN_LIMIT_S):
                await self._log.resign()
        except (YurtError, TimeoutError) as error:
            log.warning("leadership could not be given up: %s", str(error) or "no answer in time")
