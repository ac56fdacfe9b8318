"""`yurt node pool info`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path
from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import go_duration

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """One node pool."""
    is_json = wants_data(call)
    pool: Json = call.api.get(api_path("node", "pool", call.args[0]))
    if is_json:
        return show_data(call, pool)
    screen = call.screen
    facts = [("Name", pool["Name"]), ("Description", pool.get("Description") or "")]
    if pool.get("NodeIdentityTTL"):
        facts.append(("Node Identity TTL", go_duration(pool["NodeIdentityTTL"])))
    screen.pairs(facts)
    screen.title("Metadata")
    screen.pairs(sorted((pool.get("Meta") or {}).items())) if pool.get("Meta") else screen.line("No metadata")
    screen.title("Scheduler Configuration")
    config = pool.get("SchedulerConfiguration") or {}
    if not config:
        screen.line("No scheduler configuration")
        return 0
    screen.pairs(
        [
            ("Scheduler Algorithm", config.get("SchedulerAlgorithm") or ""),
            ("Memory Oversubscription", config.get("MemoryOversubscriptionEnabled")),
        ]
    )
    return 0


COMMAND = Command(
    "node pool info", "Show a node pool.", run, JSON_FLAGS, (1, 1), "<node-pool>", "one argument: <node-pool>"
)
