"""`yurt namespace status`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path
from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """One namespace."""
    is_json = wants_data(call)
    space: Json = call.api.get(api_path("namespace", call.args[0]))
    if is_json:
        return show_data(call, space)
    rules: Json = space.get("Capabilities") or {}

    def listed(key: str, none: str) -> str:
        return ",".join(rules.get(key) or ()) or none

    call.screen.pairs(
        [
            ("Name", space["Name"]),
            ("Description", space.get("Description") or ""),
            ("Quota", space.get("Quota") or ""),
            ("Enabled Drivers", listed("EnabledTaskDrivers", "*")),
            ("Disabled Drivers", listed("DisabledTaskDrivers", "")),
            ("Enabled Network Modes", listed("EnabledNetworkModes", "*")),
            ("Disabled Network Modes", listed("DisabledNetworkModes", "")),
        ]
    )
    if space.get("Meta"):
        call.screen.title("Metadata")
        call.screen.pairs(sorted(space["Meta"].items()))
    pools = space.get("NodePoolConfiguration") or {}
    if pools:
        call.screen.title("Node Pool Configuration")
        call.screen.pairs(
            [(key, ", ".join(value) if isinstance(value, list) else value) for key, value in pools.items()]
        )
    return 0


COMMAND = Command(
    "namespace status", "Show a namespace.", run, JSON_FLAGS, (1, 1), "<namespace>", "one argument: <namespace>"
)
