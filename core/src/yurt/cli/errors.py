"""How a command ends early: with a sentence for the user and an exit code, or with a failure of the agent it asks."""

from __future__ import annotations

from yurt.sdk.errors import YurtError


class CliError(Exception):
    """The command failed; the text goes to standard error. `code` None means the command's own code for failures."""

    def __init__(self, text: str, *, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class UsageError(CliError):
    """The command line is wrong; a hint to the command's help is added."""


class ApiError(YurtError):
    """The agent answered with an error; `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Unreachable(YurtError):
    """No agent answered."""


class BrokenOff(YurtError):
    """An answer ended before its end."""
