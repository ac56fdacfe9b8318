"""`yurt job validate`: what the parser finds and what the agent answers, as text, as JSON or as SARIF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import ApiError, CliError, UsageError
from yurt.cli.files.jobfile import (
    JOBFILE_FLAGS,
    JobFile,
    JobFileError,
    explain,
    load_job,
    read_job,
    server_findings,
    variable_settings,
)
from yurt.cli.flags import text
from yurt.cli.job.run import show_warnings

if TYPE_CHECKING:
    from yurt_jobspec import Diagnostic

Json = dict[str, Any]

FORMATS = ("text", "json", "sarif")


def run(call: Invocation) -> int:
    """Check the file, then ask the agent whether it would take the job."""
    wanted = call.flags.text("format")
    if wanted not in FORMATS:
        raise UsageError(f'-format is one of {", ".join(FORMATS)}, not "{wanted}"')
    variable_settings(call.flags.texts("var"))
    if wanted != "text":
        found = findings(call)
        _print(call, wanted, found)
        return 1 if any(item.severity == "error" for item in found) else 0
    file = read_job(call, call.args[0])
    errors, warnings = ask(call, file)
    show_warnings(call, warnings)
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
    """Everything that the parser and the agent find, the errors first."""
    try:
        file = load_job(call, call.args[0])
    except JobFileError as error:
        return list(error.diagnostics)
    errors, warnings = ask(call, file)
    told = [finding for error in errors for finding in server_findings(file, error)]
    return [*told, *file.warnings, *server_findings(file, warnings, is_warning=True)]


def _print(call: Invocation, wanted: str, found: Sequence[Diagnostic]) -> None:
    from yurt_jobspec import to_json, to_sarif

    if wanted == "sarif":
        call.screen.json(to_sarif(found))
        return
    answer: Mapping[str, Any] = {
        "valid": all(item.severity != "error" for item in found),
        "diagnostics": to_json(found),
    }
    call.screen.json(answer)


COMMAND = Command(
    "job validate",
    "Check a job file without running it.",
    run,
    (text("format", "How to print what is found: text, json or sarif.", default="text"), *JOBFILE_FLAGS),
    (1, 1),
    "<path>",
    "one argument: <path>",
    details="The exit code is 0 when the agent would take the job, 1 when not, 255 when the command line is wrong. "
    "SARIF is what code hosts read.",
    usage_code=255,
)
