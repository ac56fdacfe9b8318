"""`yurt job init`."""

from __future__ import annotations

from pathlib import Path

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, text

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


def run(call: Invocation) -> int:
    """Write the example; a file that is there is left alone."""
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
    """The job file that the cluster keeps under a name, as a variable."""
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


COMMAND = Command(
    "job init",
    "Write an example job file that runs on `yurt agent -dev` as it is.",
    run,
    (
        switch("short", "Write it without comments."),
        switch("connect", "Not available in this version."),
        text("template", "Write the job file that the variable nomad/job-templates/NAME holds in its item template."),
        switch("list-templates", "List the names of such variables."),
    ),
    (0, 1),
    "[<filename>]",
    "at most one argument: <filename>",
)
