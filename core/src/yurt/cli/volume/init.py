"""`yurt volume init`."""

from __future__ import annotations

from pathlib import Path

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, text
from yurt.cli.volume.spec import NO_CSI

HCL = """\
# The name by which groups ask for the volume: volume "data" { type = "host", source = "ebs_prod_db1" }
name = "example"
type = "host"

# The plugin that makes the volume. "mkdir" is on every node.
plugin_id = "mkdir"

# Where: any node of the pool that has the plugin. Or name the node: node_id = "..."
node_pool = "default"

# How large, for plugins that heed it.
capacity_min = "10MiB"
capacity_max = "1GiB"

# Only nodes for which this holds.
constraint {
  attribute = "${attr.kernel.name}"
  value     = "linux"
}

# How the volume may be used: single-node-reader-only, single-node-writer, single-node-single-writer,
# single-node-multi-writer.
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

# What the plugin is told. mkdir has mode, uid and gid.
parameters {
  mode = "0755"
}
"""
JSON = """\
{
  "name": "example",
  "type": "host",
  "plugin_id": "mkdir",
  "node_pool": "default",
  "capacity_min": "10MiB",
  "capacity_max": "1GiB",
  "constraint": [{"attribute": "${attr.kernel.name}", "value": "linux"}],
  "capability": [{"access_mode": "single-node-writer", "attachment_mode": "file-system"}],
  "parameters": {"mode": "0755"}
}
"""


def run(call: Invocation) -> int:
    """Write an example file."""
    kind = call.flags.text("type")
    if kind != "host":
        raise CliError(NO_CSI if kind == "csi" else f'unknown volume type "{kind}"; it is "host"')
    is_json = call.flags.is_on("json")
    path = Path(call.args[0] if call.args else f"volume.{'json' if is_json else 'hcl'}")
    if path.exists():
        raise CliError(f"File {path} already exists; name another one")
    try:
        path.write_text(JSON if is_json else HCL, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error}") from None
    call.screen.line(f"Example volume specification written to {path}")
    return 0


COMMAND = Command(
    "volume init",
    "Write an example file of a host volume.",
    run,
    (switch("json", "A file in JSON."), text("type", "The type of the volume: host.", default="host")),
    (0, 1),
    "[filename]",
    "at most one argument: [filename]",
    is_client=False,
)
"""The default of `-type` is host, for there are no CSI volumes."""
