"""`yurt node eligibility`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch
from yurt.cli.node.which import chosen_node


def run(call: Invocation) -> int:
    """Say whether the node gets new allocations."""
    enable, disable = call.flags.is_on("enable"), call.flags.is_on("disable")
    if enable == disable:
        raise UsageError("Either the '-enable' or '-disable' flag must be set")
    node = chosen_node(call)
    word = "eligible" if enable else "ineligible"
    call.api.put(api_path("node", node["ID"], "eligibility"), {"NodeID": node["ID"], "Eligibility": word})
    call.screen.line(f'Node "{node["ID"]}" scheduling eligibility set: {word} for scheduling')
    return 0


COMMAND = Command(
    "node eligibility",
    "Let a node have new allocations, or not; running ones stay.",
    run,
    (
        switch("enable", "New allocations may be placed on the node."),
        switch("disable", "No new allocations are placed on the node."),
        switch("self", "The node of the agent that is asked."),
    ),
    (0, 1),
    "<node>",
    "one argument: <node>",
)
