"""`yurt job validate`."""

from __future__ import annotations

from typing import Any

from yurt.api.http_client import ApiError
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.job.run import show_warnings
from yurt.cli.jobfile import JOBFILE_FLAGS, explain, read_job, variable_settings

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Check the file, then ask the agent whether it would take the job."""
    variable_settings(call.flags.texts("var"))
    file = read_job(call, call.args[0])
    try:
        answer: Json = (
            call.api.put("/v1/validate/job", {"Job": file.job}, {"namespace": file.job.get("Namespace")}) or {}
        )
    except ApiError as error:
        raise CliError(f"Error validating job:\n{explain(file, str(error))}") from None
    errors = answer.get("ValidationErrors") or ([answer["Error"]] if answer.get("Error") else [])
    show_warnings(call, answer.get("Warnings") or "")
    if errors:
        screen = call.screen
        screen.line(screen.style("Job validation errors:", "bold", "red"))
        screen.line("\n".join(explain(file, error) for error in errors))
        return 1
    call.screen.line(call.screen.style("Job validation successful", "bold", "green"))
    return 0


COMMAND = Command(
    "job validate",
    "Check a job file without running it.",
    run,
    JOBFILE_FLAGS,
    (1, 1),
    "<path>",
    "one argument: <path>",
)
