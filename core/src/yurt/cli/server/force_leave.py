"""`yurt server force-leave`."""

from __future__ import annotations

from yurt.cli.command import Command, Invocation
from yurt.cli.flags import switch
from yurt.cli.server.only import of_server


def run(call: Invocation) -> int:
    """Put a server out."""
    query: dict[str, str | int | bool | None] = {"node": call.args[0]}
    if call.flags.is_on("prune"):
        query["prune"] = 1
    of_server(call, lambda: call.api.put("/v1/agent/force-leave", None, query))
    return 0


COMMAND = Command(
    "server force-leave",
    "Say of a failed server that it has left: it no longer counts in the cluster.",
    run,
    (switch("prune", "Forget it at once, instead of listing it as `left` for a day."),),
    (1, 1),
    "<name>",
    "the name of one server",
    details="""
The name is the one that `yurt server members` shows, such as srv1.global. A server whose agent runs cannot be put
out; one that comes back later joins again as a new one.
""",
)
