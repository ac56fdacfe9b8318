"""`yurt job deployments`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.flags import switch
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.views.deployments import deployment_text, show_deployments


def run(call: Invocation) -> int:
    """The deployments of a job, or the newest in full."""
    is_json = wants_data(call)
    job = find_job(call, call.args[0])
    query = {"namespace": job.get("Namespace"), "all": call.flags.is_on("all")}
    if call.flags.is_on("latest"):
        newest = call.api.get(api_path("job", job["ID"], "deployment"), query)
        if is_json:
            return show_data(call, newest)
        call.screen.line(deployment_text(newest, id_length=call.id_length) if newest else "No deployment found")
        return 0
    found = call.api.get(api_path("job", job["ID"], "deployments"), query) or []
    if is_json:
        return show_data(call, found)
    show_deployments(call, found, none="No deployments found")
    return 0


COMMAND = Command(
    "job deployments",
    "List the deployments of a job.",
    run,
    (
        VERBOSE,
        switch("latest", "Show the newest in full."),
        switch("all", "Also those of an earlier job with the same id."),
        *JSON_FLAGS,
    ),
    (1, 1),
    "<job>",
    "one argument: <job>",
)
