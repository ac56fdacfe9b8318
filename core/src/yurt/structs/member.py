"""A member of the cluster of servers: its addresses and its status."""

from __future__ import annotations

from typing import Final, Literal

from yurt.sdk.value import Value

MemberStatus = Literal["alive", "failed", "left", "leaving"]
ALIVE: Final = "alive"
FAILED: Final = "failed"
LEFT: Final = "left"
LEAVING: Final = "leaving"


class Member(Value):
    """One server of one region. Addresses are `host:port`.

    `incarnation` grows with each start and each change that the server itself tells; the higher one holds.
    `expect` is its bootstrap_expect (0: none), `has_data` whether it has ever been part of a cluster.
    """

    name: str
    """The agent's name and the region, `srv1.global`: also the name of its etcd member and of its terms."""
    region: str
    datacenter: str
    version: str
    address: str
    """Where it answers joins and membership: the `serf` port."""
    rpc_addr: str
    http_addr: str
    etcd_addr: str = ""
    """Where its own etcd member is reached by the others; "" with an etcd that stands by itself."""
    status: MemberStatus = ALIVE
    incarnation: int = 0
    expect: int = 0
    has_data: bool = False
    rules: int = 0
    """The newest rules by which it applies commands; 0 from a version that does not publish them."""
    has_tls: bool | None = None
    """Whether it speaks TLS to other agents (`tls { rpc }`); None from a version that does not say."""
    certificate_ends: int = 0
    """When its certificate ends, in seconds since 1970; 0 without TLS."""
    authority_ends: int = 0
    """When the certificate of its authority does."""
