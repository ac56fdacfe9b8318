"""A far port that looks like a near one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import msgspec

from yurt.rpc.contract import Contract, Method
from yurt.rpc.peer import ConnectionLost, Peer
from yurt.sdk.errors import Unavailable, YurtError

ANSWER_LIMIT_S = 60.0
"""How long a call may take beyond the time that it asks to wait itself (`timeout_s`)."""


class NoAnswer(Unavailable):
    """The other agent did not answer in time; whether it carried the call out is not known."""


GetPeer = Callable[[], Awaitable[Peer]]
"""The connection to use for one more call; raises Unavailable when there is none."""


OnOutcome = Callable[[str, YurtError | None], None]
"""Told how each call with one answer went: its name, and what it failed with."""


class Terms(NamedTuple):
    """How calls are made: whether again after a lost connection, who hears of each, how long each may take."""

    repeats: bool = False
    on_outcome: OnOutcome = lambda _, __: None
    limits_s: Mapping[str, float] = MappingProxyType({})
    """By name, where it is not ANSWER_LIMIT_S."""


def far_port(
    contract: Contract, name: str, get_peer: GetPeer, *, repeats: bool = False, terms: Terms | None = None
) -> Any:
    """An object with the calls of a port; each goes over the connection that there is when it is made.

    `repeats`: a call whose connection ends is made again on the next one; only for a port whose calls bear that.
    """
    agreed = terms or Terms(repeats)
    calls = {
        method.name: _stream_call(method, name, get_peer) if method.is_stream else _call(method, name, get_peer, agreed)
        for method in contract.values()
    }
    return type(f"Far_{name}", (), calls)()


def _stream_call(method: Method, port: str, get_peer: GetPeer) -> Callable[..., Any]:
    def stream(self: object, *args: Any, **given: Any) -> AsyncGenerator[Any]:
        return _stream(method, port, get_peer, args, given)

    return stream


def _call(method: Method, port: str, get_peer: GetPeer, terms: Terms) -> Callable[..., Any]:
    get_next = get_peer if terms.repeats else None
    least_s = terms.limits_s.get(method.name, ANSWER_LIMIT_S)

    async def call(self: object, *args: Any, **given: Any) -> Any:
        request = method.pack(args, given)
        limit_s = getattr(request, "timeout_s", 0.0) + least_s
        try:
            async with asyncio.timeout(limit_s):
                answer = await _answer(method, port, get_next, peer=await get_peer(), request=request)
        except TimeoutError:
            error = NoAnswer(f"the other agent did not answer {port}.{method.name} within {limit_s:g} s")
            terms.on_outcome(method.name, error)
            raise error from None
        except YurtError as error:
            terms.on_outcome(method.name, error)
            raise
        terms.on_outcome(method.name, None)
        return answer

    return call


async def _answer(method: Method, port: str, get_next: GetPeer | None, *, peer: Peer, request: msgspec.Struct) -> Any:
    """Ask; again on the next connection when this one ends meanwhile, where that is allowed."""
    while True:
        try:
            return await peer.call(port, method, request)
        except ConnectionLost:
            if get_next is None:
                raise
            peer = await get_next()


async def _stream(
    method: Method, port: str, get_peer: GetPeer, args: tuple[Any, ...], given: dict[str, Any]
) -> AsyncGenerator[Any]:
    named = dict(zip(method.parameters, args, strict=False)) | given
    inputs = named.pop(method.input_name, None) if method.input_name else None
    peer = await get_peer()
    items = peer.stream(port, method, method.pack((), named), inputs)
    try:
        async for item in items:
            yield item
    finally:
        await cast(Any, items).aclose()
