"""A far port that looks like a near one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

import msgspec

from yurt.rpc.contract import Contract, Method
from yurt.rpc.peer import ConnectionLost, Peer
from yurt.sdk.errors import Unavailable

ANSWER_LIMIT_S = 60.0
"""How long a call may take beyond the time that it asks to wait itself (`timeout_s`)."""

GetPeer = Callable[[], Awaitable[Peer]]
"""The connection to use for one more call; raises Unavailable when there is none."""


def far_port(contract: Contract, name: str, get_peer: GetPeer, *, repeats: bool = False) -> Any:
    """An object with the calls of a port; each goes over the connection that there is when it is made.

    `repeats`: a call whose connection ends is made again on the next one; only for a port whose calls bear that.
    """
    calls = {method.name: _call(method, name, get_peer, repeats) for method in contract.values()}
    return type(f"Far_{name}", (), calls)()


def _call(method: Method, port: str, get_peer: GetPeer, repeats: bool) -> Callable[..., Any]:
    if method.is_stream:

        def stream(self: object, *args: Any, **given: Any) -> AsyncGenerator[Any]:
            return _stream(method, port, get_peer, args, given)

        return stream

    async def call(self: object, *args: Any, **given: Any) -> Any:
        request = method.pack(args, given)
        limit_s = getattr(request, "timeout_s", 0.0) + ANSWER_LIMIT_S
        try:
            async with asyncio.timeout(limit_s):
                return await _answer(
                    method, port, get_peer if repeats else None, peer=await get_peer(), request=request
                )
        except TimeoutError:
            raise Unavailable(f"the other agent did not answer {port}.{method.name} within {limit_s:g} s") from None

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
