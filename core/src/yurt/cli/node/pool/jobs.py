"""`yurt node pool jobs`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.flags import number, text
from yurt.cli.lookup import api_path
from yurt.cli.output import show_data, wants_data
from yurt.cli.views.job import show_jobs

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """The jobs of a pool."""
    is_data, flags = wants_data(call), call.flags
    query = {
        "filter": flags.text("filter"),
        "per_page": flags.number("per-page") or None,
        "next_token": flags.text("page-token"),
    }
    answer = call.api.read(api_path("node", "pool", call.args[0], "jobs"), query)
    jobs: list[Json] = answer.data or []
    if is_data:
        return show_data(call, jobs)
    if not jobs:
        call.screen.line(f'No jobs in node pool "{call.args[0]}"')
        return 0
    show_jobs(call, jobs, with_namespace=call.api.namespace == "*")
    if answer.next_token:
        call.screen.line("\nResults have been paginated. To get the next page run:\n")
        call.screen.line(f"yurt node pool jobs -page-token {answer.next_token} {call.args[0]}")
    return 0


COMMAND = Command(
    "node pool jobs",
    "List the jobs of a node pool.",
    run,
    (
        text("filter", "Only jobs that the expression matches."),
        number("per-page", "How many at a time."),
        text("page-token", "Where to go on."),
        *JSON_FLAGS,
    ),
    (1, 1),
    "<node-pool>",
    "one argument: <node-pool>",
)
