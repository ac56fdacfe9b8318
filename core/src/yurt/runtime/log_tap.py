"""The agent's own log as a stream at any level, while it has readers."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import logging
from collections.abc import AsyncGenerator, Iterator

from yurt.runtime.logs import location
from yurt.sdk.errors import Invalid

LINES_MAX = 512
"""Lines waiting for a reader; beyond that the oldest are dropped."""
HEARTBEAT_S = 1.0
LEVELS = {
    "trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING,
    "error": logging.ERROR,
}  # fmt: skip
_NAMES = {logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.WARNING: "WARN", logging.ERROR: "ERROR"}


class LogTap(logging.Handler):
    """Puts formatted records into a bounded queue of the loop; a full queue drops its oldest line."""

    def __init__(self, level: int, loop: asyncio.AbstractEventLoop, *, as_json: bool, has_location: bool) -> None:
        super().__init__(level)
        self.lines: asyncio.Queue[str] = asyncio.Queue(LINES_MAX)
        self._loop = loop
        self._line = json_line if as_json else text_line
        self._has_location = has_location

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; may be called from any thread."""
        line = self._line(record, has_location=self._has_location)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._put, line)

    def _put(self, line: str) -> None:
        if self.lines.full():
            self.lines.get_nowait()
        self.lines.put_nowait(line)


def text_line(record: logging.LogRecord, *, has_location: bool = False) -> str:
    """`2006-01-02T15:04:05.000Z [INFO]  yurt.server: message`, with the line of source before the logger's name."""
    level, source = f"[{_level(record)}]", f"{location(record)}: " if has_location else ""
    return f"{_time(record)} {level:<7} {source}{record.name}: {record.getMessage()}\n"


def json_line(record: logging.LogRecord, *, has_location: bool = False) -> str:
    """A record as a JSON object with the same fields."""
    fields = {"@level": _level(record).lower(), "@message": record.getMessage(), "@module": record.name}
    if has_location:
        fields["@caller"] = location(record)
    return json.dumps(fields | {"@timestamp": _time(record)}) + "\n"


def level_of(name: str) -> int:
    """The level of a name; raises Invalid for an unknown one."""
    level = LEVELS.get(name.lower())
    if level is None:
        raise Invalid(f"Unknown log level: {name[:64]}")
    return level


async def log_texts(*, level: str, as_json: bool, has_location: bool = False) -> AsyncGenerator[str]:
    """Lines of this agent's log in batches; an empty text as a heartbeat after a quiet second."""
    tap = LogTap(level_of(level), asyncio.get_running_loop(), as_json=as_json, has_location=has_location)
    with _tapped(tap):
        yield ""
        while True:
            yield await _gathered(tap)


async def _gathered(tap: LogTap) -> str:
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            text = await tap.lines.get()
    except TimeoutError:
        text = ""
    while not tap.lines.empty():
        text += tap.lines.get_nowait()
    return text


@contextlib.contextmanager
def _tapped(tap: LogTap) -> Iterator[None]:
    """Feed the tap inside the block, with Yurt's own loggers lowered to its level."""
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


def _level(record: logging.LogRecord) -> str:
    return next((name for level, name in reversed(_NAMES.items()) if record.levelno >= level), "DEBUG")


def _time(record: logging.LogRecord) -> str:
    moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
