"""Exchanges membership updates with the other servers: over a connection to each, every second and after a change."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from yurt import __version__
from yurt.agent.cluster.members_port import MEMBERS, PORT, Ask, MembersPort, T
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.records import MembershipUpdate
from yurt.agent.cluster.security import ServerSecurity
from yurt.rpc.dialling import Dialler
from yurt.rpc.frames import Hello
from yurt.rpc.link import Link
from yurt.rpc.proxy import far_port
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import Unavailable, YurtError
from yurt.structs.member import ALIVE, LEAVING, LEFT, Member

ASK_INTERVAL_S = 1.0
ASK_LIMIT_S = 2.0
"""How long one exchange may take."""
JOIN_LIMIT_S = 5.0
"""How long a first exchange may take, the connection included."""
LOOK_INTERVAL_S = 0.5
"""How often statuses derived from silence are reevaluated."""
GOODBYE_LIMIT_S = 2.0


class Exchange:
    """The membership calls of one server to the others."""

    def __init__(self, membership: Membership, *, security: ServerSecurity, env: Env) -> None:
        self._membership = membership
        self._security = security
        self._env = env
        self._own_name = membership.own.name
        self._contacts: dict[str, tuple[str, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Exchange updates with all other servers until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                version = self._membership.version
                self._membership.reap()
                self._keep_contacts(group)
                if version == self._membership.version:
                    await self._membership.wait_change(LOOK_INTERVAL_S)

    def _keep_contacts(self, group: asyncio.TaskGroup) -> None:
        """Maintain a connection to every recorded server at its present address."""
        targets = {
            each.name: each
            for each in self._membership.members()
            if each.status != LEFT and each.name != self._own_name
        }
        for name, (address, task) in tuple(self._contacts.items()):
            if task.done() or name not in targets or targets[name].address != address:
                task.cancel()
                del self._contacts[name]
        for name, member in targets.items():
            if name not in self._contacts:
                task = supervised(group, f"news of {name}", self._keep_asking(member))
                self._contacts[name] = (member.address, task)

    async def _keep_asking(self, member: Member) -> None:
        link = self._link(member.address, member.region)
        port: MembersPort = far_port(MEMBERS, PORT, link.peer)
        async with asyncio.TaskGroup() as group:
            group.create_task(link.run(), name=f"connection to {member.name}")
            while True:
                version = self._membership.version
                await self._try_exchange(port)
                if version == self._membership.version:
                    await self._membership.wait_change(ASK_INTERVAL_S)

    async def _try_exchange(self, port: MembersPort) -> None:
        """Exchange updates, within the time limit."""
        with suppress(YurtError, TimeoutError):
            async with self._env.timeout(ASK_LIMIT_S):
                await self._exchange(port)

    def _link(self, address: str, region: str, *, level: int = logging.INFO) -> Link:
        dialler = Dialler(self.hello, self._security.dialling(region))
        return Link((address,), dialler=dialler, serves={}, env=self._env, level=level)

    def hello(self) -> Hello:
        """The greeting of this server."""
        return Hello(
            version=__version__,
            role="server",
            region=self._membership.own.region,
            name=self._own_name,
            node_id=self._membership.run_id,
        )

    async def ask_once(self, address: str, region: str, ask: Ask[T], *, limit_s: float = JOIN_LIMIT_S) -> T:
        """Call the server at an address over a connection made for this call; raises a YurtError."""
        link = self._link(address, region, level=logging.DEBUG)
        failure: YurtError | None = None
        async with asyncio.TaskGroup() as group:
            running = group.create_task(link.run(), name=f"connection to {address}")
            try:
                async with self._env.timeout(limit_s):
                    await link.peer()
                    answer = await ask(far_port(MEMBERS, PORT, link.peer))
            except TimeoutError:
                failure = Unavailable(link.problem)
            except YurtError as error:
                failure = error
            finally:
                running.cancel()
        if failure is not None:
            raise failure
        return answer

    async def join(self, address: str) -> str:
        """Exchange records with the server at an address; returns its name. Raises a YurtError when none answers."""
        region = await self._security.region_at(address, self._membership.own.region)
        update = await self.ask_once(address, region, self._exchange, limit_s=JOIN_LIMIT_S)
        return update.sender

    async def _exchange(self, port: MembersPort) -> MembershipUpdate:
        update = await port.exchange(self._membership.update())
        self._membership.merge_update(update)
        return update

    async def leave(self) -> None:
        """Announce that this server has left to all servers that can be reached within a moment."""
        self._membership.mark_left()
        there = [
            each
            for each in self._membership.members()
            if each.status in (ALIVE, LEAVING) and each.name != self._own_name
        ]
        async with asyncio.TaskGroup() as group:
            for each in there:
                supervised(group, f"goodbye to {each.name}", self._say_goodbye(each))

    async def _say_goodbye(self, member: Member) -> None:
        with suppress(YurtError):
            await self.ask_once(member.address, member.region, self._exchange, limit_s=GOODBYE_LIMIT_S)
