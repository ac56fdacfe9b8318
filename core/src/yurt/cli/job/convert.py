"""`yurt job convert`: a job file to the API's JSON, and a job in JSON to a job file."""

from __future__ import annotations

import json
import sys

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.files.hcl import job_file
from yurt.cli.files.jobfile import JOBFILE_FLAGS, Json, parse_json_job, read_hcl, read_source, variable_settings
from yurt.cli.flags import switch, text

FORMS = ("", "hcl", "json")


def run(call: Invocation) -> int:
    """Print the job in the other form."""
    wanted = call.flags.text("to")
    if wanted not in FORMS:
        raise UsageError(f'-to is hcl or json, not "{wanted}"')
    variable_settings(call.flags.texts("var"))
    source, filename = read_source(call.args[0])
    is_api = _is_api_job(source, is_json=call.flags.is_on("json"))
    job: Json = parse_json_job(source, filename) if is_api else read_hcl(call, source, filename).job
    if (wanted or ("hcl" if is_api else "json")) == "json":
        call.screen.line(json.dumps({"Job": job}, indent=4, ensure_ascii=False))
        return 0
    file = job_file(job, trim=call.flags.is_on("trim"))
    call.screen.stream.write(file.text)
    if file.lost:
        print(f"Warning: a job file cannot say {', '.join(file.lost)}; the rest is complete.", file=sys.stderr)
    return 0


def _is_api_job(source: str, *, is_json: bool) -> bool:
    """Is it a job as the API takes it? A job file may be JSON too, with a `job` block."""
    if is_json:
        return True
    if not source.lstrip("\ufeff \t\r\n").startswith("{"):
        return False
    try:
        data = json.loads(source.lstrip("\ufeff"))
    except ValueError as error:
        raise CliError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise CliError("nested too deeply") from None
    return isinstance(data, dict) and "job" not in data


COMMAND = Command(
    "job convert",
    "Print a job file as the API's JSON, or a job in JSON as a job file.",
    run,
    (
        text("to", "hcl or json; default is the form that the file has not."),
        switch("trim", "When writing HCL: leave out what equals the defaults."),
        *JOBFILE_FLAGS,
    ),
    (1, 1),
    "<path>",
    "one argument: <path>",
    details="""
The path is a file, or - for standard input. Variables, locals, functions and dynamic blocks are worked out: a job
file that is written holds values only. What a job file cannot say is named on standard error.
""",
    is_client=False,
)
