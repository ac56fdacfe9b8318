"""Errors of the HTTP API: a status code and one line of plain text, as in Nomad.

What a handler finds wrong itself keeps its own code (`Refused`). What the servers refuse while they carry out a
write is a failed call, which Nomad answers with 500 and the text (`failed_call`); so is a lookup by something
that is not a UUID. All other errors are answered with the status of their reason (`yurt.sdk.errors`).

Every answer of an error names its reason in a header, so that no client has to read the text.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from yurt.sdk.errors import ERROR_HEADER, Conflict, Invalid, NotFound, Reason, Unavailable, YurtError, reason_of_status

T = TypeVar("T")


class Refused(YurtError):
    """An answer with its own status code."""

    def __init__(self, code: int, text: str, *, reason: Reason | None = None) -> None:
        super().__init__(text, reason=reason or reason_of_status(code), status=code)


class NoServer(Unavailable):
    """The agent runs no server, and the request needs one."""


class NotLed(Unavailable, reason=Reason.NO_LEADER):
    """No server led; the request was not carried out."""


async def failed_call(call: Awaitable[T]) -> T:
    """Await a server's operation; its refusal becomes 500 with its text."""
    try:
        return await call
    except (NotFound, Invalid, Conflict) as error:
        raise Refused(500, str(error), reason=error.reason) from error


def public_error(error: Exception) -> YurtError | None:
    """The error that the caller gets for an unexpected failure: a YurtError inside an exception group, or trouble of
    the machine (no descriptor, process or disk space left, a device that fails). None for a defect of ours.
    """
    if isinstance(error, YurtError):
        return error
    if isinstance(error, ExceptionGroup):
        errors = [public_error(each) for each in error.exceptions]
        return None if None in errors else errors[0]
    if isinstance(error, TimeoutError):
        text = "It took too long: the agent's machine, or an engine on it, does not answer in time"
        return Unavailable(text, reason=Reason.TIMED_OUT)
    if isinstance(error, OSError):
        text = f"The agent's machine is in trouble: {error.strerror or type(error).__name__}"
        return Unavailable(text, reason=Reason.MACHINE_TROUBLE)
    return None


def headers_of(error: YurtError) -> dict[str, str]:
    """The headers of the answer of an error."""
    return {ERROR_HEADER: error.reason.value}
