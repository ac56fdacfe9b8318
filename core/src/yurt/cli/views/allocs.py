"""Tables of allocations."""

from __future__ import annotations

from collections.abc import Iterable

from yurt.cli.declaration import Invocation
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import ago, local_time

SHORT = "ID|Node ID|Task Group|Version|Desired|Status|Created|Modified"
LONG = "ID|Eval ID|Node ID|Node Name|Task Group|Version|Desired|Status|Created|Modified"


def show_allocs(call: Invocation, allocs: Iterable[Json]) -> None:
    """A table of allocations, newest first."""
    ordered = sorted(allocs, key=lambda alloc: (-alloc.get("CreateIndex", 0), alloc["ID"]))
    if not ordered:
        call.screen.line("No allocations placed")
        return
    call.screen.table(LONG if call.is_verbose else SHORT, [_row(call, alloc) for alloc in ordered])


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
