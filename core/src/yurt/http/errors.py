"""Failures as Nomad's HTTP API tells them: a status code and one plain line of text.

What a handler finds wrong itself keeps its own code (`Refused`). What the servers refuse while they carry out a
write is a failed call, which Nomad answers with 500 and the text (`failed_call`); so is a lookup by something
that is no UUID. All other errors of the closed set are mapped here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from yurt.sdk.errors import Conflict, DriverError, Invalid, NotFound, PermissionDenied, Unavailable, YurtError

T = TypeVar("T")

_FORBIDDEN_ENDINGS = (
    "Permission denied",
    "ACL token not found",
    "Job registration, dispatch, and scale are disabled by the scheduler configuration",
)
_NO_PATH = ("No path to node", "Unknown allocation", "Unknown node")


class Refused(YurtError):
    """An answer with a code of its own."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class NoServer(Unavailable):
    """Only an agent with a server can answer."""


class NotLed(Unavailable):
    """No server led; the request was not carried out."""


async def failed_call(call: Awaitable[T]) -> T:
    """Await a server's operation; what it refuses becomes 500 with its text."""
    try:
        return await call
    except (NotFound, Invalid, Conflict) as error:
        raise Refused(500, str(error)) from error


def told_error(error: Exception) -> YurtError | None:
    """What a failure beside the closed set is to the caller: one of the set inside a group of failures, or trouble of
    the machine (no descriptor, process or disk space left, a device that fails). None for a defect of ours.
    """
    if isinstance(error, YurtError):
        return error
    if isinstance(error, ExceptionGroup):
        found = [told_error(each) for each in error.exceptions]
        return None if None in found else found[0]
    if isinstance(error, TimeoutError):
        return Unavailable("It took too long: the agent's machine, or an engine on it, does not answer in time")
    if isinstance(error, OSError):
        return Unavailable(f"The agent's machine is in trouble: {error.strerror or type(error).__name__}")
    return None


def status_of(error: YurtError) -> int:
    """The HTTP status of an error."""
    text = str(error)
    if isinstance(error, Refused):
        return _forbidden(text) or error.code
    if isinstance(error, Unavailable) and text.startswith(_NO_PATH):
        return 404
    for kind, code in _CODES:
        if isinstance(error, kind):
            return _forbidden(text) or code
    return 500


def _forbidden(text: str) -> int | None:
    return 403 if text.endswith(_FORBIDDEN_ENDINGS) else None


_CODES: tuple[tuple[type[YurtError], int], ...] = (
    (NotFound, 404),
    (Invalid, 400),
    (PermissionDenied, 403),
    (Conflict, 409),
    (Unavailable, 500),
    (DriverError, 500),
)
