"""Access decisions: the actor of a request, the need of a route, and the authority that decides.

A route declares a `needs.Need`. The dispatcher asks the `Authority` before a handler runs, and every view and operation
that the handler receives is bound to the same `Access`: actor, need and authority. Code that answers a caller therefore
cannot reach a row whose namespace the caller may not see, and access control is added by another authority alone.

Nothing here does input or output: a decision is a function of values.
"""

from yurt.access.actor import (
    EVERYBODY,
    Actor,
    Caller,
    InvalidToken,
    NoToken,
    Origin,
    ShownNode,
    ShownToken,
    ShownWorkload,
    Through,
)
from yurt.access.authority import (
    ANYWHERE,
    Access,
    AllowAll,
    Authority,
    DecidingRule,
    Decision,
    Identity,
    MadeDecision,
    Namespaces,
    ObjectName,
    Permissions,
    Recalled,
    Scope,
    Trace,
)
from yurt.access.needs import Capability, Need

__all__ = [
    "ANYWHERE",
    "EVERYBODY",
    "Access",
    "Actor",
    "AllowAll",
    "Authority",
    "Caller",
    "Capability",
    "DecidingRule",
    "Decision",
    "Identity",
    "InvalidToken",
    "MadeDecision",
    "Namespaces",
    "Need",
    "NoToken",
    "ObjectName",
    "Origin",
    "Permissions",
    "Recalled",
    "Scope",
    "ShownNode",
    "ShownToken",
    "ShownWorkload",
    "Through",
    "Trace",
]
