"""Errors of commands: a message for the user with an exit code, or a failed request."""

from __future__ import annotations

from yurt.sdk.errors import YurtError, reason_of, reason_of_status


class CliError(Exception):
    """The command failed; the text goes to standard error. `code` None means the command's own code for failures."""

    def __init__(self, text: str, *, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class UsageError(CliError):
    """The command line is wrong; a hint to the command's help is added."""


class ApiError(YurtError):
    """The agent answered with an error; `status` is the HTTP status, and all that a Nomad agent reports."""

    def __init__(self, status: int, text: str, reason: str = "") -> None:
        """`reason`: the code that the answer's header names."""
        super().__init__(text, reason=reason_of(reason) or reason_of_status(status), status=status)


class Unreachable(YurtError):
    """No agent answered."""


class BrokenOff(YurtError):
    """A response broke off."""
