"""`yurt version`."""

from __future__ import annotations

from yurt import __version__
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.tree import NOUNS


def run(call: Invocation) -> int:
    """Print the version."""
    call.screen.line(f"Yurt v{__version__}")
    return 0


COMMANDS = (CliCommand("version", NOUNS["version"], run, is_client=False),)
