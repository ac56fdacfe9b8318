"""`yurt job status`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_job, list_jobs
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.flags import switch, without_effect
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.views.job import show_job, show_jobs

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """List all jobs, or show one."""
    is_json = wants_data(call)
    if not call.args:
        jobs = list_jobs(call.api)
        if is_json:
            return show_data(call, jobs)
        if not jobs:
            call.screen.line("No running jobs")
            return 0
        show_jobs(call, jobs, with_namespace=call.api.namespace == "*")
        return 0
    stub = find_job(call, call.args[0])
    job: Json = call.api.get(api_path("job", stub["ID"]), {"namespace": stub.get("Namespace")})
    if is_json:
        return show_data(call, job)
    show_job(
        call,
        job,
        is_short=call.flags.is_on("short"),
        with_evals=call.flags.is_on("evals"),
        all_allocs=call.flags.is_on("all-allocs"),
    )
    return 0


COMMAND = Command(
    "job status",
    "List all jobs, or show how one fares: its groups, evaluations, deployment and allocations.",
    run,
    (
        switch("short", "Print the facts of the job alone."),
        switch("evals", "Print its evaluations."),
        switch("all-allocs", "Also those of an earlier job with the same id."),
        without_effect("ui"),
        VERBOSE,
        *JSON_FLAGS,
    ),
    (0, 1),
    "[<job>]",
    "at most one argument: <job>",
)
