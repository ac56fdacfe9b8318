"""The agent's own log as a stream, at any level, while somebody listens."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import logging
from collections.abc import AsyncIterator, Iterator

from aiohttp import web

from yurt.api.encode import encode_builtins
from yurt.http.at_leader import PLACES
from yurt.http.call import Call
from yurt.http.errors import Refused
from yurt.http.query import flag
from yurt.http.routing import route
from yurt.http.targets import node_of_query

LINES_MAX = 512
HEARTBEAT_S = 1.0
LEVELS = {
    "trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING,
    "error": logging.ERROR,
}  # fmt: skip
_NAMES = {logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.WARNING: "WARN", logging.ERROR: "ERROR"}


class LogTap(logging.Handler):
    """Puts formatted records into a bounded queue of the loop; when it is full the oldest line goes."""

    def __init__(self, level: int, loop: asyncio.AbstractEventLoop, *, as_json: bool) -> None:
        super().__init__(level)
        self.lines: asyncio.Queue[str] = asyncio.Queue(LINES_MAX)
        self._loop = loop
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        """Called from any thread."""
        line = json_line(record) if self._as_json else text_line(record)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._put, line)

    def _put(self, line: str) -> None:
        if self.lines.full():
            self.lines.get_nowait()
        self.lines.put_nowait(line)


def text_line(record: logging.LogRecord) -> str:
    """`2006-01-02T15:04:05.000Z [INFO]  yurt.server: message`."""
    level = f"[{_level(record)}]"
    return f"{_time(record)} {level:<7} {record.name}: {record.getMessage()}\n"


def json_line(record: logging.LogRecord) -> str:
    """The same as a JSON object."""
    fields = {"@level": _level(record).lower(), "@message": record.getMessage(), "@module": record.name}
    return json.dumps(fields | {"@timestamp": _time(record)}) + "\n"


def _level(record: logging.LogRecord) -> str:
    return next((name for level, name in reversed(_NAMES.items()) if record.levelno >= level), "DEBUG")


def _time(record: logging.LogRecord) -> str:
    moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


@contextlib.contextmanager
def tapped(tap: LogTap) -> Iterator[None]:
    """The tap is fed; Yurt's own loggers let through what it asks for."""
    root, own = logging.getLogger(), logging.getLogger("yurt")
    before = own.level
    if own.getEffectiveLevel() > tap.level:
        own.setLevel(tap.level)
    root.addHandler(tap)
    try:
        yield
    finally:
        root.removeHandler(tap)
        own.setLevel(before)


async def monitor(call: Call) -> web.StreamResponse:
    """GET /v1/agent/monitor."""
    name = call.query.get("log_level", "") or "info"
    level = LEVELS.get(name.lower())
    if level is None:
        raise Refused(400, f"Unknown log level: {name[:64]}")
    other = _other_server(call)
    if other:
        return await call.request.app[PLACES].pass_on(call.request, other)
    _check_node(call)
    plain, as_json = flag(call.query, "plain"), flag(call.query, "log_json")
    tap = LogTap(level, asyncio.get_running_loop(), as_json=as_json)
    response = web.StreamResponse(
        headers={"Content-Type": "text/plain; charset=utf-8" if plain else "application/json"}
    )
    await response.prepare(call.request)
    with tapped(tap):
        async for text in _texts(tap):
            data = text.encode()
            frame = {"Data": base64.b64encode(data).decode()} if data else {}
            await response.write(data if plain else encode_builtins(frame) + b"\n")
    return response


def _other_server(call: Call) -> str:
    """The server whose log is asked for, "" for this agent's."""
    wanted = call.query.get("server_id", "")
    if not wanted:
        return ""
    call.need_server()
    return call.request.app[PLACES].other(call.request, wanted)


def _check_node(call: Call) -> None:
    """A node's log is its agent's: read there, and here when the node is this agent's."""
    node_id = call.query.get("node_id", "")
    if not node_id or (call.client is not None and call.client.node_id == node_id):
        return
    node_of_query(call)
    address = call.server.state.nodes[node_id].http_addr
    raise Refused(400, f"the log of node {node_id} is read at its own agent: -address=http://{address}")


async def _texts(tap: LogTap) -> AsyncIterator[str]:
    """Lines as they come, gathered; an empty text as a heartbeat after a quiet second."""
    while True:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                text = await tap.lines.get()
        except TimeoutError:
            text = ""
        while not tap.lines.empty():
            text += tap.lines.get_nowait()
        yield text


ROUTES = (route("/v1/agent/monitor", get=monitor),)
