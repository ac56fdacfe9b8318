"""`yurt tls cert info`."""

from __future__ import annotations

from yurt.cli.command import Command, Invocation
from yurt.cli.tls.info import show


def run(call: Invocation) -> int:
    """Print its facts."""
    return show(call, is_authority=False)


COMMAND = Command(
    "tls cert info",
    "Show what a certificate says.",
    run,
    (),
    (1, 1),
    "<certificate file>",
    "one argument: <certificate file>",
    is_client=False,
)
