"""`yurt eval list`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.paging import PAGE_FLAGS, page_query, show_next_page
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.flags import text, without_effect
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.views.job import placement_failures

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Evaluations, newest first."""
    is_json = wants_data(call)
    flags = call.flags
    answer = call.api.read(
        "/v1/evaluations",
        {
            "job": flags.text("job"),
            "status": flags.text("status"),
            "reverse": True,
            **page_query(call),
        },
    )
    found: list[Json] = answer.data or []
    if is_json:
        return show_data(call, found)
    if not found:
        call.screen.line("No evals found")
        return 0
    rows = []
    for each in found:
        space, node = each.get("Namespace") or "default", call.short(each.get("NodeID"))
        start = [
            call.short(each["ID"]),
            str(each["Priority"]),
            each["TriggeredBy"],
            each.get("JobID") or "",
            space,
            node,
        ]
        rows.append([*start, each["Status"], placement_failures(each)])
    call.screen.table("ID|Priority|Triggered By|Job ID|Namespace|Node ID|Status|Placement Failures", rows)
    show_next_page(call, answer.next_token)
    return 0


COMMAND = Command(
    "eval list",
    "List evaluations, newest first.",
    run,
    (
        text("job", "Only those of this job."),
        text("status", "Only those with this status."),
        text("filter", "Only those that the expression matches."),
        *PAGE_FLAGS,
        without_effect("ui"),
        VERBOSE,
        *JSON_FLAGS,
    ),
)
