"""`yurt job allocs`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.flags import switch
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.views.allocs import show_allocs


def run(call: Invocation) -> int:
    """The allocations of a job."""
    is_json = wants_data(call)
    job = find_job(call, call.args[0])
    query = {"namespace": job.get("Namespace"), "all": call.flags.is_on("all")}
    allocs = call.api.get(api_path("job", job["ID"], "allocations"), query) or []
    if is_json:
        return show_data(call, allocs)
    show_allocs(call, allocs)
    return 0


COMMAND = Command(
    "job allocs",
    "List the allocations of a job.",
    run,
    (VERBOSE, switch("all", "Also those of an earlier job with the same id."), *JSON_FLAGS),
    (1, 1),
    "<job>",
    "one argument: <job>",
)
