"""`yurt eval replay`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_eval
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]
FAILED = 1


def run(call: Invocation) -> int:
    """Make an evaluation's attempts again, and say whether they come out the same."""
    is_json = wants_data(call)
    evaluation = find_eval(call, call.args[0])
    found: Json = call.api.get(api_path("yurt", "evaluation", evaluation["ID"], "replay"))
    if is_json:
        show_data(call, found)
    else:
        _show(call, found)
    return 0 if found["IsIdentical"] else FAILED


def _show(call: Invocation, found: Json) -> None:
    screen = call.screen
    attempts: list[Json] = found.get("Attempts") or []
    screen.pairs(
        [
            ("Evaluation", call.short(found["EvalID"])),
            ("Job ID", found["JobID"]),
            ("Namespace", found.get("Namespace") or "default"),
            ("Status", found["Status"]),
            ("Attempts", str(len(attempts))),
            ("Rebuilt from", f"the state at index {found['BaseIndex']}" if found["BaseIndex"] else "an empty state"),
        ]
    )
    screen.title("Attempts made again")
    rows = []
    for each in attempts:
        numbers = [str(each.get(key) or 0) for key in ("Placements", "Stops", "Updates", "Stored", "Refused")]
        rows.append([str(each["StateIndex"]), each["Seed"], *numbers, each["Digest"], _verdict(each)])
    screen.table("State Index|Seed|Placed|Stopped|Updated|Rows Stored|Refused|Plan Digest|Result", rows)
    if call.is_verbose:
        for each in attempts:
            screen.line(f"\nAccepted rows, made again: {each['AcceptedDigest']}")
            screen.line(f"Accepted rows, in the log:  {each['StoredDigest']}")
    screen.line("\n" + _conclusion(found))


def _verdict(attempt: Json) -> str:
    if not attempt["IsIdentical"]:
        return f"{attempt['Different']} rows differ"
    return "identical" if attempt.get("Stored") else "nothing stored"


def _conclusion(found: Json) -> str:
    if found["IsIdentical"]:
        return "The same state and seed gave the same plan, to the byte, and the same reasons."
    if not found["IsOutcomeIdentical"] and all(each["IsIdentical"] for each in found.get("Attempts") or []):
        return "The plan is the same, but what could not be placed has other reasons now. Please report it."
    return "The plan differs from the one that was stored. Please report it, with the output of -json."


COMMAND = Command(
    "eval replay",
    "Make an evaluation again from the command log, and compare its plan with what was stored.",
    run,
    (VERBOSE, *JSON_FLAGS),
    (1, 1),
    "<evaluation>",
    "one argument: <evaluation>",
    details=(
        "The servers rebuild the state that the evaluation was scheduled on, and schedule it once more with the seed "
        "and the time of then. The exit code is 1 when anything comes out differently. Nothing is changed."
    ),
)
