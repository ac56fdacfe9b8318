"""`yurt job run`."""

from __future__ import annotations

import json
from typing import Any

from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.cli.files.jobfile import JOBFILE_FLAGS, JobFile, explain, read_job, variable_settings
from yurt.cli.flags import TEXT, number, switch, text, without_effect
from yurt.cli.terminal.text import local_time, now_ns, two_units
from yurt.cli.views.follow import follow_or_detach
from yurt.cli.views.job import next_launch
from yurt.sdk.errors import Reason

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Register the job and follow what comes of it."""
    variable_settings(call.flags.texts("var"))
    file = read_job(call, call.args[0])
    if call.flags.is_on("output"):
        call.screen.line(json.dumps({"Job": file.job}, indent=4, ensure_ascii=False))
        return 0
    try:
        answer: Json = call.api.put("/v1/jobs", _body(call, file), _query(file))
    except ApiError as error:
        raise CliError(_refusal(call, file, error)) from None
    show_warnings(call, answer.get("Warnings") or "")
    eval_id = answer.get("EvalID") or ""
    if not eval_id:
        _tell_registered(call, file)
        return 0
    if call.flags.is_on("detach"):
        call.screen.line("Job registration successful")
    return follow_or_detach(call, eval_id)


def _body(call: Invocation, file: JobFile) -> Json:
    body: Json = {
        "Job": file.job,
        "PolicyOverride": call.flags.is_on("policy-override"),
        "PreserveCounts": call.flags.is_on("preserve-counts"),
        "PreserveResources": call.flags.is_on("preserve-resources"),
        "EvalPriority": call.flags.number("eval-priority"),
        "Submission": file.submission(),
    }
    check = call.flags.text("check-index")
    if check:
        if not check.isdigit():
            raise CliError(f'-check-index needs a whole number, not "{check}"')
        body |= {"EnforceIndex": True, "JobModifyIndex": int(check)}
    return body


def _query(file: JobFile) -> dict[str, str | int | bool | None]:
    """The job's own namespace and region, where the file names them, win over the client's."""
    return {"namespace": file.job.get("Namespace"), "region": file.job.get("Region")}


def _refusal(call: Invocation, file: JobFile, error: ApiError) -> str:
    message = explain(file, str(error))
    is_check = error.reason is Reason.JOB_CHANGED
    return f"{message}\nJob not updated" if is_check else f"Error submitting job:\n{message}"


def show_warnings(call: Invocation, warnings: str) -> None:
    """The block of warnings of a registration or a plan."""
    if warnings:
        call.screen.line(call.screen.style("Job Warnings:", "bold", "yellow"))
        call.screen.line(warnings.rstrip() + "\n")


def _tell_registered(call: Invocation, file: JobFile) -> None:
    """A periodic or parameterized job makes no evaluation of its own."""
    call.screen.line("Job registration successful")
    if not file.job.get("Periodic"):
        return
    launch = next_launch(call, file.job["ID"], file.job.get("Namespace"))
    if launch:
        away = two_units(max(0, launch - now_ns()))
        call.screen.line(f"Approximate next launch time: {local_time(launch)} ({away} from now)")


COMMAND = Command(
    "job run",
    "Run a new job or update an existing one, from a job file.",
    run,
    (
        DETACH,
        VERBOSE,
        switch("output", "Print the job as the API takes it, without submitting it."),
        text("check-index", "Register only when the job's modify index is this one; 0: only when it is new."),
        number("eval-priority", "The priority of the evaluation, 1 to 100; default is the job's."),
        switch("preserve-counts", "Keep the counts that the running job has."),
        switch("preserve-resources", "Keep the resources that the running job has."),
        without_effect("policy-override"),
        without_effect("consul-namespace", kind=TEXT),
        without_effect("ui"),
        *JOBFILE_FLAGS,
    ),
    (1, 1),
    "<path>",
    "one argument: <path>",
    details="""
The path is a file in HCL or JSON, or - for standard input. The command follows the evaluation and the deployment
until both have ended; its exit code is 0 when all was placed and is healthy, 2 when something could not be
placed, 1 on errors.
""",
)
