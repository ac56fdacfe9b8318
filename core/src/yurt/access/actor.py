"""Who asks, and how the request reached this agent.

An actor is made where a request enters: from its token, its certificate or the connection of a node. It is never
inferred from a loopback address or from a header that a stranger can set. A header may only make an agent more careful:
`Through` is read from the marks that agents put on requests that they pass on, and whoever sets one himself is refused
more and allowed nothing more.
"""

from __future__ import annotations

from enum import StrEnum

from yurt.sdk.value import Value


class Through(StrEnum):
    """Which agent passed a request on before it arrived here."""

    NOBODY = "nobody"
    NODE = "node"
    """The agent of a node, over the node's connection."""
    CLIENT = "client"
    """An agent without a server, or one that relays to its own HTTP address."""
    SERVER = "server"
    REGION = "region"


class Origin(Value):
    """Where a request came from."""

    address: str = ""
    """The caller's IP address; "" where another agent passed the request on, because the address would be its own."""
    certificate_name: str = ""
    """The common name of the caller's certificate, once TLS has verified it; "" for none."""
    through: Through = Through.NOBODY


class Actor(Value):
    """Who asks. Until access control exists this is everybody."""

    name: str = "everybody"
    origin: Origin = Origin()


EVERYBODY = Actor()
"""The actor of a request about whose way nothing is known."""
