"""Deployments: a list, one in full, and the block that a monitor repeats."""

from __future__ import annotations

from collections.abc import Iterable

from yurt.cli.declaration import Invocation
from yurt.cli.json_object import Json
from yurt.cli.terminal.screen import columns, key_values
from yurt.cli.terminal.text import local_time, parse_time

LIST = "ID|Job ID|Job Version|Status|Description"
ACTIVE = frozenset({"running", "paused", "pending", "initializing", "blocked", "unblocking"})


def is_active(deployment: Json) -> bool:
    """The deployment has not ended."""
    return deployment["Status"] in ACTIVE


def show_deployments(call: Invocation, deployments: Iterable[Json], *, none: str) -> None:
    """A table of deployments, newest first."""
    ordered = sorted(deployments, key=lambda each: -each.get("CreateIndex", 0))
    if not ordered:
        call.screen.line(none)
        return
    call.screen.table(LIST, [_row(call, each) for each in ordered])


def _row(call: Invocation, each: Json) -> list[str]:
    version = str(each.get("JobVersion") or 0)
    return [call.short(each["ID"]), each["JobID"], version, each["Status"], each.get("StatusDescription") or ""]


def deployment_text(deployment: Json, *, id_length: int, title: str = "") -> str:
    """Facts of a deployment and its groups."""
    facts = [
        ("ID", deployment["ID"][:id_length]),
        ("Job ID", deployment["JobID"]),
        ("Job Version", deployment.get("JobVersion") or 0),
        ("Status", deployment["Status"]),
        ("Description", deployment.get("StatusDescription") or ""),
    ]
    return "\n".join([key_values(facts), "", title or "Deployed", groups_text(deployment)])


def summary_text(deployment: Json, *, id_length: int) -> str:
    """The short form for `job status`."""
    facts = [
        ("ID", deployment["ID"][:id_length]),
        ("Status", deployment["Status"]),
        ("Description", deployment.get("StatusDescription") or ""),
    ]
    return "\n".join([key_values(facts), "", "Deployed", groups_text(deployment)])


def groups_text(deployment: Json) -> str:
    """The counts of every group; columns without values are omitted."""
    groups = deployment.get("TaskGroups") or {}
    reverts = any(group.get("AutoRevert") for group in groups.values())
    canaries = any(group.get("DesiredCanaries") for group in groups.values())
    deadlines = any(parse_time(group.get("RequireProgressBy")) for group in groups.values())
    titles = ["Task Group", *(["Auto Revert"] if reverts else []), *(["Promoted"] if canaries else []), "Desired"]
    titles += [*(["Canaries"] if canaries else []), "Placed", "Healthy", "Unhealthy"]
    rows = [titles + (["Progress Deadline"] if deadlines else [])]
    for name in sorted(groups):
        group = groups[name]
        row = [name, *([str(bool(group.get("AutoRevert"))).lower()] if reverts else [])]
        if canaries:
            row.append(str(bool(group.get("Promoted"))).lower() if group.get("DesiredCanaries") else "N/A")
        row.append(str(group.get("DesiredTotal") or 0))
        row += [str(group.get("DesiredCanaries") or 0)] if canaries else []
        row += [str(group.get(key) or 0) for key in ("PlacedAllocs", "HealthyAllocs", "UnhealthyAllocs")]
        row += [local_time(parse_time(group.get("RequireProgressBy")))] if deadlines else []
        rows.append(row)
    return columns(rows)
