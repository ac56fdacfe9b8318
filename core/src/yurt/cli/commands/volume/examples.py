"""`yurt volume init`: example files of volumes."""

from __future__ import annotations

from yurt.cli.commands.volume.specification import CSI, HOST
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, text

HOST_HCL = """\
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

# Parameters of the plugin. mkdir has mode, uid and gid.
parameters {
  mode = "0755"
}
"""
HOST_JSON = """\
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
CSI_HCL = """\
# The name by which groups ask for the volume: volume "data" { type = "csi", source = "ebs_prod_db1" ... }
id   = "ebs_prod_db1"
name = "database"
type = "csi"

# The plugin, which a job runs as a task with a csi_plugin block, and the volume's name in the plugin's storage.
plugin_id   = "ebs-prod"
external_id = "vol-23452345"

# How the volume may be used: single-node-reader-only, single-node-writer, multi-node-reader-only,
# multi-node-single-writer, multi-node-multi-writer; file-system or block-device.
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

# How a file system is mounted.
mount_options {
  fs_type     = "ext4"
  mount_flags = ["noatime"]
}

# Where the volume must be reachable from.
topology_request {
  required {
    topology {
      segments {
        rack = "R1"
      }
    }
  }
}

# Sent to the plugin: with each call, and about this volume.
secrets {
  example_secret = "xyzzy"
}
parameters {
  skuname = "Premium_LRS"
}
context {
  endpoint = "http://192.168.1.101:9425"
}
"""
CSI_JSON = """\
{
  "id": "ebs_prod_db1",
  "name": "database",
  "type": "csi",
  "plugin_id": "ebs-prod",
  "external_id": "vol-23452345",
  "capability": [{"access_mode": "single-node-writer", "attachment_mode": "file-system"}],
  "mount_options": [{"fs_type": "ext4", "mount_flags": ["noatime"]}],
  "topology_request": [{"required": [{"topology": [{"segments": [{"rack": "R1"}]}]}]}],
  "secrets": {"example_secret": "xyzzy"},
  "parameters": {"skuname": "Premium_LRS"},
  "context": {"endpoint": "http://192.168.1.101:9425"}
}
"""
EXAMPLES = {HOST: (HOST_HCL, HOST_JSON), CSI: (CSI_HCL, CSI_JSON)}


def write_example(call: Invocation) -> int:
    """Write an example file."""
    from pathlib import Path

    kind = call.flags.text("type")
    if kind not in EXAMPLES:
        raise CliError(f'unknown volume type "{kind}"; it is "host" or "csi"')
    is_json = call.flags.is_on("json")
    path = Path(call.args[0] if call.args else f"volume.{'json' if is_json else 'hcl'}")
    if path.exists():
        raise CliError(f"File {path} already exists; name another one")
    try:
        path.write_text(EXAMPLES[kind][is_json], encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error}") from None
    call.screen.line(f"Example volume specification written to {path}")
    return 0


COMMANDS = (
    CliCommand(
        "volume init",
        "Write an example file of a volume",
        write_example,
        (switch("json", "A file in JSON."), text("type", "The type of the volume: csi or host.", default=CSI)),
        (0, 1),
        "[filename]",
        "at most one argument: [filename]",
        is_client=False,
    ),
)
