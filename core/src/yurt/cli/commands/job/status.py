"""`yurt job status`, `allocs`, `deployments` and `promote`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_job, list_jobs
from yurt.cli.api.namespaces import warn_of_namespace
from yurt.cli.declaration import DETACH, JSON_FLAGS, UI, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, texts
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data


def show_jobs_or_one(call: Invocation) -> int:
    """List all jobs, or show one."""
    from yurt.cli.views.browser import job_page, offer_page, page
    from yurt.cli.views.job import show_job, show_jobs

    is_json = wants_data(call)
    if not call.args:
        jobs = list_jobs(call.api)
        if not jobs:
            warn_of_namespace(call)
        if is_json:
            return show_data(call, jobs)
        if not jobs:
            call.screen.line("No running jobs")
            return 0
        show_jobs(call, jobs, with_namespace=call.api.namespace == "*")
        offer_page(call, page("jobs"), "jobs")
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
    offer_page(call, job_page(job["ID"], job.get("Namespace")), "this job")
    return 0


def list_job_allocs(call: Invocation) -> int:
    """The allocations of a job."""
    from yurt.cli.views.allocs import show_allocs, show_idle

    is_json = wants_data(call)
    job = find_job(call, call.args[0])
    query = {"namespace": job.get("Namespace"), "all": call.flags.is_on("all")}
    allocs = call.api.get(api_path("job", job["ID"], "allocations"), query) or []
    if is_json:
        return show_data(call, allocs)
    show_allocs(call, allocs)
    show_idle(call, allocs)
    return 0


def list_job_deployments(call: Invocation) -> int:
    """The deployments of a job, or the newest in full."""
    from yurt.cli.views.deployments import deployment_text, show_deployments

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


def promote_job(call: Invocation) -> int:
    """Promote the canaries of the job's newest deployment."""
    from yurt.cli.commands.deployment import promote

    job = find_job(call, call.args[0])
    deployment: Json | None = call.api.get(
        api_path("job", job["ID"], "deployment"), {"namespace": job.get("Namespace")}
    )
    if deployment is None:
        raise CliError(f'The job "{job["ID"]}" has no deployment to promote')
    return promote(call, deployment)


COMMANDS = (
    CliCommand(
        "job status",
        "List jobs, or show the status of one",
        show_jobs_or_one,
        (
            switch("short", "Print the facts of the job alone."),
            switch("evals", "Print its evaluations."),
            switch("all-allocs", "Also those of an earlier job with the same id."),
            UI,
            VERBOSE,
            *JSON_FLAGS,
        ),
        (0, 1),
        "[<job>]",
        "at most one argument: <job>",
        details="Of one job it shows the groups, evaluations, deployment and allocations.",
    ),
    CliCommand(
        "job allocs",
        "List the allocations of a job",
        list_job_allocs,
        (VERBOSE, switch("all", "Also those of an earlier job with the same id."), *JSON_FLAGS),
        (1, 1),
        "<job>",
        "one argument: <job>",
    ),
    CliCommand(
        "job deployments",
        "List the deployments of a job",
        list_job_deployments,
        (
            VERBOSE,
            switch("latest", "Show the newest in full."),
            switch("all", "Also those of an earlier job with the same id."),
            *JSON_FLAGS,
        ),
        (1, 1),
        "<job>",
        "one argument: <job>",
    ),
    CliCommand(
        "job promote",
        "Promote the canaries of a job's newest deployment",
        promote_job,
        (DETACH, VERBOSE, texts("group", "Only this group; may be repeated.")),
        (1, 1),
        "<job>",
        "one argument: <job>",
        details="The canaries then replace the old version.",
    ),
)
