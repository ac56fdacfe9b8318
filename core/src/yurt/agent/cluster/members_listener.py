"""Accepts connections of other servers on the `serf` port; each reports only about itself, under a unique name."""

from __future__ import annotations

from collections import Counter

from yurt import __version__
from yurt.access.calls import CallerKind, ProvenCaller
from yurt.agent.cluster.members_port import MEMBERS, PORT, AdmissionAnswer, MemberAdmission, NoAdmission
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.records import MembershipUpdate
from yurt.agent.cluster.security import ServerSecurity
from yurt.rpc.frames import Hello, Welcome
from yurt.rpc.listener import Caller, ConnectionCounters, Listener, PeerSession
from yurt.rpc.peer import Served
from yurt.sdk.errors import Conflict, PermissionDenied
from yurt.structs.member import Member


class MembersListener:
    """The port of one server; `admission` takes servers without data into the cluster."""

    def __init__(
        self, membership: Membership, *, security: ServerSecurity, admission: MemberAdmission | None = None,
        counts: ConnectionCounters | None = None,
    ) -> None:  # fmt: skip
        """`counts` counts this port's connections, together with those of clients."""
        self._membership = membership
        self._security = security
        self._admission = NoAdmission() if admission is None else admission
        self._sessions: Counter[tuple[str, str]] = Counter()
        own = membership.own
        self._listener = Listener(
            accept=self._accept,
            welcome=Welcome(version=__version__, region=own.region, name=own.name),
            metrics=counts,
        )

    async def start(self, address: str) -> int:
        """Accept connections of other servers; returns the port. Raises Invalid when it is unavailable."""
        return await self._listener.start(address, self._security.listening(), allows_plain=self._security.allows_plain)

    async def stop(self) -> None:
        """End all connections."""
        await self._listener.stop()

    def _accept(self, hello: Hello, caller: Caller) -> PeerSession:
        if hello.role != "server":
            raise PermissionDenied("this is the port of the servers (serf); clients connect to the rpc port")
        self._security.check(hello.region, caller)
        if not hello.name.endswith(f".{hello.region}"):
            raise PermissionDenied(f"a server of region {hello.region} may not call itself {hello.name}")
        run = (hello.name, hello.node_id)
        others = [each for each in self._sessions if each[0] == hello.name and each != run]
        if hello.name == self._membership.own.name and hello.node_id != self._membership.run_id:
            others.append((self._membership.own.name, self._membership.run_id))
        if others:
            raise Conflict(f'there is a server "{hello.name}" already; give each server a name of its own (`name`)')

        def opened(_: object) -> None:
            self._sessions[run] += 1

        def closed(_: object) -> None:
            self._sessions[run] -= 1
            self._sessions += Counter()

        kind = CallerKind.SERVER if hello.region == self._membership.own.region else CallerKind.REGION
        proven = ProvenCaller(kind=kind, name=hello.name)
        return PeerSession(
            {PORT: Served(MEMBERS, _MembersCalls(self._membership, self._admission, hello), proven)}, opened, closed
        )


class _MembersCalls:
    """The calls that other servers may make to this one."""

    def __init__(self, membership: Membership, admission: MemberAdmission, hello: Hello) -> None:
        self._membership = membership
        self._admission = admission
        self._hello = hello

    async def exchange(self, news: MembershipUpdate) -> MembershipUpdate:
        """Exchange records; a server reports only about itself."""
        if news.sender != self._hello.name:
            raise PermissionDenied(f"this connection speaks for server {self._hello.name}, not for {news.sender}")
        self._membership.merge_update(news)
        return self._membership.update()

    async def admit(self, member: Member, *, knows_learners: bool = False) -> AdmissionAnswer:
        """Admit the calling server to the cluster, if it is of this region."""
        own, hello = self._membership.own, self._hello
        if (member.name, member.region) != (hello.name, hello.region):
            raise PermissionDenied(f"this connection speaks for server {hello.name}, not for {member.name}")
        if member.region != own.region:
            raise Conflict(f"this server is of region {own.region}, and {member.name} of {member.region}")
        return await self._admission.admit(member, knows_learners=knows_learners)

    async def promote(self, learner_id: str) -> None:
        """Make a learner a voter."""
        await self._admission.promote(learner_id)
