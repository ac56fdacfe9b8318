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


class MembersPort(Protocol):
    """The calls of servers on the membership port."""

    @allowed(CallerKind.SERVER, CallerKind.REGION)
    async def exchange(self, news: MembershipUpdate) -> MembershipUpdate:
        """Exchange records in both directions."""
        ...

    # A server of another region is refused by the call itself, which names the mistake in its configuration.
    @allowed(CallerKind.SERVER, CallerKind.REGION)
    async def admit(self, member: Member) -> AdmissionAnswer:
        """Take a server without data into the cluster; raises Unavailable or Conflict with the reason."""
        ...


MEMBERS = contract_of(MembersPort)
T = TypeVar("T")
Ask = Callable[[MembersPort], Awaitable[T]]
Admit = Callable[[Member], Awaitable[AdmissionAnswer]]


async def admits_nobody(member: Member) -> AdmissionAnswer:
    """The answer of a server that has no etcd member of its own yet, or none at all."""
    raise Unavailable("this server is not part of a cluster yet")
