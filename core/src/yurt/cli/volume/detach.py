"""`yurt volume detach`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_node
from yurt.cli.command import Command, Invocation
from yurt.cli.volume.lookup import find_csi


def run(call: Invocation) -> int:
    """Make sure that nobody on a node has it any more."""
    volume, node = find_csi(call, call.args[0]), find_node(call, call.args[1])
    query = {"namespace": volume["Namespace"], "node": node["ID"]}
    call.api.delete(api_path("volume", "csi", volume["ID"], "detach"), query)
    call.screen.line(f'Volume "{volume["ID"]}" is detached from node {node["ID"]}')
    return 0


COMMAND = Command(
    "volume detach",
    "Make sure that no allocation on a node has a CSI volume any more.",
    run,
    (),
    (2, 2),
    "<vol id> <node id>",
    "two arguments: <vol id> <node id>",
    details="""
An allocation has its volumes until it has ended and they are unmounted; while one on the node has the volume, the
command fails and names it.
""",
)
