"""`yurt version`."""

from __future__ import annotations

from yurt import __version__
from yurt.cli.command import Command, Invocation


def run(call: Invocation) -> int:
    """Print the version."""
    call.screen.line(f"Yurt v{__version__}")
    return 0


COMMAND = Command("version", "Print the version of Yurt.", run, is_client=False)
