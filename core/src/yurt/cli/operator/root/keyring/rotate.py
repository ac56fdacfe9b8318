"""`yurt operator root keyring rotate`."""

from __future__ import annotations

import time

from yurt.cli.command import VERBOSE, Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text
from yurt.cli.operator.root.keyring.list import show_keys
from yurt.cli.terminal.text import parse_duration


def run(call: Invocation) -> int:
    """Make a new active key."""
    flags = call.flags
    ahead = flags.text("prepublish")
    if ahead and flags.is_on("now"):
        raise UsageError("-now and -prepublish contradict each other; leave out one of both")
    query: dict[str, str | bool | int | None] = {"full": True if flags.is_on("full") else None}
    if ahead:
        try:
            query["publish_time"] = time.time_ns() + parse_duration(ahead)
        except ValueError:
            raise UsageError(f'Invalid value "{ahead}" for -prepublish: a duration such as 1h is needed') from None
    made = call.api.put("/v1/operator/keyring/rotate", query=query)
    show_keys(call, [made["Key"]])
    return 0


COMMAND = Command(
    "operator root keyring rotate",
    "Make a new root key and use it from now on.",
    run,
    (
        switch("full", "Encrypt all variables again with the new key."),
        switch("now", "Use the key at once; it is so unless -prepublish is given."),
        text("prepublish", "Publish the key now and use it after this time, such as 1h."),
        VERBOSE,
    ),
)
