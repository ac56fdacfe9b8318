"""`yurt tls ca info`."""

from __future__ import annotations

from yurt.cli.command import Command, Invocation
from yurt.cli.tls.info import show


def run(call: Invocation) -> int:
    """Print its facts."""
    return show(call, is_authority=True)


COMMAND = Command(
    "tls ca info",
    "Show what the certificate of an authority says.",
    run,
    (),
    (1, 1),
    "<CA file>",
    "one argument: <CA file>",
    is_client=False,
)
