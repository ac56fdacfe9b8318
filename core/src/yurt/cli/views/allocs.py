"""Tables of allocations."""

from __future__ import annotations

from collections.abc import Iterable

from yurt.cli.declaration import Invocation
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import ago, go_duration, local_time, now_ns

SHORT = "ID|Node ID|Task Group|Version|Desired|Status|Created|Modified"
LONG = "ID|Eval ID|Node ID|Node Name|Task Group|Version|Desired|Status|Created|Modified"


def show_allocs(call: Invocation, allocs: Iterable[Json]) -> None:
    """A table of allocations, newest first."""
    ordered = sorted(allocs, key=lambda alloc: (-alloc.get("CreateIndex", 0), alloc["ID"]))
    if not ordered:
        call.screen.line("No allocations placed")
        return
    call.screen.table(LONG if call.is_verbose else SHORT, [_row(call, alloc) for alloc in ordered])


def idle_facts(alloc: Json) -> list[tuple[str, object]]:
    """Since when an allocation has not used its devices, and what follows; nothing for one that does."""
    idle: Json = alloc.get("Idle") or {}
    facts: list[tuple[str, object]] = []
    if idle.get("IdleFor"):
        since = local_time(idle.get("Since") or 0)
        facts.append(("Idle", f"for {go_duration(idle['IdleFor'])} or more, since {since}: {idle.get('Text') or ''}"))
    if idle.get("Action"):
        facts.append(("Ended for Idleness", str(idle["Action"])))
    elif idle.get("EndsAt"):
        facts.append(("Ends At", f"{local_time(idle['EndsAt'])}: {idle.get('Reason') or ''}"))
    kept_until = idle.get("KeptUntil") or 0
    if kept_until > now_ns():
        facts.append(
            ("Kept Until", f"{local_time(kept_until)} (kept {idle.get('Keeps') or 0} times while others waited)")
        )
    return facts


def show_idle(call: Invocation, allocs: Iterable[Json]) -> None:
    """A line for each running allocation that does not use its devices."""
    rows = [
        [call.short(alloc["ID"]), name, str(text)]
        for alloc in allocs
        if alloc["DesiredStatus"] == "run" and alloc["ClientStatus"] == "running"
        for name, text in idle_facts(alloc)
    ]
    if rows:
        call.screen.title("Idle Devices")
        call.screen.table("ID|What|Details", rows)


def job_version(alloc: Json) -> int:
    """The version of its job: short forms have it as a field, whole allocations inside their job."""
    return int(alloc.get("JobVersion") or (alloc.get("Job") or {}).get("Version") or 0)


def _row(call: Invocation, alloc: Json) -> list[str]:
    time_text = local_time if call.is_verbose else ago
    row = [
        call.short(alloc["ID"]), call.short(alloc["NodeID"]), alloc["TaskGroup"], str(job_version(alloc)),
        alloc["DesiredStatus"], alloc["ClientStatus"], time_text(alloc.get("CreateTime") or 0),
        time_text(alloc.get("ModifyTime") or 0),
    ]  # fmt: skip
    if call.is_verbose:
        row[1:2] = [call.short(alloc.get("EvalID")), call.short(alloc["NodeID"]), alloc.get("NodeName") or ""]
    return row
