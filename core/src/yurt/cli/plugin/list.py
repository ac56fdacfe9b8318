"""`yurt plugin list`: what is installed beside Yurt, and how it fares."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """One line a plugin."""
    is_json = wants_data(call)
    found: list[Json] = call.api.get("/v1/yurt/plugins") or []
    if is_json:
        return show_data(call, found)
    if not found:
        call.screen.line("No plugins are installed; drivers come with: pip install 'yurt[all]'")
        return 0
    rows = []
    for each in sorted(found, key=lambda plugin: plugin["Name"]):
        offers = ", ".join(name for kind in ("Drivers", "Devices", "Providers") for name in each.get(kind) or ())
        about = [each.get("Distribution") or "", each.get("Version") or ""]
        rows.append([each["Name"], each["State"], offers, *about, each.get("Reason") or ""])
    call.screen.table("Name|State|Offers|Distribution|Version|Reason", rows)
    return 0


COMMAND = Command("plugin list", "List Yurt's plugins: drivers, device plugins, template providers.", run, JSON_FLAGS)
