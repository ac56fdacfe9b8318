"""`yurt var init`."""

from __future__ import annotations

from pathlib import Path

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text

HCL = """\
# A variable's path is where it is stored. Tasks may read those that lie at
#   nomad/jobs, nomad/jobs/<job>, nomad/jobs/<job>/<group>, nomad/jobs/<job>/<group>/<task>
# of their own job without any further permission.
path = "path/to/variable"

# The namespace, unless -namespace or NOMAD_NAMESPACE says another.
# namespace = "default"

# What is stored: names and texts, 64 KiB in all. Nothing of it is stored in the clear.
items {
  key1 = "value 1"
  key2 = "value 2"
}
"""
JSON = """\
{
  "Namespace": "default",
  "Path": "path/to/variable",
  "Items": {
    "key1": "value 1",
    "key2": "value 2"
  }
}
"""


def run(call: Invocation) -> int:
    """Write an example file."""
    form = call.flags.text("out")
    if form not in ("hcl", "json"):
        raise UsageError(f'Invalid value "{form}" for -out; it is one of hcl, json')
    path = Path(call.args[0] if call.args else f"spec.nv.{form}")
    if path.exists():
        raise CliError(f"File {path} already exists; name another one")
    content = JSON if form == "json" else _without_comments(HCL) if call.flags.is_on("quiet") else HCL
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error}") from None
    if not call.flags.is_on("quiet"):
        call.screen.line(f"Example variable specification written to {path}")
    return 0


def _without_comments(content: str) -> str:
    return "\n".join(line for line in content.splitlines() if line and not line.startswith("#")) + "\n"


COMMAND = Command(
    "var init",
    "Write an example file of a variable.",
    run,
    (
        text("out", "The form of the file: hcl or json.", default="hcl"),
        switch("quiet", "No comments in the file, and nothing on the screen."),
    ),
    (0, 1),
    "[filename]",
    "at most one argument: [filename]",
    is_client=False,
)
