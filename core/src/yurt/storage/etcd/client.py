"""A client of etcd's API with a time limit for every call; failures are the errors of the closed set.

Reads are asked of the next endpoint when one does not answer. What changes something is asked once: after a failure
its outcome is unknown, and only the caller can tell what that means.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied, Unavailable, YurtError
from yurt.storage.etcd.messages import Message, message, method
from yurt.storage.etcd.settings import EtcdSecurity

log = logging.getLogger(__name__)

CALL_LIMIT_S: Final = 5.0
LONG_CALL_LIMIT_S: Final = 120.0
"""The time limit, in seconds, of calls that run long: defragmentation, and compaction that is waited for."""
ATTEMPT_LIMIT_MIN_S: Final = 0.5
MESSAGE_BYTES_MAX: Final = 128 * 1024 * 1024
KEEPALIVE_MS: Final = 10_000
"""The silence in milliseconds after which the connection is probed; etcd allows 5 s."""
OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS // 2),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
NO_SPACE: Final = "database space exceeded"
LEARNER: Final = "rpc not supported for learner"
"""The refusal of a member that has not applied its promotion yet; its code depends on etcd's version."""
ALARM_NOSPACE: Final = 1
RESTORED: Final = "etcd has lost data, or was restored to an older state under this server"
Connect = Callable[[str], Any]
"""A function that returns a `grpc.aio.Channel`, or an equivalent, to an endpoint."""
REMEDY: Final = "restore what etcd had, or restart all servers, which then go on from what etcd has"


class NoSpace(Unavailable):
    """The quota of etcd is exhausted: it accepts no writes until space is freed."""


class Compacted(Conflict):
    """The requested revision was compacted."""


class HistoryLost(Conflict):
    """etcd lost data: it was restored to an older state, or belongs to another cluster."""


class EtcdClient:
    """A client of one cluster. Endpoints are `http(s)://host:port`, or `unix:///path` of a local member.

    Revisions only grow. After an answer at an older revision than one seen before the call, or after
    `mark_history_lost`, every further call raises HistoryLost.
    """

    def __init__(
        self, endpoints: Sequence[str], *, security: EtcdSecurity | None = None, connect: Connect | None = None
    ) -> None:
        """Raises Invalid for invalid endpoints; does not connect yet. `connect` replaces gRPC channels."""
        if not endpoints:
            raise Invalid("etcd has no endpoints; give at least one, as http://host:2379")
        for endpoint in endpoints:
            _check(endpoint, security)
        self.endpoints = tuple(endpoints)
        self._connect = connect or (lambda endpoint: _channel(endpoint, security))
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._current = 0
        self._revision = 0
        self._lost = ""

    def mark_history_lost(self, why: str) -> HistoryLost:
        """Record that this etcd has lost data; all later calls raise the returned error."""
        if not self._lost:
            log.error("etcd history lost: %s", why)
            self._lost = why
        return HistoryLost(self._lost)

    async def close(self) -> None:
        """Close the connections; calls in progress are cancelled."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    async def range(
        self, key: bytes, range_end: bytes = b"", *, limit: int = 0, keys_only: bool = False, timeout_s: float = 0.0
    ) -> Message:
        """Keys from `key` up to and excluding `range_end`, in order; a linearizable read."""
        request = message("RangeRequest", key=key, range_end=range_end, limit=limit, keys_only=keys_only)
        floor = self._revision
        return self._later(await self._read("KV", "Range", request, timeout_s=timeout_s or CALL_LIMIT_S), floor)

    async def put(self, key: bytes, value: bytes) -> Message:
        """Store a value."""
        floor, request = self._revision, message("PutRequest", key=key, value=value)
        return self._later(await self._write("KV", "Put", request), floor)

    async def delete(self, key: bytes, range_end: bytes = b"") -> Message:
        """Delete a key, or a range of them."""
        return await self._write("KV", "DeleteRange", message("DeleteRangeRequest", key=key, range_end=range_end))

    async def txn(
        self,
        compare: Sequence[Message],
        success: Sequence[Message],
        failure: Sequence[Message] = (),
        *,
        timeout_s: float = CALL_LIMIT_S,
    ) -> Message:
        """Perform all of `success` if all of `compare` hold, else all of `failure`."""
        request = message("TxnRequest", compare=compare, success=success, failure=failure)
        floor = self._revision
        return self._later(await self._write("KV", "Txn", request, timeout_s=timeout_s), floor)

    async def compact(self, revision: int, *, is_waited_for: bool = False) -> None:
        """Compact revisions before this one; raises Compacted if that is done already."""
        request = message("CompactionRequest", revision=revision, physical=is_waited_for)
        await self._write("KV", "Compact", request, timeout_s=LONG_CALL_LIMIT_S if is_waited_for else CALL_LIMIT_S)

    async def watch(self, key: bytes, range_end: bytes, *, start_revision: int) -> AsyncGenerator[Message]:
        """WatchResponses from a revision on; the first one arrives when the watch is established.

        Raises Compacted when the revision is gone, Unavailable when the connection ends.
        """
        self._check_history()
        described = method("Watch", "Watch")
        # Without `hasleader` a member that lost its majority keeps the watch open in silence; another one may have it.
        metadata = (("hasleader", "true"),) if len(self.endpoints) > 1 else None
        endpoint = self._endpoint
        call = self._channel(endpoint).stream_stream(
            described.path,
            request_serializer=described.request.SerializeToString,
            response_deserializer=described.response.FromString,
        )(metadata=metadata)
        create = message(
            "WatchCreateRequest", key=key, range_end=range_end, start_revision=start_revision, fragment=True
        )
        try:
            await call.write(message("WatchRequest", create_request=create))
            async for response in call:
                if response.compact_revision:
                    raise Compacted(f"etcd has compacted the revisions before {response.compact_revision}")
                if response.canceled:
                    raise Unavailable(f"etcd ended the watch: {response.cancel_reason}")
                yield response
            raise Unavailable("etcd ended the watch")
        except grpc.aio.AioRpcError as error:
            self._leave(endpoint, error)
            raise _translated(error, endpoint) from None
        finally:
            call.cancel()

    async def status(self, endpoint: str = "", *, timeout_s: float = CALL_LIMIT_S) -> Message:
        """The status of one member; available without a majority."""
        where = endpoint or self._endpoint
        return await self._ask(where, "Maintenance", "Status", message("StatusRequest"), timeout_s=timeout_s)

    async def alarms(self) -> tuple[Message, ...]:
        """The active alarms, each with its member."""
        return tuple((await self._read("Maintenance", "Alarm", message("AlarmRequest"))).alarms)

    async def disarm(self, alarm: Message) -> None:
        """Disarm an alarm; it is raised again while its cause persists."""
        request = message("AlarmRequest", action=2, memberID=alarm.memberID, alarm=alarm.alarm)
        await self._write("Maintenance", "Alarm", request)

    async def defragment(self, endpoint: str) -> None:
        """Defragment a member, which is unavailable meanwhile."""
        request = message("DefragmentRequest")
        await self._ask(endpoint, "Maintenance", "Defragment", request, timeout_s=LONG_CALL_LIMIT_S)

    async def read(self, service: str, name: str, request: Message) -> Message:
        """Make any other read-only call."""
        return await self._read(service, name, request)

    async def write(self, service: str, name: str, request: Message, *, timeout_s: float = CALL_LIMIT_S) -> Message:
        """Make any other writing call."""
        return await self._write(service, name, request, timeout_s=timeout_s)

    def _later(self, answer: Message, floor: int) -> Message:
        """Check the revision of an answer; etcd was at the revision `floor` before the call."""
        revision = int(answer.header.revision)
        if revision < floor:
            raise self.mark_history_lost(f"{RESTORED}: it is at revision {revision} and was at {floor}; {REMEDY}")
        self._revision = max(self._revision, revision)
        return answer

    @property
    def _endpoint(self) -> str:
        return self.endpoints[self._current % len(self.endpoints)]

    async def _read(self, service: str, name: str, request: Message, *, timeout_s: float = CALL_LIMIT_S) -> Message:
        attempt_s = max(timeout_s / len(self.endpoints), min(timeout_s, ATTEMPT_LIMIT_MIN_S))
        for _ in self.endpoints[1:]:
            try:
                return await self._ask(self._endpoint, service, name, request, timeout_s=attempt_s)
            except Unavailable:
                continue
        return await self._ask(self._endpoint, service, name, request, timeout_s=attempt_s)

    async def _write(self, service: str, name: str, request: Message, *, timeout_s: float = CALL_LIMIT_S) -> Message:
        return await self._ask(self._endpoint, service, name, request, timeout_s=timeout_s)

    async def _ask(self, endpoint: str, service: str, name: str, request: Message, *, timeout_s: float) -> Message:
        self._check_history()
        described = method(service, name)
        call = self._channel(endpoint).unary_unary(
            described.path,
            request_serializer=described.request.SerializeToString,
            response_deserializer=described.response.FromString,
        )
        try:
            return await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            self._leave(endpoint, error)
            raise _translated(error, endpoint) from None

    def _check_history(self) -> None:
        if self._lost:
            raise HistoryLost(self._lost)

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = self._channels[endpoint] = self._connect(endpoint)
        return channel

    def _leave(self, endpoint: str, error: grpc.aio.AioRpcError) -> None:
        """Switch to another endpoint after this one failed."""
        if endpoint == self._endpoint and error.code() in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        ):
            self._current = (self._current + 1) % len(self.endpoints)


def _check(endpoint: str, security: EtcdSecurity | None) -> None:
    scheme, separator, address = endpoint.partition("://")
    if not separator or scheme not in ("http", "https", "unix") or not address:
        raise Invalid(f'"{endpoint}" is not an endpoint of etcd; write http://host:2379 or https://host:2379')
    if scheme == "http" and security is not None:
        raise Invalid(f"certificates are given, but the endpoint {endpoint} is not encrypted; write https://{address}")


def _channel(endpoint: str, security: EtcdSecurity | None) -> grpc.aio.Channel:
    scheme, _, address = endpoint.partition("://")
    if scheme == "unix":
        return grpc.aio.insecure_channel(f"unix:{address}", options=OPTIONS)
    address = address.rstrip("/")
    if scheme == "http":
        return grpc.aio.insecure_channel(address, options=OPTIONS)
    return grpc.aio.secure_channel(address, _credentials(security), options=OPTIONS)


def _credentials(security: EtcdSecurity | None) -> grpc.ChannelCredentials:
    if security is None:
        return grpc.ssl_channel_credentials()
    try:
        authority, key, certificate = (
            Path(path).read_bytes() if path else None
            for path in (security.ca_file, security.key_file, security.cert_file)
        )
    except OSError as error:
        raise Invalid(f"a file of etcd's certificates can not be read: {error}") from error
    return grpc.ssl_channel_credentials(authority, key, certificate)


_KINDS: Final[dict[Any, type[YurtError]]] = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.INVALID_ARGUMENT: Invalid,
    grpc.StatusCode.FAILED_PRECONDITION: Conflict,
    grpc.StatusCode.OUT_OF_RANGE: Compacted,
    grpc.StatusCode.UNAUTHENTICATED: PermissionDenied,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
}


def _translated(error: grpc.aio.AioRpcError, endpoint: str) -> YurtError:
    details = (error.details() or error.code().name).removeprefix("etcdserver: ")
    if NO_SPACE in details:
        return NoSpace(f"etcd at {endpoint} has no space left by its quota")
    kind = Unavailable if LEARNER in details else _KINDS.get(error.code(), Unavailable)
    return kind(f"etcd at {endpoint}: {details}")
