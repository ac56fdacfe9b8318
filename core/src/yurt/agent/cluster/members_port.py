"""The calls of servers on the membership port, which Nomad calls `serf`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from yurt.access.calls import CallerKind, allowed
from yurt.agent.cluster.records import MembershipUpdate
from yurt.rpc.contract import contract_of
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import Value, no_entries
from yurt.structs.member import Member

PORT = "members"


class AdmissionAnswer(Value):
    """The start parameters of an admitted etcd member: every member's name and address."""

    cluster: Mapping[str, str] = no_entries()
    by_tls: tuple[str, ...] | None = None
    """Those that are reached by TLS; None from a version that takes all of them to speak as it does itself."""
    by_both: tuple[str, ...] = ()
    """Those that turn to TLS: they are recorded with a plain URL and with one of TLS."""
    learner_id: str = ""
    """The id of the admitted member, which is a learner until it is promoted; "" for a voter."""
    waits_for: str = ""
    """The server that joins at this moment, and nobody is admitted until it has: etcd takes one learner at a time."""


class MembersPort(Protocol):
    """The calls of servers on the membership port."""

    @allowed(CallerKind.SERVER, CallerKind.REGION)
    async def exchange(self, news: MembershipUpdate) -> MembershipUpdate:
        """Exchange records in both directions."""
        ...

    # A server of another region is refused by the call itself, which names the mistake in its configuration.
    @allowed(CallerKind.SERVER, CallerKind.REGION)
    async def admit(self, member: Member, *, knows_learners: bool = False) -> AdmissionAnswer:
        """Take a server without data into the cluster; raises Unavailable or Conflict with the reason.

        `knows_learners`: it may be added as a learner, and asks for its promotion; older versions do not.
        """
        ...

    @allowed(CallerKind.SERVER)
    async def promote(self, learner_id: str) -> None:
        """Make an admitted learner a voter, if it is not one yet.

        Raises NotFound for an unknown member, Conflict while the learner is not in sync, and Unavailable.
        """
        ...


MEMBERS = contract_of(MembersPort)
T = TypeVar("T")
Ask = Callable[[MembersPort], Awaitable[T]]


class MemberAdmission(Protocol):
    """What carries out `admit` and `promote`, once the caller is checked."""

    async def admit(self, member: Member, *, knows_learners: bool = False) -> AdmissionAnswer:
        """Take a server into the cluster."""
        ...

    async def promote(self, learner_id: str) -> None:
        """Make a learner a voter."""
        ...


class NoAdmission:
    """The `MemberAdmission` of a server that has no etcd member of its own."""

    async def admit(self, member: Member, *, knows_learners: bool = False) -> AdmissionAnswer:
        """Raises Unavailable."""
        raise Unavailable("this server is not part of a cluster yet")

    async def promote(self, learner_id: str) -> None:
        """Raises Unavailable."""
        raise Unavailable("this server is not part of a cluster yet")
