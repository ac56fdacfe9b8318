"""`yurt alloc stop`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_alloc
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.flags import switch
from yurt.cli.views.follow import follow_or_detach

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Stop it and follow the evaluation that replaces it."""
    alloc = find_alloc(call, call.args[0])
    query = {"no_shutdown_delay": call.flags.is_on("no-shutdown-delay")}
    answer: Json = call.api.put(api_path("allocation", alloc["ID"], "stop"), {}, query) or {}
    eval_id = answer.get("EvalID") or ""
    return follow_or_detach(call, eval_id, detached=lambda: call.screen.line(eval_id))


COMMAND = Command(
    "alloc stop",
    "Stop an allocation; its job gets another one in its place.",
    run,
    (DETACH, VERBOSE, switch("no-shutdown-delay", "Do not wait for shutdown_delay.")),
    (1, 1),
    "<allocation>",
    "one argument: <allocation>",
)
