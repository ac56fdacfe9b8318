"""`yurt job init`, `convert` and `inspect`: job files written, converted and printed."""

from __future__ import annotations

import json
import sys

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError, UsageError
from yurt.cli.files.jobfile import JOBFILE_FLAGS, parse_json_job, read_hcl, read_source, variable_settings
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data

DEFAULT_NAME = "example.nomad.hcl"

EXAMPLE = """\
# An example job for Yurt: one service that prints the time every two seconds.
# Run it on `yurt agent -dev` with: yurt job run example.nomad.hcl

# A variable can be given on the command line: yurt job run -var greeting=Hi example.nomad.hcl
variable "greeting" {
  type    = string
  default = "Hello from Yurt"
}

job "example" {
  # A service runs until it is stopped; "batch" runs to its end.
  type = "service"

  group "clock" {
    # How many instances run. Change it and run the file again, or: yurt job scale example 3
    count = 1

    # How a new version replaces the old one: one by one, each healthy for two seconds first.
    update {
      max_parallel     = 1
      min_healthy_time = "2s"
      healthy_deadline = "1m"
      auto_revert      = true
    }

    # What happens when the task ends by itself: started again, up to three times within five minutes.
    restart {
      attempts = 3
      interval = "5m"
      delay    = "2s"
      mode     = "fail"
    }

    task "main" {
      # raw_exec runs a program of this machine without isolation.
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do echo \\"$GREETING, allocation $NOMAD_ALLOC_INDEX: $(date)\\"; sleep 2; done"]
      }

      env {
        GREETING = var.greeting
      }

      resources {
        cpu    = 50 # MHz
        memory = 32 # MiB
      }
    }
  }
}
"""

SHORT = """\
job "example" {
  group "clock" {
    task "main" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do date; sleep 2; done"]
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
"""


TEMPLATES = "nomad/job-templates"

FORMS = ("", "hcl", "json")


def write_example(call: Invocation) -> int:
    """Write the example; an existing file is never overwritten."""
    from pathlib import Path

    if call.flags.is_on("connect"):
        raise CliError("-connect is not available in this version")
    if call.flags.is_on("list-templates"):
        return _list_templates(call)
    name = call.flags.text("template")
    body = _template(call, name) if name else SHORT if call.flags.is_on("short") else EXAMPLE
    path = Path(call.args[0] if call.args else DEFAULT_NAME)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(body)
    except FileExistsError:
        raise CliError(f"Job file '{path}' already exists; remove it or name another file") from None
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror}") from None
    call.screen.line(f"Initializing a job template from {name}" if name else f"Example job file written to {path}")
    return 0


def _template(call: Invocation, name: str) -> str:
    """The job file that the cluster stores under a name, as a variable."""
    from yurt.cli.api.variables import read_variable

    variable = read_variable(call, f"{TEMPLATES}/{name}")
    items = variable.get("Items") or {}
    if "template" not in items:
        raise CliError(f'Job template "{name}" has no item "template", which holds the job file')
    return str(items["template"])


def _list_templates(call: Invocation) -> int:
    found = call.api.get("/v1/vars", {"prefix": f"{TEMPLATES}/"}) or []
    names = sorted(row["Path"].removeprefix(f"{TEMPLATES}/") for row in found)
    if not names:
        call.screen.line(f"No variables with templates found; put a job file into {TEMPLATES}/NAME, item template")
    for name in names:
        call.screen.line(name)
    return 0


def convert_job(call: Invocation) -> int:
    """Print the job in the other form."""
    from yurt.cli.files.hcl import job_file

    requested = call.flags.text("to")
    if requested not in FORMS:
        raise UsageError(f'-to is hcl or json, not "{requested}"')
    variable_settings(call.flags.texts("var"))
    source, filename = read_source(call.args[0])
    is_api = _is_api_job(source, is_json=call.flags.is_on("json"))
    job: Json = parse_json_job(source, filename) if is_api else read_hcl(call, source, filename).job
    if (requested or ("hcl" if is_api else "json")) == "json":
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


def inspect_job(call: Invocation) -> int:
    """Print the job as the server stores it, or its original file."""
    wants_data(call)
    stub = find_job(call, call.args[0])
    query = {"namespace": stub.get("Namespace")}
    job: Json = call.api.get(api_path("job", stub["ID"]), query)
    requested = call.flags.text("version")
    if requested:
        job = version_of(call, stub, requested)
    if call.flags.is_on("hcl") or call.flags.is_on("with-vars"):
        _print_source(call, job)
        return 0
    return show_data(call, job if call.flags.text("t") else {"Job": job})


def version_of(call: Invocation, stub: Json, requested: str) -> Json:
    """One version of a job, by number or by tag."""
    answer = call.api.get(api_path("job", stub["ID"], "versions"), {"namespace": stub.get("Namespace")}) or {}
    versions: list[Json] = answer.get("Versions") or []
    for job in versions:
        tag = (job.get("VersionTag") or {}).get("Name")
        if str(job.get("Version") or 0) == requested or tag == requested:
            return job
    numbers = ", ".join(str(job.get("Version") or 0) for job in versions)
    raise CliError(f'The job "{stub["ID"]}" has no version "{requested}"; it has {numbers}')


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
    """A job file for a job that was registered without one."""
    from yurt.cli.files.hcl import job_file

    file = job_file(job, trim=True)
    call.screen.stream.write(file.text)
    if file.lost:
        call.screen.error(f"Warning: a job file cannot say {', '.join(file.lost)}; the rest is complete.")


COMMANDS = (
    CliCommand(
        "job init",
        "Write an example job file",
        write_example,
        (
            switch("short", "Write it without comments; a job file of -template is written as it is."),
            switch("connect", "Not available in this version."),
            text(
                "template", "Write the job file that the variable nomad/job-templates/NAME holds in its item template."
            ),
            switch("list-templates", "List the names of such variables, and write nothing."),
        ),
        (0, 1),
        "[<filename>]",
        "at most one argument: <filename>",
        details="The example runs on `yurt agent -dev` as it is.",
    ),
    CliCommand(
        "job convert",
        "Convert a job file to JSON, or a job in JSON to a job file",
        convert_job,
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
    ),
    CliCommand(
        "job inspect",
        "Print a job as JSON, or the file that it came from",
        inspect_job,
        (
            switch("json", "Print JSON, which is the default."),
            switch(
                "hcl", "Print the job file, also with -json or -t: the one submitted, else one written from the job."
            ),
            switch("with-vars", "With -hcl: also the values of its variables."),
            text("version", "A version by number or tag; default is the newest."),
            text("t", "Format the job with a Go template."),
        ),
        (1, 1),
        "<job>",
        "one argument: <job>",
    ),
)
