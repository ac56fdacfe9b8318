"""`yurt alloc checks`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_alloc
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.screen import key_values
from yurt.cli.terminal.text import SECOND, local_time

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """What the checks of an allocation's services said last."""
    is_data = wants_data(call)
    alloc = find_alloc(call, call.args[0])
    checks = checks_of(call, alloc["ID"])
    if is_data:
        return show_data(call, checks)
    if not checks:
        call.screen.line("No checks found")
        return 0
    call.screen.line(f"Status of {len(checks)} Nomad Service Checks\n")
    blocks = (key_values(_facts(call, check)) for check in ordered(checks))
    call.screen.line("\n\n".join(blocks))
    return 0


def checks_of(call: Invocation, alloc_id: str) -> dict[str, Json]:
    """The checks of an allocation by their ids."""
    return call.api.get(api_path("client", "allocation", alloc_id, "checks")) or {}


def ordered(checks: dict[str, Json]) -> list[Json]:
    """By service, then task, then name."""
    return sorted(checks.values(), key=lambda check: (check["Service"], check.get("Task") or "", check["Check"]))


def _facts(call: Invocation, check: Json) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [
        ("ID", call.short(check["ID"])),
        ("Name", check["Check"]),
        ("Group", check["Group"]),
        ("Task", check.get("Task") or "(group)"),
        ("Service", check["Service"]),
        ("Status", check["Status"]),
    ]
    if check.get("StatusCode"):
        facts.append(("StatusCode", check["StatusCode"]))
    facts += [("Mode", check["Mode"]), ("Timestamp", local_time((check.get("Timestamp") or 0) * SECOND))]
    return [*facts, ("Output", check.get("Output") or "")]


COMMAND = Command(
    "alloc checks",
    "Show what the checks of an allocation's services said last.",
    run,
    (VERBOSE, *JSON_FLAGS),
    (1, 1),
    "<allocation>",
    "one argument: <allocation>",
)
