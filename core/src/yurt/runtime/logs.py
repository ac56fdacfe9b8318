"""Log lines in Nomad's form.

A line is `<RFC 3339 with milliseconds> [LEVEL] component: message: key=value`, with `log_include_location` also
`folder/file.py:line: ` before the component. Levels are Nomad's five; TRACE is below Python's DEBUG.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
from typing import Protocol

TRACE = 5
LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "OFF": 100,
}

_NAMES = {
    TRACE: "TRACE",
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "ERROR",
}

_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_ESCAPED |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\t", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Control characters and line breaks of a message, and how its line shows them."""


class LineStream(Protocol):
    """A destination of log lines."""

    def write(self, text: str, /) -> int:
        """Write a text, at once or later."""
        ...

    def flush(self) -> None:
        """Write buffered lines."""
        ...


class NomadFormatter(logging.Formatter):
    """One record as one line; the traceback of an unexpected error follows it, for the log only."""

    def __init__(self, *, has_location: bool = False) -> None:
        super().__init__()
        self._has_location = has_location

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
        level = f"[{level_name(record.levelno)}]".ljust(7)
        source = f"{location(record)}: " if self._has_location else ""
        # Texts of strangers, such as paths of requests, must not begin a line of their own.
        text = f"{stamp} {level} {source}{component(record.name)}: {record.getMessage().translate(_ESCAPED)}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info and record.exc_info[0] else text


class JsonFormatter(logging.Formatter):
    """One record as one JSON object, with the keys that Nomad uses."""

    def __init__(self, *, has_location: bool = False) -> None:
        super().__init__()
        self._has_location = has_location

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "@level": level_name(record.levelno).lower(),
            "@message": record.getMessage(),
            "@module": component(record.name),
            "@timestamp": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        }
        if self._has_location:
            line["@caller"] = location(record)
        if record.exc_info and record.exc_info[0]:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether a record is worth logging: not an asyncio message about a reader that closed its connection."""
    return not (
        record.name.startswith("aiohttp") and record.exc_info and isinstance(record.exc_info[1], ConnectionError)
    )


def set_up_logging(
    level: str, *, as_json: bool = False, has_location: bool = False, stream: LineStream | None = None
) -> logging.Handler:
    """Log to `stream` (default: standard output) at `level` and above; other handlers get DEBUG and above."""
    root = logging.getLogger()
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(log_formatter(as_json=as_json, has_location=has_location))
    handler.setLevel(LEVELS[level])
    handler.addFilter(is_worth_a_line)
    for name in ("asyncio", "aiohttp.access", "grpc"):
        logging.getLogger(name).setLevel(logging.WARNING)
    root.handlers[:] = [handler]
    root.setLevel(min(LEVELS[level], logging.DEBUG))
    return handler


def log_formatter(*, as_json: bool, has_location: bool) -> logging.Formatter:
    """The form of an agent's lines."""
    kind = JsonFormatter if as_json else NomadFormatter
    return kind(has_location=has_location)


def location(record: logging.LogRecord) -> str:
    """The line of source that logged a record: folder, file and number, as Nomad writes it."""
    return f"{'/'.join(record.pathname.split('/')[-2:])}:{record.lineno}"


def level_name(level: int) -> str:
    """Nomad's name of a Python level."""
    return _NAMES.get(level) or ("ERROR" if level > logging.ERROR else "INFO")


def component(logger: str) -> str:
    """`yurt.server.scheduling.worker` -> `server.worker`."""
    return logger.removeprefix("yurt.") or "agent"
