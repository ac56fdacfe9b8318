"""The caller of a request, and how the request reached this agent.

An actor is made where a request enters: from its token, its certificate or the connection of a node. It is never
inferred from a loopback address or from a header that a stranger can set. A request that an agent passes on carries its
`Origin` in the frame between the agents. Servers vouch for what they pass on; of what a node passes on its connection
proves the node, and the rest is the node's word.
"""

from __future__ import annotations

from enum import StrEnum

from yurt.sdk.value import UnixNano, Value


class Through(StrEnum):
    """The kind of agent that forwarded a request: of several, the least trusted one."""

    NOBODY = "nobody"
    NODE = "node"
    """The agent of a node, over the node's connection."""
    SERVER = "server"
    REGION = "region"


class Origin(Value):
    """The address, certificate and forwarding agent of a request."""

    address: str = ""
    """The caller's IP address at the first agent; through a node it is the address that the node reports."""
    certificate_name: str = ""
    """The common name of the caller's certificate, verified by TLS; "" for none."""
    through: Through = Through.NOBODY
    relay: str = ""
    """The agent that `through` is about: a node's id, which its connection has proven, or a server's name."""


class NoToken(Value, tag=True):
    """The caller showed no token."""


class ShownToken(Value, tag=True):
    """The caller showed the secret of a token, or the session of a browser that stands for it; only the hash of the
    secret is kept.
    """

    secret_hash: str
    session_id: str = ""
    """The session; "" where the secret itself was shown."""
    key_id: str = ""
    """The root key that sealed the session."""
    valid_until: UnixNano = UnixNano(0)
    """The end of the session, however often it is renewed."""


class ShownWorkload(Value, tag=True):
    """The caller showed a workload identity with a valid signature."""

    alloc_id: str
    namespace: str
    job: str
    """The parent's for dispatched and periodic children."""
    task: str = ""
    """"" for the identity of a service."""
    key_id: str = ""
    """The root key that signed it; "" where a server speaks for the task and no token was shown."""
    valid_until: UnixNano = UnixNano(0)
    """The end of its validity; 0 for none."""


class ShownNode(Value, tag=True):
    """The caller showed the identity or the secret of a node."""

    node_id: str
    key_id: str = ""
    """The root key that signed its identity; "" for a secret."""
    valid_until: UnixNano = UnixNano(0)
    """The end of its validity; 0 for none."""


class InvalidToken(Value, tag=True):
    """The caller showed an invalid token; `problem` says why it is invalid."""

    problem: str


Caller = NoToken | ShownToken | ShownWorkload | ShownNode | InvalidToken
"""The caller's credential. Its rights are looked up for each decision."""


class Actor(Value):
    """The caller of a request."""

    name: str = "everybody"
    origin: Origin = Origin()
    caller: Caller = NoToken()


EVERYBODY = Actor()
"""The actor of a request of unknown origin."""
