"""`yurt job run`, `start`, `stop`, `eval`, `dispatch` and `periodic force`: the commands that evaluate a job."""

from __future__ import annotations

import json
import sys
from typing import Final

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.declaration import DETACH, UI, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.cli.files.jobfile import JOBFILE_FLAGS, VAULT_NAMESPACE, JobFile, explain, read_job, variable_settings
from yurt.cli.flags import TEXT, number, switch, text, texts, without_effect
from yurt.cli.json_object import Json
from yurt.cli.terminal.confirm import confirm
from yurt.cli.terminal.text import local_time, now_ns, two_units
from yurt.cli.views.detach import follow_or_detach
from yurt.cli.views.unreplaced_failures import print_unplaced
from yurt.sdk.errors import Reason

NOTHING_LAUNCHED: Final = "an instance of this second exists, or another one runs and the job has prohibit_overlap."
"""Why a server of an older version launches nothing by request: it does not say."""

PAYLOAD_BYTES_MAX = 16 * 1024


def run_job(call: Invocation) -> int:
    """Register the job and follow its evaluation."""
    from yurt.cli.views.browser import job_page, open_page

    variable_settings(call.flags.texts("var"))
    file = read_job(call, call.args[0], asks_agent=not call.flags.is_on("output"))
    if call.flags.is_on("output"):
        from yurt_jobspec import with_unset_fields

        call.screen.line(json.dumps({"Job": with_unset_fields(file.job)}, indent=4, ensure_ascii=False))
        return 0
    try:
        answer: Json = call.api.put("/v1/jobs", _body(call, file), _query(file))
    except ApiError as error:
        raise CliError(_refusal(call, file, error)) from None
    show_warnings(call, answer.get("Warnings") or "", file)
    if call.flags.is_on("ui"):
        open_page(call, job_page(file.job["ID"], file.job.get("Namespace")))
    eval_id = answer.get("EvalID") or ""
    if not eval_id:
        _print_registered(call, file)
        return 0
    if call.flags.is_on("detach"):
        call.screen.line("Job registration successful")
    return follow_or_detach(call, eval_id, waits=call.flags.is_on("wait"))


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


def show_warnings(call: Invocation, warnings: str, file: JobFile | None = None) -> None:
    """The warnings of a registration or a plan, at their lines of the file where known."""
    if warnings:
        call.screen.line(call.screen.style("Job Warnings:", "bold", "yellow"))
        shown = explain(file, warnings, is_warning=True) if file else warnings
        call.screen.line(shown.rstrip() + "\n")


def _print_registered(call: Invocation, file: JobFile) -> None:
    """Print the registration of a periodic or parameterized job, which creates no evaluation."""
    from yurt.cli.views.job import next_launch

    call.screen.line("Job registration successful")
    if not file.job.get("Periodic"):
        return
    launch = next_launch(call, file.job["ID"], file.job.get("Namespace"))
    if launch:
        away = two_units(max(0, launch - now_ns()))
        call.screen.line(f"Approximate next launch time: {local_time(launch)} ({away} from now)")


def start_jobs(call: Invocation) -> int:
    """Run stopped jobs again, one after another; the worst exit code."""
    return max([_start(call, job) for job in [_stopped_job(call, stub) for stub in _found_jobs(call)]])


def _found_jobs(call: Invocation) -> list[Json]:
    """The stubs of the named jobs, each once: all are found before the first of them is changed."""
    stubs = [find_job(call, name) for name in call.args]
    return list({(stub.get("Namespace"), stub["ID"]): stub for stub in stubs}.values())


def _stopped_job(call: Invocation, stub: Json) -> Json:
    job: Json = call.api.get(api_path("job", stub["ID"]), {"namespace": stub.get("Namespace")})
    if not job.get("Stop"):
        raise CliError(f'The job "{stub["ID"]}" is not stopped; its status is {job["Status"]}')
    return job


def _start(call: Invocation, job: Json) -> int:
    query = {"namespace": job.get("Namespace")}
    body: Json = {"Job": job | {"Stop": False}, "Submission": _submission(call, job)}
    answer: Json = call.api.put("/v1/jobs", body, query) or {}
    eval_id = answer.get("EvalID") or ""
    if not eval_id:
        call.screen.line(f'The job "{job["ID"]}" is started')
        return 0
    code = follow_or_detach(call, eval_id, detached=lambda: call.screen.line(eval_id))
    if not call.flags.is_on("detach"):
        print_unplaced(call, job, eval_id)
    return code


def _submission(call: Invocation, job: Json) -> Json | None:
    """The text that the job was submitted as before it was stopped, so that it stays with the new version."""
    version = job.get("Version") or 0
    for requested in (version, version - 1):
        query = {"namespace": job.get("Namespace"), "version": max(requested, 0)}
        try:
            found: Json = call.api.get(api_path("job", job["ID"], "submission"), query)
        except ApiError as error:
            if error.status != 404:
                raise
        else:
            return found
    return None


def stop_jobs(call: Invocation) -> int:
    """Stop the jobs, one after another; the worst exit code."""
    # An error or an interrupt at a question must leave all jobs running.
    jobs = [job for job in _found_jobs(call) if _is_confirmed(call, job)]
    return max([_stop(call, job) for job in jobs], default=0)


def _is_confirmed(call: Invocation, job: Json) -> bool:
    is_exact = job["ID"] in call.args
    if is_exact or call.flags.is_on("yes") or confirm(f'Are you sure you want to stop job "{job["ID"]}"?'):
        return True
    call.screen.line("Cancelled job stop")
    return False


def _stop(call: Invocation, job: Json) -> int:
    query = {
        "namespace": job.get("Namespace"),
        "purge": call.flags.is_on("purge"),
        "global": call.flags.is_on("global"),
        "no_shutdown_delay": call.flags.is_on("no-shutdown-delay"),
        "eval_priority": call.flags.number("eval-priority") or None,
    }
    answer: Json = call.api.delete(api_path("job", job["ID"]), query) or {}
    eval_id = answer.get("EvalID") or ""
    return follow_or_detach(call, eval_id, detached=lambda: call.screen.line(eval_id))


def evaluate_job(call: Invocation) -> int:
    """Make an evaluation of the job and follow it."""
    job = find_job(call, call.args[0])
    body = {
        "JobID": job["ID"],
        "Namespace": job.get("Namespace"),
        "EvalOptions": {"ForceReschedule": call.flags.is_on("force-reschedule")},
    }
    answer: Json = call.api.put(api_path("job", job["ID"], "evaluate"), body, {"namespace": job.get("Namespace")})
    eval_id = answer["EvalID"]
    code = follow_or_detach(
        call, eval_id, detached=lambda: call.screen.line(f'Created eval ID: "{call.short(eval_id)}" ')
    )
    if not call.flags.is_on("detach"):
        print_unplaced(call, job, eval_id, is_forced=call.flags.is_on("force-reschedule"))
    return code


def dispatch_job(call: Invocation) -> int:
    """Start a child of a parameterized job."""
    import base64

    from yurt.cli.views.browser import job_page, open_page

    job = find_job(call, call.args[0])
    flags = call.flags
    body: Json = {
        "JobID": job["ID"],
        "Payload": base64.b64encode(_payload(call.args[1:])).decode(),
        "Meta": dict(_pair(item) for item in flags.texts("meta")),
        "IdPrefixTemplate": flags.text("id-prefix-template"),
        "Priority": flags.number("priority"),
    }
    query = {"namespace": job.get("Namespace"), "idempotency_token": flags.text("idempotency-token")}
    answer: Json = call.api.put(api_path("job", job["ID"], "dispatch"), body, query)
    eval_id = answer.get("EvalID") or ""
    facts = [("Dispatched Job ID", answer["DispatchedJobID"])]
    call.screen.pairs(facts + ([("Evaluation ID", call.short(eval_id))] if eval_id else []))
    if flags.is_on("ui"):
        open_page(call, job_page(answer["DispatchedJobID"], job.get("Namespace")))
    if not eval_id or flags.is_on("detach"):
        return 0
    call.screen.line()
    code = follow_or_detach(call, eval_id)
    return _wait(call, answer["DispatchedJobID"], job.get("Namespace")) if flags.is_on("wait") and not code else code


def _payload(arguments: list[str]) -> bytes:
    from pathlib import Path

    if not arguments:
        return b""
    try:
        data = sys.stdin.buffer.read(PAYLOAD_BYTES_MAX + 1) if arguments[0] == "-" else Path(arguments[0]).read_bytes()
    except OSError as error:
        raise CliError(f"{arguments[0]}: cannot be read: {error.strerror}") from None
    if len(data) > PAYLOAD_BYTES_MAX:
        raise CliError(f"The payload is larger than {PAYLOAD_BYTES_MAX} bytes; pass a reference to it instead")
    return data


def _pair(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals:
        raise CliError(f'-meta needs key=value, not "{setting}"')
    return name, value


def _wait(call: Invocation, job_id: str, namespace: str | None) -> int:
    """Wait for the end of the child; 1 when anything of it failed."""
    index = 0
    while True:
        answer = call.api.read(api_path("job", job_id), {"namespace": namespace}, index=index, wait_s=30.0)
        if answer.data["Status"] == "dead":
            break
        index = answer.index
    summary: Json = call.api.get(api_path("job", job_id, "summary"), {"namespace": namespace}) or {}
    names = ("Queued", "Complete", "Failed", "Running", "Starting", "Lost", "Unknown")
    groups = summary.get("Summary") or {}
    rows = [[group, *(str(groups[group].get(name) or 0) for name in names)] for group in sorted(groups)]
    call.screen.table("|".join(["Task Group", *names]), rows)
    return 1 if any(groups[group].get("Failed") or groups[group].get("Lost") for group in groups) else 0


def force_periodic(call: Invocation) -> int:
    """Launch a child of a periodic job now."""
    job = find_job(call, call.args[0])
    query = {"namespace": job.get("Namespace")}
    answer: Json = call.api.put(api_path("job", job["ID"], "periodic", "force"), None, query) or {}
    eval_id = answer.get("EvalID") or ""
    if not eval_id:
        why = answer.get("Warnings") or NOTHING_LAUNCHED
        call.screen.line(f"Force periodic successful, but nothing was launched: {why}")
        return 0
    return follow_or_detach(
        call,
        eval_id,
        detached=lambda: call.screen.line(f"Force periodic successful\nEvaluation ID: {call.short(eval_id)}"),
    )


COMMANDS = (
    CliCommand(
        "job run",
        "Run a new job or update an existing one, from a job file",
        run_job,
        (
            DETACH,
            VERBOSE,
            switch("wait", "Wait until the tasks of a batch job have ended; the exit code says whether they failed."),
            switch("output", "Print the job as the API takes it, without submitting it."),
            text("check-index", "Register only when the job's modify index is this one; 0: only when it is new."),
            number("eval-priority", "The priority of the evaluation, 1 to 100; default is the job's."),
            switch("preserve-counts", "Keep the counts that the running job has."),
            switch("preserve-resources", "Keep the resources that the running job has."),
            without_effect("policy-override"),
            without_effect("consul-namespace", kind=TEXT),
            VAULT_NAMESPACE,
            UI,
            *JOBFILE_FLAGS,
        ),
        (1, 1),
        "<path>",
        "one argument: <path>",
        details="""
The path is a file in HCL or JSON, or - for standard input. The command follows the evaluation and the deployment
until both have ended; of a job without a deployment it follows the tasks until they run or have ended. Meanwhile it
tells the progress of images and artifacts, restarts, and failures with the last lines of the task's log. It gives up
early when no allocation of a group can start.

The exit code is 0 when all was placed and is healthy, runs or is complete, 2 when something could not be placed, 1 when
tasks failed and on other errors.
""",
    ),
    CliCommand(
        "job start",
        "Start stopped jobs again, unchanged",
        start_jobs,
        (DETACH, VERBOSE),
        (1, -1),
        "<job> ...",
        "at least one argument: <job>",
    ),
    CliCommand(
        "job stop",
        "Stop jobs",
        stop_jobs,
        (
            DETACH,
            VERBOSE,
            switch("purge", "Forget the job at once."),
            switch("yes", "Skip the confirmation for a name that is only a prefix."),
            without_effect("global"),  # there is one region
            switch("no-shutdown-delay", "Do not wait for shutdown_delay."),
            number("eval-priority", "The priority of the evaluation, 1 to 100; default is the job's."),
        ),
        (1, -1),
        "<job> ...",
        "at least one argument: <job>",
        details="Their allocations end. A stopped job stays visible until it is garbage-collected.",
    ),
    CliCommand(
        "job eval",
        "Evaluate a job again",
        evaluate_job,
        (
            switch("force-reschedule", "Replace failed allocations also when they have no attempt left."),
            DETACH,
            VERBOSE,
        ),
        (1, 1),
        "<job>",
        "one argument: <job>",
    ),
    CliCommand(
        "job dispatch",
        "Start an instance of a parameterized job",
        dispatch_job,
        (
            DETACH,
            VERBOSE,
            texts("meta", "key=value for the child; may be repeated."),
            text("id-prefix-template", "A word for the id of the child."),
            text("idempotency-token", "At most one child is started for a token."),
            number("priority", "The priority of the child; default is the job's."),
            switch("wait", "Wait until the child has ended."),
            UI,
        ),
        (1, 2),
        "<parameterized job> [input source]",
        "one or two arguments: <parameterized job> [input source]",
        details="The payload comes from a file, or from standard input for -.",
    ),
    CliCommand(
        "job periodic force",
        "Start an instance of a periodic job now, whatever its schedule",
        force_periodic,
        (DETACH, VERBOSE),
        (1, 1),
        "<job id>",
        "one argument: <job id>",
    ),
)
