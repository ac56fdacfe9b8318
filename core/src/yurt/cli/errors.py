"""Errors of commands: a message for the user with an exit code, or a failed request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yurt.sdk.errors import YurtError, reason_of, reason_of_status

if TYPE_CHECKING:
    from yurt_jobspec import Diagnostic, PartialJob


class CliError(Exception):
    """The command failed; the text goes to standard error. `code` None means the command's own code for failures."""

    def __init__(self, text: str, *, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class UsageError(CliError):
    """The command line is wrong; a hint to the command's help is added."""


class JobFileError(CliError):
    """The file contains no valid job; `diagnostics` says why, `sources` has the texts that they refer to.

    `partial` is what could be read of the job, if that makes sense without the rest.
    """

    def __init__(
        self, diagnostics: Sequence[Diagnostic], sources: dict[str, str], partial: PartialJob | None = None
    ) -> None:
        from yurt_jobspec import render

        super().__init__(render(diagnostics, sources))
        self.diagnostics = tuple(diagnostics)
        self.sources = sources
        self.partial = partial


class ApiError(YurtError):
    """The agent answered with an error; `status` is the HTTP status, the only field that a Nomad agent reports."""

    def __init__(self, status: int, text: str, reason: str = "") -> None:
        """`reason`: the code that the answer's header names."""
        super().__init__(text, reason=reason_of(reason) or reason_of_status(status), status=status)


class Unreachable(YurtError):
    """No agent answered."""


class BrokenOff(YurtError):
    """A response broke off."""


class OutputClosed(BaseException):
    """The reader of the output has gone. Like KeyboardInterrupt it passes all handlers of failures."""
