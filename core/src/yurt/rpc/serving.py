"""Serves calls of the far end concurrently, each in its own task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, Protocol

import msgspec

from yurt.access.calls import CallNeed
from yurt.rpc import frames
from yurt.rpc.coding import decoded, encoded
from yurt.rpc.connection_tasks import ConnectionTasks
from yurt.rpc.contract import Contract, PortMethod
from yurt.rpc.frames import Answer, Ask
from yurt.rpc.intake import Intake
from yurt.rpc.sending import Sender
from yurt.rpc.streams import Streams
from yurt.sdk.errors import Invalid, Reason, Unavailable, YurtError

SERVED_MAX: Final = 2_000
"""Calls of one far end that are served at a time; further ones are refused."""
TOO_MANY: Final = "too many calls at once on one connection; try again in a moment"
NAME_MAX: Final = 100


class FarCaller(Protocol):
    """The identity of the far end, as proven by the connection."""

    async def admit(self, need: CallNeed, request: Any) -> None:
        """Raises PermissionDenied, or why the permission is unknown, unless the caller may make a call."""
        ...


class Served(msgspec.Struct, frozen=True):
    """A port offered by this end, with its implementation and caller."""

    contract: Contract
    target: Any
    caller: FarCaller


class Serving:
    """The calls of the far end in progress."""

    def __init__(
        self,
        serves: Mapping[str, Served],
        *,
        sender: Sender,
        streams: Streams,
        tasks: ConnectionTasks,
        intake: Intake,
    ) -> None:
        self._serves = serves
        self._sender = sender
        self._streams = streams
        self._tasks = tasks
        self._intake = intake
        self._calls: dict[int, asyncio.Task[None]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no call is in progress."""
        return not self._calls

    def serve(self, ask: Ask) -> None:
        """Serve or refuse a call; raises Abuse."""
        if not self._intake.takes():
            self._refuse(ask, Unavailable(self._intake.refusal, reason=Reason.OVERLOADED))
            return
        if len(self._calls) >= SERVED_MAX or ask.id in self._calls:
            self._refuse(ask, Unavailable(TOO_MANY, reason=Reason.OVERLOADED))
            return
        port, _, name = ask.method.partition(".")
        served = self._serves.get(port)
        method = served.contract.get(name) if served is not None else None
        if served is None or method is None:
            text = f"this agent does not offer {ask.method[:NAME_MAX]}; it may be older than the one that asks"
            self._refuse(ask, Invalid(text))
            return
        if method.is_stream:
            self._streams.open(ask.id)
        work = self._carry_out(ask, method, served)
        self._calls[ask.id] = self._tasks.start(
            ask.method, work, on_error=lambda _: self._broke(ask), on_end=lambda: self._forget(ask.id)
        )

    def cancel(self, call_id: int) -> None:
        """The far end has cancelled the call."""
        if call_id in self._calls:
            self._calls[call_id].cancel()

    def _forget(self, call_id: int) -> None:
        self._calls.pop(call_id, None)
        self._streams.close(call_id)

    def _refuse(self, ask: Ask, error: YurtError) -> None:
        self._sender.post(frames.failure(ask.id, error))

    async def _carry_out(self, ask: Ask, method: PortMethod, served: Served) -> None:
        try:
            request = decoded(ask.request, method.request)
            # The one place where a call is held against its declaration: here the caller of the connection is known.
            await served.caller.admit(method.needs, request)
            function, kwargs = getattr(served.target, method.name), method.unpack(request)
            if method.is_stream:
                await self._give_items(ask.id, method, function, kwargs)
            else:
                self._sender.post(Answer(ask.id, encoded(await function(**kwargs))))
        except YurtError as error:
            self._refuse(ask, error)

    def _broke(self, ask: Ask) -> None:
        text = f"{ask.method} failed unexpectedly at the other agent; its log says more"
        self._refuse(ask, Unavailable(text, reason=Reason.INTERNAL, is_transient=True))

    async def _give_items(
        self, call_id: int, method: PortMethod, function: Callable[..., Any], kwargs: dict[str, Any]
    ) -> None:
        if method.input_name:
            kwargs[method.input_name] = self._streams.receive(call_id, method.input)
        with suppress(asyncio.CancelledError):
            async with aclosing(function(**kwargs)) as items:
                await self._streams.send(call_id, items)
