"""`yurt operator autopilot get-config`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.terminal.data import show_data, wants_data

KEYS = (
    "CleanupDeadServers", "LastContactThreshold", "MaxTrailingLogs", "MinQuorum", "ServerStabilizationTime",
    "EnableRedundancyZones", "DisableUpgradeMigration", "EnableCustomUpgrades",
)  # fmt: skip


def run(call: Invocation) -> int:
    """How a cluster of servers minds itself."""
    is_data = wants_data(call)
    config: dict[str, Any] = call.api.get("/v1/operator/autopilot/configuration")
    if is_data:
        return show_data(call, config)
    for key in KEYS:
        value = config.get(key)
        call.screen.line(f"{key} = {str(value).lower() if isinstance(value, bool) else value}")
    return 0


COMMAND = Command("operator autopilot get-config", "Show how servers mind themselves.", run, JSON_FLAGS)
