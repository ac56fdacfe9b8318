"""`yurt operator root keyring list`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import VERBOSE, Command, Invocation
from yurt.cli.terminal.text import local_time

Json = dict[str, Any]


def run(call: Invocation) -> int:
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


COMMAND = Command(
    "operator root keyring list", "List the keys that encrypt variables and sign identities.", run, (VERBOSE,)
)
