"""`yurt namespace list`."""

from __future__ import annotations

from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.terminal.data import show_data, wants_data


def run(call: Invocation) -> int:
    """All namespaces."""
    is_json = wants_data(call)
    found = call.api.get("/v1/namespaces") or []
    if is_json:
        return show_data(call, found)
    rows = [[space["Name"], space.get("Description") or ""] for space in sorted(found, key=lambda each: each["Name"])]
    call.screen.table("Name|Description", rows)
    return 0


COMMAND = Command("namespace list", "List namespaces.", run, JSON_FLAGS)
