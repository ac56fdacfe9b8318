"""`yurt node pool init`."""

from __future__ import annotations

import json
from pathlib import Path

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text

HCL = """\
# A node pool: nodes join it with `node_pool = "example"` in their client configuration, jobs with `node_pool`.
node_pool "example" {
  description = "Example node pool"

  # Free values to tell pools apart by.
  meta {
    owner = "sysadmins"
  }

  # What this pool does otherwise than the cluster's scheduler configuration says.
  # scheduler_config {
  #   scheduler_algorithm             = "spread"
  #   memory_oversubscription_enabled = true
  # }
}
"""
JSON = {"Name": "example", "Description": "Example node pool", "Meta": {"owner": "sysadmins"}}


def run(call: Invocation) -> int:
    """Write an example file."""
    form = call.flags.text("out")
    if form not in ("hcl", "json"):
        raise UsageError(f'-out must be hcl or json, not "{form}"')
    path = Path(call.args[0] if call.args else f"pool.nomad.{form}")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(HCL if form == "hcl" else json.dumps(JSON, indent=2) + "\n")
    except FileExistsError:
        raise CliError(f'File "{path}" already exists') from None
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror}") from None
    if not call.flags.is_on("quiet"):
        call.screen.line(f"Example node pool specification written to {path}")
    return 0


COMMAND = Command(
    "node pool init",
    "Write an example file of a node pool.",
    run,
    (text("out", "The form: hcl or json.", default="hcl"), switch("quiet", "Print nothing.")),
    (0, 1),
    "[<filename>]",
    "at most one argument: <filename>",
    is_client=False,
)
