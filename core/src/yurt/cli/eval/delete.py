"""`yurt eval delete`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import find_eval
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text
from yurt.cli.terminal.confirm import confirm

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Delete one evaluation, or those that an expression matches."""
    wanted = call.flags.text("filter")
    if bool(wanted) == bool(call.args):
        raise UsageError("Name an evaluation or give -filter, one of the two")
    body: Json = {"Filter": wanted} if wanted else {"EvalIDs": [find_eval(call, call.args[0])["ID"]]}
    if wanted and not call.flags.is_on("yes") and not confirm(_question(call, wanted)):
        call.screen.line("Cancelling eval deletion")
        return 0
    answer: Json = call.api.delete("/v1/evaluations", body=body) or {}
    count = answer.get("Count") or 0
    call.screen.line(f"Successfully deleted {count} {'evaluation' if count == 1 else 'evaluations'}")
    return 0


def _question(call: Invocation, wanted: str) -> str:
    count = (call.api.get("/v1/evaluations/count", {"filter": wanted}) or {}).get("Count") or 0
    return f"Are you sure you want to delete those of {count} matching evaluations that have ended?"


COMMAND = Command(
    "eval delete",
    "Delete evaluations that have ended, with all their allocations.",
    run,
    (text("filter", "Those that the expression matches."), switch("yes", "Do not ask.")),
    (0, 1),
    "[<evaluation>]",
    "at most one argument: <evaluation>",
    details="An evaluation with an allocation that has not ended is kept.",
)
