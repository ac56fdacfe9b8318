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


def run(call: Invocation) -> int:
    """Write the example; a file that is there is left alone."""
    if call.flags.is_on("connect") or call.flags.text("template") or call.flags.is_on("list-templates"):
        raise CliError("-connect, -template and -list-templates are not available in this version")
    path = Path(call.args[0] if call.args else DEFAULT_NAME)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(SHORT if call.flags.is_on("short") else EXAMPLE)
    except FileExistsError:
        raise CliError(f"Job file '{path}' already exists; remove it or name another file") from None
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror}") from None
    call.screen.line(f"Example job file written to {path}")
    return 0


COMMAND = Command(
    "job init",
    "Write an example job file that runs on `yurt agent -dev` as it is.",
    run,
    (
        switch("short", "Write it without comments."),
        switch("connect", "Not available in this version."),
        text("template", "Not available in this version."),
        switch("list-templates", "Not available in this version."),
    ),
    (0, 1),
    "[<filename>]",
    "at most one argument: <filename>",
    is_client=False,
)
