"""gRPC calls to a plugin, and the translation of their failures.

A call may fail because the plugin says so, because it does not answer in time, or because it is gone. Only the last is
`PluginGone`, on which the caller waits for the plugin's next process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from yurt.goplugin.messages import SHARED, Message, message_class, methods
from yurt.sdk.errors import DriverError, Invalid, NotFound, RecoverableError, YurtError
from yurt.sdk.value import Value

MESSAGE_BYTES_MAX = 256 * 1024 * 1024
STATUS_KEY = "grpc-status-details-bin"
NOT_FOUND_TEXT = "task not found for given id"
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),
    ("grpc.default_authority", "localhost"),
)


class PluginGone(RecoverableError):
    """The plugin's process ended, or cannot be reached."""


class NotOffered(DriverError):
    """The plugin's version does not implement the method."""


class CallSpec(Value, rename=None):
    """A method and the time limit of its answer in seconds; 0 for none."""

    service: str
    method: str
    limit_s: float = 0.0


class Connection:
    """A channel to one process of a plugin."""

    def __init__(self, target: str, *, name: str) -> None:
        self.name = name
        self.target = target
        self._channel = grpc.aio.insecure_channel(target, options=OPTIONS)
        self._calls: dict[str, Callable[..., Any]] = {}
        self._is_closed = False

    async def call(self, spec: CallSpec, /, **fields: Any) -> Message:
        """A unary call; raises the exception that corresponds to the plugin's error."""
        method = methods(spec.service)[spec.method]
        call = self._callable(method.path, method, self._channel.unary_unary)
        try:
            return await call(method.request(**fields), timeout=spec.limit_s or None)
        except grpc.aio.AioRpcError as error:
            raise failure(error, f"{self.name}: {spec.method}", limit_s=spec.limit_s) from None
        except (grpc.aio.UsageError, asyncio.CancelledError):
            self._check_own_end()
            raise PluginGone(f"{self.name}: the connection to the plugin was closed") from None

    async def stream(self, spec: CallSpec, /, **fields: Any) -> AsyncGenerator[Message, None]:
        """A call with one request and a stream of answers."""
        method = methods(spec.service)[spec.method]
        call = self._callable(method.path, method, self._channel.unary_stream)
        try:
            answers = call(method.request(**fields))
            async for message in answers:
                yield message
        except grpc.aio.AioRpcError as error:
            raise failure(error, f"{self.name}: {spec.method}", limit_s=0) from None
        except (grpc.aio.UsageError, asyncio.CancelledError):
            self._check_own_end()
            raise PluginGone(f"{self.name}: the connection to the plugin was closed") from None

    def _callable(self, path: str, method: Any, make: Callable[..., Any]) -> Any:
        if path not in self._calls:
            self._calls[path] = make(
                path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return self._calls[path]

    def _check_own_end(self) -> None:
        """Re-raise a cancellation by our caller; calls that end with their channel raise the same exception."""
        task = asyncio.current_task()
        if not self._is_closed or (task is not None and task.cancelling()):
            raise asyncio.CancelledError

    async def close(self) -> None:
        """Close the channel, which ends all calls."""
        self._is_closed = True
        await self._channel.close()


def failure(error: Any, what: str, *, limit_s: float) -> YurtError:
    """The exception of the closed set for a failed call."""
    text = error.details() or error.code().name
    match error.code():
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return PluginGone(f"{what}: the plugin cannot be reached: {text}")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return RecoverableError(f"{what}: the plugin gave no answer within {limit_s:g} s")
        case grpc.StatusCode.UNIMPLEMENTED:
            return NotOffered(f"{what}: this plugin does not offer it")
        case grpc.StatusCode.INVALID_ARGUMENT:
            return Invalid(f"{what}: {text}")
    if NOT_FOUND_TEXT in text or error.code() == grpc.StatusCode.NOT_FOUND:
        return NotFound(f"{what}: {text}")
    kind = RecoverableError if is_recoverable(error.trailing_metadata() or ()) else DriverError
    return kind(f"{what}: {text}")


def is_recoverable(metadata: Any) -> bool:
    """Whether the details of an error mark it as recoverable by a retry."""
    for key, value in metadata:
        if key != STATUS_KEY or not isinstance(value, bytes):
            continue
        try:
            status = message_class("google.rpc.Status").FromString(value)
            found = message_class(f"{SHARED}.RecoverableError")()
            return any(detail.Unpack(found) and found.recoverable for detail in status.details)
        except DecodeError:
            return False
    return False
