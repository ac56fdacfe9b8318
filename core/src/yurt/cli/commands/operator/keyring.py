"""`yurt operator root keyring`: the keys that encrypt variables and sign identities."""

from __future__ import annotations

import time
from typing import Any

from yurt.cli.declaration import VERBOSE, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text
from yurt.cli.terminal.text import local_time, parse_duration

Json = dict[str, Any]


def list_keys(call: Invocation) -> int:
    """The keys that encrypt variables and sign workload identities."""
    show_keys(call, call.api.get("/v1/operator/keyring/keys") or [])
    return 0


def show_keys(call: Invocation, keys: list[Json]) -> None:
    """A table of root keys."""
    rows = [
        [
            call.short(key["KeyID"]),
            key["State"],
            local_time(key.get("CreateTime") or 0),
            local_time(key["PublishTime"]) if key.get("PublishTime") else "<none>",
        ]
        for key in keys
    ]
    call.screen.table("Key|State|Create Time|Publish Time", rows)


def remove_key(call: Invocation) -> int:
    """Forget a key that is not active."""
    force = "true" if call.flags.is_on("force") else None
    call.api.delete(f"/v1/operator/keyring/key/{call.args[0]}", {"force": force})
    call.screen.line(f"Removed encryption key {call.args[0]}")
    return 0


def rotate_key(call: Invocation) -> int:
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


COMMANDS = (
    CliCommand(
        "operator root keyring list",
        "List the root keys",
        list_keys,
        (VERBOSE,),
        details="Root keys encrypt variables and sign identities.",
    ),
    CliCommand(
        "operator root keyring remove",
        "Remove a root key that is not active",
        remove_key,
        (switch("force", "Even when variables can be read with this key only; they are lost then."),),
        (1, 1),
        "<key ID>",
        "one argument: <key ID>",
    ),
    CliCommand(
        "operator root keyring rotate",
        "Create a new root key and use it from now on",
        rotate_key,
        (
            switch("full", "Encrypt all variables again with the new key."),
            switch("now", "Use the key at once; it is so unless -prepublish is given."),
            text("prepublish", "Publish the key now and use it after this time, such as 1h."),
            VERBOSE,
        ),
    ),
)
