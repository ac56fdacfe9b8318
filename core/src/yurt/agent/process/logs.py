"""The destinations of the agent's log: standard output, a rotated file, the syslog daemon, the journal.

All handlers have one level, which SIGHUP changes. A file or syslog that cannot be opened stops the start of the
agent; later it costs the lines and one message on standard error, never the agent.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TextIO

from yurt.runtime.logs import LEVELS, LineStream, NomadFormatter, log_formatter, set_up_logging
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value

LOG_NAME: Final = "yurt.log"
"""The file's name where `log_file` names a folder."""
LOG_MODE: Final = 0o640
SYSLOG_SOCKET: Final = "/dev/log"
_PRIORITIES: Final = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Syslog's priorities by the level from which on they hold; 7 is below all."""


class LogSettings(Value):
    """The log of an agent."""

    level: str = "INFO"
    as_json: bool = False
    has_location: bool = False
    """Each line names the line of source that logged it."""
    file: str = ""
    """An absolute path; one that ends in a slash is a folder."""
    rotate_bytes: int = 0
    rotate_s: float = 86_400.0
    rotate_max_files: int = 0
    """Older files that are kept; 0: all, -1: none."""
    has_syslog: bool = False
    syslog_facility: str = "LOCAL0"


class AgentLogs:
    """The handlers of one agent."""

    def __init__(self, settings: LogSettings, *, stream: LineStream, now: Callable[[], int]) -> None:
        """Raises Invalid when the file cannot be opened or no syslog daemon listens."""
        shown = set_up_logging(
            settings.level, as_json=settings.as_json, has_location=settings.has_location, stream=stream
        )
        if is_journal(os.environ, sys.stdout):
            shown.setFormatter(_with_priority(shown.formatter))
        self._handlers: list[logging.Handler] = [shown]
        self._file: FileLog | None = None
        if settings.file:
            self._file = FileLog(settings, now)
            self._add(self._file, settings)
        if settings.has_syslog:
            self._add(_syslog(settings), settings)

    def _add(self, handler: logging.Handler, settings: LogSettings) -> None:
        if handler.formatter is None:
            handler.setFormatter(log_formatter(as_json=settings.as_json, has_location=settings.has_location))
        handler.setLevel(LEVELS[settings.level])
        for each in self._handlers[0].filters:
            handler.addFilter(each)
        logging.getLogger().addHandler(handler)
        self._handlers.append(handler)

    def set_level(self, name: str) -> None:
        """Log from a level on."""
        for handler in self._handlers:
            handler.setLevel(LEVELS[name])
        root = logging.getLogger()
        root.setLevel(min(LEVELS[name], logging.DEBUG))

    def reopen(self) -> None:
        """Continue in a file of the configured name: something else may have renamed the present one."""
        if self._file is not None:
            self._file.reopen()


class FileLog(logging.Handler):
    """Writes lines to a file that is rotated by size and age."""

    def __init__(self, settings: LogSettings, now: Callable[[], int]) -> None:
        super().__init__()
        from yurt.audit.files import AuditFile  # Only agents with a file need it.
        from yurt.audit.settings import AuditSinkSettings

        self._now = now
        self._has_complained = False
        self.log_path = path = file_path(settings.file)
        self._target = AuditFile(
            AuditSinkSettings(
                name="log",
                kind="agent",
                path=str(path),
                mode=LOG_MODE,
                rotate_bytes=settings.rotate_bytes,
                rotate_s=settings.rotate_s,
                rotate_max_files=settings.rotate_max_files,
            )
        )
        try:
            self._target.open(now())
        except OSError as error:
            raise Invalid(f"log_file: {path} cannot be opened: {error.strerror or error}") from None

    def emit(self, record: logging.LogRecord) -> None:
        """Append one line; called under the handler's lock."""
        try:
            self._target.write(self.format(record).encode(errors="replace") + b"\n", self._now())
            self._has_complained = False
        except OSError as error:
            if not self._has_complained:
                self._has_complained = True
                sys.stderr.write(f"the log file cannot be written: {error}\n")
        except Exception:
            self.handleError(record)  # a message that does not fit its arguments, as other handlers treat it

    def reopen(self) -> None:
        """Open the file of the configured name."""
        self.acquire()
        try:
            self._target.open(self._now())
        except OSError as error:
            sys.stderr.write(f"the log file cannot be opened: {error}\n")
        finally:
            self.release()

    def close(self) -> None:
        """Close the file."""
        self._target.close()
        super().close()


def file_path(given: str) -> Path:
    """The file that a `log_file` names."""
    return Path(given) / LOG_NAME if given.endswith("/") or Path(given).is_dir() else Path(given)


def log_problems(raw: Mapping[str, object]) -> list[str]:
    """Problems of the values of log settings."""
    from logging.handlers import SysLogHandler

    found = []
    facility = str(raw.get("syslog_facility") or "LOCAL0")
    if facility.lower() not in SysLogHandler.facility_names:
        from yurt.rules.problems import near_hint

        names = sorted(name.upper() for name in SysLogHandler.facility_names)
        hint = near_hint(facility.upper(), names)
        found.append(f'syslog_facility "{facility}" is not one of {", ".join(names)}{hint}.')
    most = raw.get("log_rotate_max_files", 0)
    if isinstance(most, int) and most < -1:
        found.append(f"log_rotate_max_files is {most}; it must be a number of files, 0 for all, or -1 for none.")
    size = raw.get("log_rotate_bytes", 0)
    if isinstance(size, int) and size < 0:
        found.append(f"log_rotate_bytes is {size}; it must be a number of bytes, or 0 for any size.")
    return found


def is_journal(environ: Mapping[str, str], stream: TextIO) -> bool:
    """Whether systemd's journal reads this stream, which then takes `<3>` before a line for the line's priority."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def priority(level: int) -> int:
    """Syslog's priority of a Python level."""
    return next((number for least, number in _PRIORITIES if level >= least), 7)


class _Prioritized(logging.Formatter):
    """Lines of another formatter, each with its priority as a prefix."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """The lines of a record: a traceback has several."""
        mark = f"<{priority(record.levelno)}>"
        return "\n".join(mark + line for line in self._inner.format(record).split("\n"))


def _with_priority(inner: logging.Formatter | None) -> logging.Formatter:
    return _Prioritized(inner or NomadFormatter())


def _listens(path: str) -> bool:
    """Whether a daemon takes datagrams or a stream at a socket."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_UNIX, kind) as probe:
            try:
                probe.connect(path)
            except OSError:
                continue
            return True
    return False


def _syslog(settings: LogSettings) -> logging.Handler:
    from logging.handlers import SysLogHandler

    class Syslog(SysLogHandler):
        """Names each line's program and process, and is silent while no daemon listens."""

        def _connect_unixsocket(self, address: str) -> None:
            """A daemon that does not read costs lines: to wait for it would hold up the whole agent."""
            super()._connect_unixsocket(address)  # type: ignore[misc]
            self.socket.setblocking(False)  # type: ignore[attr-defined]
            # In a stream nothing but this separates a line from the next one, as the C library's `syslog` does it.
            self.append_nul = self.socket.type == socket.SOCK_STREAM  # type: ignore[attr-defined]

        def mapPriority(self, levelName: str) -> str:  # noqa: N802, N803 - the library's names
            return {"ERROR": "err", "CRITICAL": "err", "WARNING": "warning", "INFO": "info"}.get(levelName, "debug")

        def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
            pass

    if not _listens(SYSLOG_SOCKET):  # The library keeps it to itself.
        raise Invalid(
            f"enable_syslog: nothing listens at {SYSLOG_SOCKET}; install a syslog daemon, "
            "or leave enable_syslog away: under systemd the journal has the log with its priorities"
        )
    handler = Syslog(SYSLOG_SOCKET, SysLogHandler.facility_names[settings.syslog_facility.lower()])
    handler.ident = f"yurt[{os.getpid()}]: "
    return handler
