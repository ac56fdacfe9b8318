"""`yurt operator root keyring`: the keys that encrypt variables and sign identities."""

from __future__ import annotations

import time

from yurt.cli.api.lookup import api_path, find_root_key
from yurt.cli.declaration import JSON_FLAGS, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import local_time, parse_duration

COLUMNS = "Key|State|Create Time|Publish Time"


def list_keys(call: Invocation) -> int:
    """The keys that encrypt variables and sign workload identities."""
    is_data = wants_data(call)
    keys: list[Json] = call.api.get("/v1/operator/keyring/keys", {"stale": call.flags.is_on("stale") or None}) or []
    if is_data:
        return show_data(call, keys)
    rows = [[*key_row(call, key), key.get("Keyring") or "<none>"] for key in keys]
    call.screen.table(f"{COLUMNS}|Keyring", rows)
    for key in keys:
        if key.get("KeyringProblem"):
            call.screen.line(f"Key {call.short(key['KeyID'])} cannot be used by this server: {key['KeyringProblem']}")
    return 0


def key_row(call: Invocation, key: Json) -> list[str]:
    """A root key in a table."""
    return [
        call.short(key["KeyID"]),
        key["State"],
        local_time(key.get("CreateTime") or 0),
        local_time(key["PublishTime"]) if key.get("PublishTime") else "<none>",
    ]


def remove_key(call: Invocation) -> int:
    """Forget a key that is not active."""
    force = "true" if call.flags.is_on("force") else None
    key_id = find_root_key(call.api, call.args[0])["KeyID"]
    call.api.delete(api_path("operator", "keyring", "key", key_id), {"force": force})
    call.screen.line(f"Removed encryption key {key_id}")
    return 0


def rotate_key(call: Invocation) -> int:
    """Make a new active key."""
    flags = call.flags
    ahead = flags.text("prepublish")
    if ahead and flags.is_on("now"):
        raise UsageError("-now and -prepublish contradict each other; leave out one of the two")
    query: dict[str, str | bool | int | None] = {"full": True if flags.is_on("full") else None}
    if ahead:
        try:
            query["publish_time"] = time.time_ns() + parse_duration(ahead)
        except ValueError:
            raise UsageError(f'Invalid value "{ahead}" for -prepublish: a duration such as 1h is needed') from None
    made = call.api.put("/v1/operator/keyring/rotate", query=query)
    call.screen.table(COLUMNS, [key_row(call, made["Key"])])
    return 0


COMMANDS = (
    CliCommand(
        "operator root keyring list",
        "List the root keys",
        list_keys,
        (VERBOSE, switch("stale", "Ask the server at -address, and not the leader."), *JSON_FLAGS),
        details="Root keys encrypt variables and sign identities. Keyring says which key encryption key of the server "
        "that answers wraps the key's file: aead for none, memory with -dev.",
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
