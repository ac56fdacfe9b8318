"""The callers that may make a call between agents, declared as data.

A port is a Protocol, and each of its methods declares with `allowed` which agents may call it, and which nodes and
allocations a node names with it, because a node speaks for itself and its own allocations alone. `yurt.rpc.contract`
refuses a method without a declaration when it is imported, and the connection, which knows who is at its far end,
checks the declaration before the call is carried out (`yurt.rpc.serving`): nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from yurt.sdk.errors import PermissionDenied
from yurt.sdk.value import Value

F = TypeVar("F", bound=Callable[..., Any])
_ATTRIBUTE: Final = "needed_by_call"


class CallerKind(StrEnum):
    """The kind of the far end of a connection."""

    NEW_NODE = "new node"
    """An agent that says which node it is and has that node's secret; no server knows the node yet, or the agent is not
    the node's only one."""
    NODE = "node"
    """The agent of a registered node."""
    SERVER = "server"
    """A server of this region, by its certificate or by what servers tell only each other."""
    REGION = "server of another region"


Names = Callable[[Any], Iterable[str]]
"""Which ids a call names, read off the struct of its parameters."""


def _none(request: Any) -> Iterable[str]:
    return ()


class CallNeed(msgspec.Struct, frozen=True):
    """The need of a call."""

    callers: frozenset[CallerKind]
    nodes: Names = _none
    """Nodes that the call is about: for a node only itself."""
    allocs: Names = _none
    """Allocations that the call concerns: from a node only those that are on it, if known."""


ANY_NODE: Final = (CallerKind.NEW_NODE, CallerKind.NODE)


def allowed(*callers: CallerKind, nodes: Names = _none, allocs: Names = _none) -> Callable[[F], F]:
    """Declare what a method of a port needs."""
    assert callers, "a call needs at least one allowed caller"
    assert nodes is not _none or not set(callers) <= set(ANY_NODE), "a call of nodes names the node that it is about"
    need = CallNeed(frozenset(callers), nodes, allocs)

    def declare(function: F) -> F:
        setattr(function, _ATTRIBUTE, need)
        return function

    return declare


def need_of(function: Callable[..., Any]) -> CallNeed:
    """A method's declared need; raises TypeError without one."""
    found = getattr(function, _ATTRIBUTE, None)
    if not isinstance(found, CallNeed):
        raise TypeError(f"{function.__qualname__}: declare who may call it (yurt.access.calls.allowed)")
    return found


class ProvenCaller(Value):
    """A caller whose kind was proven when its connection was accepted; it does not change."""

    kind: CallerKind
    name: str = ""

    async def admit(self, need: CallNeed, request: object) -> None:
        """Raises PermissionDenied unless callers of the kind may make the call."""
        if self.kind not in need.callers:
            raise PermissionDenied(f"this call is not for a {self.kind}")
