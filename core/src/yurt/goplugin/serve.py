"""Serves one of Yurt's drivers to a host that speaks Nomad's plugin protocol: handshake, services, orderly end.

The host starts this process, reads its first line, and calls it. It ends by the host's Shutdown or by SIGTERM; SIGINT
is ignored, because the host gets it from the same terminal and decides. Tasks continue, and the next process gets their
handles.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
from google.protobuf.any_pb2 import Any as AnyMessage

from yurt.goplugin.connection import MESSAGE_BYTES_MAX, STATUS_KEY
from yurt.goplugin.handshake import (
    CLIENT_CERT,
    COOKIE,
    COOKIE_NAME,
    PROTOCOL_VERSION,
    SOCKET_FOLDER,
    VERSIONS,
    Handshake,
    handshake_line,
)
from yurt.goplugin.hclspec import decode_options, spec_from_schema
from yurt.goplugin.messages import (
    BASE_SERVICE,
    BROKER_SERVICE,
    CONTROLLER_SERVICE,
    DRIVER_SERVICE,
    HEALTH_SERVICE,
    SHARED,
    STDIO_SERVICE,
    Message,
    Method,
    base_message,
    message_class,
    methods,
)
from yurt.goplugin.serve_driver import DriverService
from yurt.goplugin.tls import Relay, der_of, make_key_pair, tls_context
from yurt.runtime.env import Env
from yurt.sdk.driver import Driver
from yurt.sdk.errors import Invalid, NotFound, RecoverableError, YurtError
from yurt.sdk.schema import Schema
from yurt.sdk.value import Value

log = logging.getLogger(__name__)

DRIVER_TYPE = 2
API_VERSION = "v0.1.0"
SERVING = 1
NO_MESSAGES: tuple[Message, ...] = ()
STOP_GRACE_S = 1.0
NO_HOST = (
    "This command is a plugin for a Nomad agent, which starts it by itself and speaks to it.\n"
    "Put a script into the agent's plugin_dir that runs this command, and restart the agent."
)


class Offer(Value, rename=None):
    """A driver to serve: its name, the schema of its plugin block, and its factory."""

    name: str
    version: str
    options: Schema
    make: Callable[[Mapping[str, Any]], Driver]
    folder: str


class PluginServer:
    """The services of one plugin process."""

    def __init__(self, offer: Offer, env: Env) -> None:
        self._offer = offer
        self._env = env
        self.driver = DriverService(Path(offer.folder), env)
        self.stopped = asyncio.Event()
        self._server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
            )
        )
        self._relay: Relay | None = None
        for service, offered in (
            (DRIVER_SERVICE, self.driver.methods),
            (BASE_SERVICE, {"PluginInfo": self.info, "ConfigSchema": self.schema, "SetConfig": self.configure}),
            (CONTROLLER_SERVICE, {"Shutdown": self.shut_down}),
            (HEALTH_SERVICE, {"Check": self.check, "Watch": self.watch_health}),
            (BROKER_SERVICE, {"StartStream": self.broker}),
            (STDIO_SERVICE, {"StreamStdio": self.stdio}),
        ):
            service_methods = methods(service)
            handlers = {name: handler_of(service_methods[name], call) for name, call in offered.items()}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    async def open(self, folder: str, client_certificate: str) -> Handshake:
        """Listen on a socket in a private folder; with TLS when the host sent its certificate."""
        inner = f"{folder}/plugin.sock"
        self._server.add_insecure_port(f"unix:{inner}")
        await self._server.start()
        if not client_certificate:
            return Handshake(network="unix", address=inner)
        pair = make_key_pair(self._env.now())
        context = tls_context(pair, peer_certificate=client_certificate, is_server=True)
        outer = f"{folder}/tls.sock"
        self._relay = Relay(outer, network="unix", address=inner, accept=context)
        await self._relay.open()
        return Handshake(network="unix", address=outer, certificate=der_of(pair.certificate))

    async def info(self, _request: Message) -> Message:
        """The plugin's identity: type, name, versions."""
        return base_message(
            "PluginInfoResponse",
            type=DRIVER_TYPE,
            plugin_api_versions=[API_VERSION],
            plugin_version=self._offer.version,
            name=self._offer.name,
        )

    async def schema(self, _request: Message) -> Message:
        """The options of the plugin block."""
        return base_message("ConfigSchemaResponse", spec=spec_from_schema(self._offer.options))

    async def configure(self, request: Message) -> Message:
        """Create the driver from its configuration; a second call replaces it."""
        options = decode_options(request.msgpack_config)
        before, self.driver.driver = self.driver.driver, None
        if before is not None:
            await before.close()
        self.driver.driver = self._offer.make(options)
        return base_message("SetConfigResponse")

    async def shut_down(self, _request: Message) -> Message:
        """Begin the shutdown that the host requested."""
        self.stopped.set()
        return message_class("plugin.Empty")()

    async def check(self, _request: Message) -> Message:
        """The health check: always serving."""
        return message_class("grpc.health.v1.HealthCheckResponse")(status=SERVING)

    async def watch_health(self, _request: Message) -> AsyncIterator[Message]:
        """The health check as a stream, open until the end."""
        yield message_class("grpc.health.v1.HealthCheckResponse")(status=SERVING)
        await self.stopped.wait()

    async def broker(self, requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
        """Serve the stream for side connections, which drivers do not use; it stays open, as hosts expect."""
        async for _ in requests:
            continue
        for message in NO_MESSAGES:
            yield message

    async def stdio(self, _request: Message) -> AsyncIterator[Message]:
        """The stream of standard output: always empty, because logs go to stderr, which the host reads."""
        await self.stopped.wait()
        for message in NO_MESSAGES:
            yield message

    async def close(self) -> None:
        """Answer pending calls, then stop serving; tasks continue."""
        self.stopped.set()
        self.driver.closed.set()
        await self._server.stop(STOP_GRACE_S)
        if self._relay is not None:
            await self._relay.close()
        await self.driver.close()


def handler_of(method: Method, call: Callable[[Any], Any]) -> Any:
    """A method as gRPC takes it, its failures mapped."""
    parts = {
        "request_deserializer": method.request.FromString,
        "response_serializer": method.response.SerializeToString,
    }
    if method.server_streams:

        async def stream(request: Any, context: Any) -> AsyncIterator[Message]:
            try:
                async for answer in call(request):
                    yield answer
            except (YurtError, msgspec.MsgspecError) as error:
                await refuse(context, error)

        make = grpc.stream_stream_rpc_method_handler if method.client_streams else grpc.unary_stream_rpc_method_handler
        return make(stream, **parts)

    async def answer(request: Any, context: Any) -> Message:
        try:
            return await call(request)
        except (YurtError, msgspec.MsgspecError) as error:
            await refuse(context, error)

    return grpc.unary_unary_rpc_method_handler(answer, **parts)


async def refuse(context: Any, error: Exception) -> None:
    """Answer with a failure's status; a recoverable one is marked in the details, where Nomad looks for it."""
    code = grpc.StatusCode.UNKNOWN
    if isinstance(error, NotFound):
        code = grpc.StatusCode.NOT_FOUND
    elif isinstance(error, Invalid):
        code = grpc.StatusCode.INVALID_ARGUMENT
    if isinstance(error, RecoverableError):
        detail = AnyMessage()
        detail.Pack(message_class(f"{SHARED}.RecoverableError")(recoverable=True))
        status = message_class("google.rpc.Status")(code=code.value[0], message=str(error))
        status.details.add(type_url=detail.type_url, value=detail.value)
        context.set_trailing_metadata(((STATUS_KEY, status.SerializeToString()),))
    await context.abort(code, str(error))


def host_problem(environment: Mapping[str, str]) -> str:
    """The reason why the plugin cannot be served; empty when a plugin host started this process."""
    if environment.get(COOKIE_NAME) != COOKIE:
        return NO_HOST
    versions = environment.get(VERSIONS, str(PROTOCOL_VERSION)).split(",")
    if str(PROTOCOL_VERSION) not in versions:
        return f"The host speaks version {', '.join(versions)} of Nomad's plugin protocol; version 2 is needed."
    return ""


async def serve(offer: Offer, env: Env, *, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Serve until the host or a signal ends it; `say` prints the handshake."""
    loop = asyncio.get_running_loop()
    server = PluginServer(offer, env)
    loop.add_signal_handler(signal.SIGTERM, server.stopped.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    parent = environment.get(SOCKET_FOLDER) or None
    with tempfile.TemporaryDirectory(prefix="plugin", dir=parent) as folder:
        try:
            say(handshake_line(await server.open(folder, environment.get(CLIENT_CERT, ""))))
            log.info("driver %s is offered; its state lies in %s", offer.name, offer.folder)
            await server.stopped.wait()
        finally:
            with contextlib.suppress(grpc.aio.UsageError):
                await server.close()


def default_folder(name: str) -> str:
    """The default folder for the state of a served driver."""
    base = "/var/lib/yurt" if os.geteuid() == 0 else os.path.expanduser("~/.local/share/yurt")
    return f"{base}/served/{name}"
