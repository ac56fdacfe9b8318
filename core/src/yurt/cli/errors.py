"""How a command ends early: with a sentence for the user and an exit code."""

from __future__ import annotations


class CliError(Exception):
    """The command failed; the text goes to standard error. `code` None means the command's own code for failures."""

    def __init__(self, text: str, *, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class UsageError(CliError):
    """The command line is wrong; a hint to the command's help is added."""
