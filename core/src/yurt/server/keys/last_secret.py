"""What a connection keeps about its last request, so that the same is not looked up for the next one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import msgspec

from yurt.access import Actor, Recalled, Scope


class CachedDecision(NamedTuple):
    """A request whose caller was identified."""

    actor: Actor
    scope: Scope
    """Where its need has to be satisfied."""
    recalled: Recalled | None
    """The answers by which it is; they count as long as they hold. None: not known yet."""
    standing: Hashable | None = None
    """The actor's rights as a key, as long as the answers hold (`Authority.standing`)."""


class LastSecret(msgspec.Struct, frozen=True):
    """The stored secret that the last request of a connection presented."""

    text: str
    tokens: object
    """The table of tokens in which it was found."""
    actor: Actor
    """Its caller, and where the requests of the connection come from."""
    decisions: dict[tuple[int, str], CachedDecision]
    """What was decided about the connection's requests, by the `id()` of the route, which lives as long as the
    application, and namespace."""
