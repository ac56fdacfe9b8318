"""A proxy for a remote port."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

import msgspec

from yurt.rpc.contract import Contract, PortMethod
from yurt.rpc.peer import ConnectionLost, Peer
from yurt.sdk.errors import Reason, Unavailable, YurtError

ANSWER_LIMIT_S = 60.0
"""How long a call may take beyond the wait that it requests itself (`timeout_s`)."""


class NoAnswer(Unavailable, reason=Reason.NO_ANSWER):
    """The other agent did not answer in time; the call may or may not have been carried out."""


GetPeer = Callable[[], Awaitable[Peer]]
"""The connection to use for one more call; raises Unavailable when there is none."""


OnOutcome = Callable[[str, YurtError | None], None]
"""Called with the name of each call with a single answer and its error."""


class Terms(msgspec.Struct, frozen=True):
    """How calls are made: retries after a lost connection, an observer of each call, and time limits."""

    repeats: bool = False
    on_outcome: OnOutcome = lambda _, __: None
    limits_s: Mapping[str, float] = MappingProxyType({})
    """By name, where it is not ANSWER_LIMIT_S."""


class _Far:
    """A remote port; its class is generated once per contract."""

    __slots__ = ("get_peer", "port", "terms")

    def __init__(self, port: str, get_peer: GetPeer, terms: Terms) -> None:
        self.port = port
        self.get_peer = get_peer
        self.terms = terms


_made: dict[int, tuple[Contract, type[_Far]]] = {}
"""Classes by contract, which is kept alive so that its identity is not reused. There are as many as ports: one for each
proxy would be a large part of what a forwarded call costs, and garbage that only the cyclic collector frees."""
_ONCE, _REPEATED = Terms(), Terms(repeats=True)


def far_port(
    contract: Contract, name: str, get_peer: GetPeer, *, repeats: bool = False, terms: Terms | None = None
) -> Any:
    """A proxy for a port; each call uses the connection that exists when it is made.

    `repeats`: a call whose connection ends is made again on the next one; only for a port whose calls bear that.
    """
    key = id(contract)
    if key not in _made:
        _made[key] = contract, _far_class(contract)
    return _made[key][1](name, get_peer, terms or (_REPEATED if repeats else _ONCE))


def _far_class(contract: Contract) -> type[_Far]:
    calls = {method.name: _stream_call(method) if method.is_stream else _call(method) for method in contract.values()}
    return type("FarPort", (_Far,), {"__slots__": (), **calls})


def _stream_call(method: PortMethod) -> Callable[..., Any]:
    def stream(self: _Far, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        return _stream(method, self.port, self.get_peer, args, kwargs)

    return stream


def _call(method: PortMethod) -> Callable[..., Any]:
    async def call(self: _Far, *args: Any, **kwargs: Any) -> Any:
        request, terms = method.pack(args, kwargs), self.terms
        limit_s = getattr(request, "timeout_s", 0.0) + terms.limits_s.get(method.name, ANSWER_LIMIT_S)
        get_next = self.get_peer if terms.repeats else None
        try:
            peer = await self.get_peer()
            answer = await _answer(method, self.port, get_next, peer=peer, request=request, limit_s=limit_s)
        except TimeoutError:
            error = NoAnswer(f"the other agent did not answer {self.port}.{method.name} within {limit_s:g} s")
            terms.on_outcome(method.name, error)
            raise error from None
        except YurtError as error:
            terms.on_outcome(method.name, error)
            raise
        terms.on_outcome(method.name, None)
        return answer

    return call


async def _answer(
    method: PortMethod, port: str, get_next: GetPeer | None, *, peer: Peer, request: msgspec.Struct, limit_s: float
) -> Any:
    """Call; retry on the next connection when this one is lost, where permitted. Waiting for a connection
    does not count as waiting for the answer."""
    while True:
        try:
            return await peer.call(port, method, request, limit_s=limit_s)
        except ConnectionLost:
            if get_next is None:
                raise
            peer = await get_next()


async def _stream(
    method: PortMethod, port: str, get_peer: GetPeer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AsyncGenerator[Any]:
    named = dict(zip(method.parameters, args, strict=False)) | kwargs
    inputs = named.pop(method.input_name, None) if method.input_name else None
    peer = await get_peer()
    items = peer.stream(port, method, method.pack((), named), inputs)
    try:
        async for item in items:
            yield item
    finally:
        await cast(Any, items).aclose()
