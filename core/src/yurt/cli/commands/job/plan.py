"""`yurt job validate`, `plan` and `why-not`: checks and dry runs of a job, which change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.commands.job.run import show_warnings
from yurt.cli.declaration import JSON_FLAGS, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError, JobFileError, UsageError
from yurt.cli.files.jobfile import (
    JOBFILE_FLAGS,
    VAULT_NAMESPACE,
    JobFile,
    explain,
    load_job,
    read_job,
    server_findings,
    variable_settings,
)
from yurt.cli.flags import Flags, switch, text, without_effect
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import FORMAT_CONFLICT, parsed, rendered, show_data, wants_data
from yurt.cli.terminal.text import go_duration, local_time, now_ns, parse_time, sentence, two_units

if TYPE_CHECKING:
    from yurt_jobspec import Diagnostic


FORMATS = ("text", "json", "sarif")

CHANGES, NO_CHANGES, FAILED = 1, 0, 255
_FILE_FLAGS = tuple(flag for flag in JOBFILE_FLAGS if flag.name != "json")
_ENDINGS = (".hcl", ".nomad", ".json")
PLACED, NOT_PLACED, NO_ANSWER = 0, 1, 255


def validate_job(call: Invocation) -> int:
    """Check the file, then ask the agent whether it would accept the job."""
    requested = call.flags.text("format")
    if requested not in FORMATS:
        raise UsageError(f'-format is one of {", ".join(FORMATS)}, not "{requested}"')
    variable_settings(call.flags.texts("var"))
    if requested != "text":
        found = findings(call)
        _print(call, requested, found)
        return 1 if any(item.severity == "error" for item in found) else 0
    file = read_job(call, call.args[0])
    errors, warnings = ask(call, file)
    show_warnings(call, warnings, file)
    if errors:
        screen = call.screen
        screen.line(screen.style("Job validation errors:", "bold", "red"))
        screen.line("\n".join(explain(file, error) for error in errors))
        return 1
    call.screen.line(call.screen.style("Job validation successful", "bold", "green"))
    return 0


def ask(call: Invocation, file: JobFile) -> tuple[Sequence[str], str]:
    """(errors, warnings) of the agent."""
    try:
        answer: Json = (
            call.api.put("/v1/validate/job", {"Job": file.job}, {"namespace": file.job.get("Namespace")}) or {}
        )
    except ApiError as error:
        raise CliError(f"Error validating job:\n{explain(file, str(error))}") from None
    errors = answer.get("ValidationErrors") or ([answer["Error"]] if answer.get("Error") else [])
    return errors, answer.get("Warnings") or ""


def findings(call: Invocation) -> list[Diagnostic]:
    """All findings of the parser and the agent, errors first."""
    try:
        file = load_job(call, call.args[0])
    except JobFileError as error:
        from yurt.cli.files.partial_job import server_errors

        return [*error.diagnostics, *server_errors(call, error)]
    errors, warnings = ask(call, file)
    located = [finding for error in errors for finding in server_findings(file, error)]
    return [*located, *file.warnings, *server_findings(file, warnings, is_warning=True)]


def _print(call: Invocation, requested: str, found: Sequence[Diagnostic]) -> None:
    from yurt_jobspec import to_json, to_sarif

    if requested == "sarif":
        call.screen.json(to_sarif(found))
        return
    answer: Mapping[str, Any] = {
        "valid": all(item.severity != "error" for item in found),
        "diagnostics": to_json(found),
    }
    call.screen.json(answer)


def plan_job(call: Invocation) -> int:
    """Show what `job run` would do; 0 nothing, 1 allocations start or stop, 255 on errors."""
    template = call.flags.text("t")
    if template and call.flags.is_on("json-output"):
        raise CliError(FORMAT_CONFLICT)
    if template:
        parsed(template)
    variable_settings(call.flags.texts("var"))
    file = read_job(call, call.args[0])
    job_id = file.job.get("ID") or ""
    if not job_id:
        raise CliError(f"{file.filename}: the job has no ID")
    body = {"Job": file.job, "Diff": call.flags.is_on("diff"), "PolicyOverride": call.flags.is_on("policy-override")}
    query = {"namespace": file.job.get("Namespace"), "region": file.job.get("Region")}
    try:
        plan: Json = call.api.put(api_path("job", job_id, "plan"), body, query)
    except ApiError as error:
        raise CliError(f"Error during plan:\n{explain(file, str(error))}") from None
    if template:
        call.screen.line(rendered(template, plan))
        return exit_code(plan)
    if call.flags.is_on("json-output"):
        call.screen.json(plan)
        return exit_code(plan)
    show_plan(call, file, plan)
    return exit_code(plan)


def show_plan(call: Invocation, file: JobFile, plan: Json) -> None:
    """The diff, the dry run and the index to check against."""
    from yurt.cli.views.diff import DiffPrinter

    screen = call.screen
    if plan.get("Diff"):
        screen.line(DiffPrinter(screen, verbose=call.is_verbose).job(plan["Diff"]))
        screen.line()
    screen.line(screen.style("Scheduler dry-run:", "bold"))
    _show_dry_run(call, file, plan)
    screen.line()
    show_warnings(call, plan.get("Warnings") or "", file)
    _show_preemptions(call, (plan.get("Annotations") or {}).get("PreemptedAllocs") or [])
    index = plan.get("JobModifyIndex") or 0
    screen.line(screen.style(f"Job Modify Index: {index}", "bold"))
    screen.line("To submit the job with version verification run:\n")
    screen.line(f"yurt job run -check-index {index} {_again(call)}{file.filename}\n")
    screen.line("When running the job with the check-index flag, the job will only be run if the")
    screen.line("job modify index given matches the server-side version. If the index has changed,")
    screen.line("another user has modified the job and the plan's results are potentially invalid.")


def _again(call: Invocation) -> str:
    settings = [f"-var {_quoted(setting)} " for setting in call.flags.texts("var")]
    files = [f"-var-file {_quoted(name)} " for name in call.flags.texts("var-file")]
    return "".join(settings + files)


def _quoted(raw_text: str) -> str:
    import shlex

    return shlex.quote(raw_text)


def _show_dry_run(call: Invocation, file: JobFile, plan: Json) -> None:
    screen = call.screen
    launches = _launches(file.job)
    if launches:
        screen.line(f"- Nothing is placed until the job is {launches}.")
    _show_placing(call, file, plan, launches=bool(launches))
    for evaluation in plan.get("CreatedEvals") or ():
        if evaluation.get("TriggeredBy") == "rolling-update":
            screen.line(f"- Rolling update, next evaluation will be in {go_duration(evaluation.get('Wait') or 0)}.")
    launch = parse_time(plan.get("NextPeriodicLaunch"))
    if launch:
        away = two_units(max(0, launch - now_ns()))
        screen.line(f"- If submitted now, next periodic launch would be at {local_time(launch)} ({away} from now).")


def _show_placing(call: Invocation, file: JobFile, plan: Json, *, launches: bool) -> None:
    """Print whether everything would be placed, else why not and the nearest nodes."""
    from yurt.cli.views.explanations import ask_why_not, is_of_every_node, nowhere_text, show_near_misses
    from yurt.cli.views.placement_metrics import failure_lines

    screen, failed = call.screen, plan.get("FailedTGAllocs") or {}
    is_of_all = is_of_every_node(file.job.get("Type"))
    namespace = file.job.get("Namespace")
    explanation = ask_why_not(call, {"Job": file.job}, namespace=namespace) if failed or is_of_all else None
    nowhere = nowhere_text(explanation)
    if failed:
        where = " on all nodes" if is_of_all else ""
        what = " of an instance launched now" if launches else ""
        screen.line(screen.style(f"- WARNING: Failed to place all allocations{what}{where}.", "yellow", "bold"))
        lines = failure_lines(failed, screen, verbose=call.is_verbose, id_length=call.id_length)
        screen.line("\n".join("  " + line for line in lines))
    if nowhere:
        screen.line(screen.style(f"- WARNING: {sentence(nowhere)}", "yellow", "bold"))
    if failed or nowhere:
        show_near_misses(call, explanation)
        return
    text = "An instance launched now would be placed." if launches else "All tasks successfully allocated."
    screen.line(screen.style(f"- {text}", "green", "bold"))


def _launches(job: Json) -> str:
    """How a periodic or parameterized job is launched; empty for any other job."""
    if job.get("Periodic") is not None:
        return "launched at its time or by `yurt job periodic force`"
    return "dispatched" if job.get("ParameterizedJob") is not None and not job.get("Dispatched") else ""


def _show_preemptions(call: Invocation, preempted: list[Json]) -> None:
    if not preempted:
        return
    call.screen.line(call.screen.style("Preemptions:\n", "bold"))
    if len(preempted) < 10:
        rows = [[call.short(alloc["ID"]), alloc["JobID"], alloc["TaskGroup"]] for alloc in preempted]
        call.screen.table("Alloc ID|Job ID|Task Group", rows)
    else:
        counts: dict[tuple[str, str, str], int] = {}
        for alloc in preempted:
            key = (alloc["JobID"], alloc.get("Namespace") or "default", alloc.get("JobType") or "")
            counts[key] = counts.get(key, 0) + 1
        table = [[*key, str(count)] for key, count in sorted(counts.items())]
        call.screen.table("Job ID|Namespace|Job Type|Preemptions", table)
    call.screen.line()


def exit_code(plan: Json) -> int:
    """1 when allocations would be created or destroyed."""
    groups = ((plan.get("Annotations") or {}).get("DesiredTGUpdates") or {}).values()
    moving = ("Stop", "Place", "Migrate", "DestructiveUpdate", "Canary")
    return CHANGES if any(group.get(key) for group in groups for key in moving) else NO_CHANGES


def explain_job(call: Invocation) -> int:
    """Show why a job is not fully placed; 0 when it is, 1 when it is not, 255 on errors."""
    from pathlib import Path

    from yurt.cli.views.explanations import WHY_NOT, lacks_capacity

    is_json = wants_data(call)
    subject = call.args[0]
    is_file = subject == "-" or subject.endswith(_ENDINGS) or Path(subject).is_file()
    if is_file:
        found = _of_file(call, subject)
    else:
        stub = find_job(call, subject)
        found = call.api.put(WHY_NOT, {"JobID": stub["ID"], "Namespace": stub.get("Namespace") or "default"})
    if is_json:
        show_data(call, found)
    else:
        _show(call, found)
        if not is_file:
            _show_failures(call, found)
    return NOT_PLACED if any(map(lacks_capacity, found.get("Groups") or ())) else PLACED


def _show_failures(call: Invocation, found: Json) -> None:
    """Why tasks of a stored job fail, which is not a lack of capacity."""
    from yurt.cli.views.task_failures import show_last_failures

    query = {"namespace": found.get("Namespace") or "default"}
    try:
        allocs: list[Json] = call.api.get(api_path("job", found["JobID"], "allocations"), query) or []
    except ApiError:
        return
    show_last_failures(call, allocs)


def _of_file(call: Invocation, path: str) -> Json:
    variable_settings(call.flags.texts("var"))
    file = read_job(_as_file_call(call), path)
    query = {"namespace": file.job.get("Namespace"), "region": file.job.get("Region")}
    return _explanation(call, file, query)


def _explanation(call: Invocation, file: JobFile, query: Json) -> Json:
    from yurt.cli.views.explanations import WHY_NOT

    try:
        found: Json = call.api.put(WHY_NOT, {"Job": file.job}, query)
    except ApiError as error:
        raise CliError(explain(file, str(error))) from None
    return found


def _as_file_call(call: Invocation) -> Invocation:
    """The call for the reader of job files, for which `-json` would mean that the file is JSON."""
    names = [flag.name for flag in call.command.all_flags]
    values: Json = {name: call.flags.texts(name) if name in ("var", "var-file") else None for name in names}
    values |= {
        "json": False, "hcl2-strict": call.flags.is_on("hcl2-strict"), "file-access": call.flags.text("file-access"),
    }  # fmt: skip
    return Invocation(call.command, Flags(values, frozenset()), call.args)


def _show(call: Invocation, found: Json) -> None:
    from yurt.cli.views.explanations import show_group

    warnings = found.get("Warnings") or []
    if warnings:
        show_warnings(call, "\n".join(warnings))
    call.screen.line(
        call.screen.style(f'Job "{found["JobID"]}" on the state at index {found.get("Index") or 0}', "bold")
    )
    for group in found.get("Groups") or ():
        show_group(call, group)


COMMANDS = (
    CliCommand(
        "job validate",
        "Check a job file without running it",
        validate_job,
        (
            text("format", "Format of the findings: text, json or sarif.", default="text"),
            VAULT_NAMESPACE,
            *JOBFILE_FLAGS,
        ),
        (1, 1),
        "<path>",
        "one argument: <path>",
        details="The exit code is 0 when the agent would take the job, 1 when not, 255 when the command line is wrong. "
        "SARIF is what code hosts read.",
        usage_code=255,
    ),
    CliCommand(
        "job plan",
        "Show what `job run` would do, without doing it",
        plan_job,
        (
            switch("diff", "Print the difference to the running job.", default=True),
            switch("json-output", "Print the answer of the API as JSON."),
            without_effect("policy-override"),
            VAULT_NAMESPACE,
            text("t", "Format the answer with a Go template."),
            VERBOSE,
            *JOBFILE_FLAGS,
        ),
        (1, 1),
        "<path>",
        "one argument: <path>",
        details="""
A periodic or parameterized job places nothing by itself: of such a job it tells whether an instance would be placed
now. The exit code is 0 when nothing would change, 1 when allocations would come or go, 255 on errors.
""",
        failure_code=FAILED,
    ),
    CliCommand(
        "job why-not",
        "Explain why a job is not placed, and the smallest change that helps",
        explain_job,
        (VERBOSE, *JSON_FLAGS, *_FILE_FLAGS),
        (1, 1),
        "<path|job>",
        "one argument: <path|job>",
        details="The job is one that the cluster has, or one from a file.\n\n"
        "Nothing is changed. The exit code is 0 when all is placed, 1 when something is not, 255 on errors.",
        failure_code=NO_ANSWER,
    ),
)
