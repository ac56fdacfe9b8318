"""`yurt node pool jobs`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path
from yurt.cli.api.paging import PAGE_FLAGS, page_query, show_next_page
from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.flags import text
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.views.job import show_jobs

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """The jobs of a pool."""
    is_data = wants_data(call)
    answer = call.api.read(api_path("node", "pool", call.args[0], "jobs"), page_query(call))
    jobs: list[Json] = answer.data or []
    if is_data:
        return show_data(call, jobs)
    if not jobs:
        call.screen.line(f'No jobs in node pool "{call.args[0]}"')
        return 0
    show_jobs(call, jobs, with_namespace=call.api.namespace == "*")
    show_next_page(call, answer.next_token)
    return 0


COMMAND = Command(
    "node pool jobs",
    "List the jobs of a node pool.",
    run,
    (
        text("filter", "Only jobs that the expression matches."),
        *PAGE_FLAGS,
        *JSON_FLAGS,
    ),
    (1, 1),
    "<node-pool>",
    "one argument: <node-pool>",
)
