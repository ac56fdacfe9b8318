"""`yurt job inspect`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.cli.files.hcl import job_file
from yurt.cli.flags import switch, text
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Print the job as the server holds it, or the file that it came from."""
    wants_data(call)
    stub = find_job(call, call.args[0])
    query = {"namespace": stub.get("Namespace")}
    job: Json = call.api.get(api_path("job", stub["ID"]), query)
    wanted = call.flags.text("version")
    if wanted:
        job = version_of(call, stub, wanted)
    if call.flags.is_on("hcl") or call.flags.is_on("with-vars"):
        _print_source(call, job)
        return 0
    return show_data(call, job if call.flags.text("t") else {"Job": job})


def version_of(call: Invocation, stub: Json, wanted: str) -> Json:
    """One version of a job, by number or by tag."""
    answer = call.api.get(api_path("job", stub["ID"], "versions"), {"namespace": stub.get("Namespace")}) or {}
    versions: list[Json] = answer.get("Versions") or []
    for job in versions:
        tag = (job.get("VersionTag") or {}).get("Name")
        if str(job.get("Version") or 0) == wanted or tag == wanted:
            return job
    known = ", ".join(str(job.get("Version") or 0) for job in versions)
    raise CliError(f'The job "{stub["ID"]}" has no version "{wanted}"; it has {known}')


def _print_source(call: Invocation, job: Json) -> None:
    query = {"namespace": job.get("Namespace"), "version": job.get("Version") or 0}
    try:
        submission: Json = call.api.get(api_path("job", job["ID"], "submission"), query) or {}
    except ApiError as error:
        if error.status != 404:
            raise
        submission = {}
    if submission.get("Format") not in ("hcl2", "hcl1"):
        _write_source(call, job)
        return
    call.screen.line(submission["Source"].rstrip("\n"))
    if call.flags.is_on("with-vars"):
        for name, value in sorted((submission.get("VariableFlags") or {}).items()):
            call.screen.line(f'{name} = "{value}"')
        if submission.get("Variables"):
            call.screen.line(submission["Variables"])


def _write_source(call: Invocation, job: Json) -> None:
    """A job file for a job that came without one."""
    file = job_file(job, trim=True)
    call.screen.stream.write(file.text)
    if file.lost:
        call.screen.error(f"Warning: a job file cannot say {', '.join(file.lost)}; the rest is complete.")


COMMAND = Command(
    "job inspect",
    "Print a job as JSON, or the file that it came from.",
    run,
    (
        switch("json", "Print JSON, which is the default."),
        switch("hcl", "Print the job file: the one that was submitted, else one that is written from the job."),
        switch("with-vars", "With -hcl: also the values of its variables."),
        text("version", "A version by number or tag; default is the newest."),
        text("t", "Format the job with a Go template."),
    ),
    (1, 1),
    "<job>",
    "one argument: <job>",
)
