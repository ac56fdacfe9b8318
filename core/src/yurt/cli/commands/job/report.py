"""`yurt job report`: GPU-hours by namespace and job, used and wasted, with waits and cost."""

from __future__ import annotations

import datetime
from typing import Any

from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import number, text
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import SECOND, local_time, now_ns, parse_duration, two_units

Json = dict[str, Any]
DAY_S = 86_400


def show_report(call: Invocation) -> int:
    """Print what namespaces and their jobs used of GPUs."""
    is_data = wants_data(call)
    since_s = since_of(call.flags.text("since"))
    report: Json = call.api.get("/v1/yurt/accounting", {"since": since_s, "namespace": call.api.namespace})
    if is_data:
        return show_data(call, report)
    start = local_time(report["Since"] * SECOND) if report["Since"] else "the beginning"
    if not report["Namespaces"]:
        call.screen.line(f"No allocation held a GPU since {start}")
        return 0
    call.screen.line(f"GPU usage since {start}, in GPU-hours; what runs counts until now")
    call.screen.title("Namespaces")
    header = "Namespace|Allocs|Running|Held|Used|Idle|Lost|Unknown|Mean Wait|Longest Wait|Energy|Cost"
    rows = [
        [row["Namespace"], row["Allocs"], row["Running"]["Allocs"], *hour_cells(row), *end_cells(row)]
        for row in report["Namespaces"]
    ]
    call.screen.table(header, rows)
    limit = call.flags.number("jobs")
    jobs = report["Jobs"][:limit] if limit > 0 else []
    _show_reclaims(call, report["Namespaces"])
    if jobs:
        call.screen.title("Jobs")
        header = "Namespace|Job|Allocs|Held|Used|Idle|Lost|Unknown|Mean Wait|Longest Wait|Energy|Cost"
        call.screen.table(
            header, [[row["Namespace"], row["JobID"], row["Allocs"], *hour_cells(row), *end_cells(row)] for row in jobs]
        )
        left = len(report["Jobs"]) - len(jobs) + report["JobsLeftOut"]
        if left:
            call.screen.line(f"{left} more jobs: -jobs={len(jobs) + left} shows them")
    return 0


def _show_reclaims(call: Invocation, namespaces: list[Json]) -> None:
    """Print what idle reclaim did, where it did something."""
    names = ("IdleEnded", "IdleSparedByUse", "IdleSparedByKeep")
    rows = [[row["Namespace"], *(row.get(name) or 0 for name in names)] for row in namespaces]
    if any(any(row[1:]) for row in rows):
        call.screen.title("Idle Reclaim")
        call.screen.table("Namespace|Ended|Spared by Use|Spared by Keep", [row for row in rows if any(row[1:])])


def hour_cells(row: Json) -> list[str]:
    """Hours held, used, idle, lost and unknown."""
    unknown = max(0.0, row["GPUHours"] - row["MeasuredGPUHours"])
    hours = (row["GPUHours"], row["UsedGPUHours"], row["IdleGPUHours"], sum(row["LostGPUHours"].values()), unknown)
    return [f"{each:.2f}" for each in hours]


def end_cells(row: Json) -> list[str]:
    """Waits, energy and cost."""
    mean = row["QueueWaitSeconds"]
    return [
        "-" if mean is None else two_units(round(mean * SECOND)),
        two_units(round(row["QueueWaitMaxSeconds"] * SECOND)),
        f"{row['EnergyKWh']:.2f} kWh",
        f"{row['Cost']:.2f}",
    ]


def since_of(value: str) -> int:
    """Unix seconds of a date, or of a time before now: "2026-11-01", "30d", "12h"; 0 for all that is kept."""
    if not value:
        return 0
    try:
        return round(datetime.datetime.fromisoformat(value).replace(tzinfo=datetime.UTC).timestamp())
    except ValueError:
        pass
    try:
        days = value.removesuffix("d")
        span = float(days) * DAY_S * SECOND if days != value else parse_duration(value)
    except ValueError:
        text_of = "give a date such as 2026-11-01, or a time before now such as 30d or 12h"
        raise UsageError(f"-since={value} is not a time; {text_of}") from None
    return max(0, round((now_ns() - span) / SECOND))


COMMANDS = (
    CliCommand(
        "job report",
        "Show GPU-hours by namespace and job: used, wasted, waits and cost",
        show_report,
        (
            text("since", "From this day on: a date (2026-11-01) or a time before now (30d, 12h); else all days."),
            number("jobs", "How many jobs to show, those with the most GPU-hours first.", default=20),
            *JSON_FLAGS,
        ),
        details="Of one namespace; -namespace=* shows all that the token may read. Namespaces count allocations by the "
        "day (UTC) of their end and what runs; jobs only what the servers still hold. Idle: no multiprocessor, memory "
        "or link was at work. Lost: work since the last checkpoint of allocations that were preempted, failed or lost. "
        "Unknown: no device plugin measured it. Cost: hours times the `prices` of the node pool's queue.",
    ),
)
