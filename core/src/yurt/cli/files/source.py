"""The text of a file that a command is given."""

from __future__ import annotations

import sys
from pathlib import Path

from yurt.cli.errors import CliError


def read_text(name: str) -> str:
    """A file, or standard input for `-`; raises CliError with the reason when it cannot be read."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CliError(f"{name}: there is no such file") from None
    except OSError as error:
        raise CliError(f"{name}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        from yurt.runtime.file_kinds import not_text

        raise CliError(f"{name}: {not_text(error)}") from None
