"""The text of a file that a command is given."""

from __future__ import annotations

import sys
from pathlib import Path

from yurt.cli.errors import CliError


def read_text(name: str) -> str:
    """A file, or standard input for `-`."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{name}: cannot be read: {error}") from None
