"""Questions to the user."""

from __future__ import annotations

import sys

from yurt.cli.errors import CliError


def confirm(question: str) -> bool:
    """Ask for yes or no; without a terminal, -yes must be given."""
    if not sys.stdin.isatty():
        raise CliError(f"{question} There is no terminal to ask on: repeat the command with -yes.")
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
