"""`yurt alloc why`: why an allocation is on its node."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_alloc
from yurt.cli.declaration import JSON_FLAGS, VERBOSE, CliCommand, Invocation
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import ago, local_time, parse_time, sentence


def explain_placement(call: Invocation) -> int:
    """Show the scores that placed an allocation on its node, and how other nodes compare now."""
    is_json = wants_data(call)
    alloc = find_alloc(call, call.args[0])
    found: Json = call.api.get(api_path("yurt", "allocation", alloc["ID"], "why"))
    if is_json:
        return show_data(call, found)
    _show(call, found)
    return 0


def _show(call: Invocation, found: Json) -> None:
    from yurt.cli.views.explanations import score_lines
    from yurt.cli.views.placement_metrics import ruled_out_lines

    screen = call.screen
    placed_at = parse_time(found.get("PlacedAt"))
    facts = [
        ("ID", call.short(found["AllocID"])),
        ("Name", found["Name"]),
        ("Job ID", found["JobID"]),
        ("Task Group", found["TaskGroup"]),
        ("Node", f"{found.get('NodeName') or ''} ({call.short(found.get('NodeID'))})"),
        ("Placed", local_time(placed_at) if call.is_verbose else ago(placed_at)),
        ("Evaluation", f"{call.short(found.get('EvalID'))} ({found.get('TriggeredBy') or 'no longer known'})"),
    ]
    if found.get("PreviousAllocation"):
        facts.append(("Replaces", call.short(found["PreviousAllocation"])))
    screen.pairs(facts)
    screen.line(f"\n{sentence(found.get('Text') or '')}")
    reasons = ruled_out_lines(found.get("Metrics") or {})
    if reasons:
        screen.title("Ruled out then")
        screen.line("\n".join(reasons))
    if found.get("Scores"):
        screen.title("Scores then")
        screen.line("\n".join(score_lines(found["Scores"])))
    _show_now(call, found.get("Now") or {})


def _show_now(call: Invocation, now: Json) -> None:
    from yurt.cli.views.explanations import blocker_lines, near_miss_lines, note_lines, score_lines

    screen = call.screen
    if now.get("Scores"):
        screen.title("Scores now, if it were placed again")
        screen.line("\n".join([*score_lines(now["Scores"]), *note_lines(now)]))
    if now.get("Blockers"):
        screen.title("What rules out other nodes now")
        screen.line("\n".join(blocker_lines(now)))
    if now.get("NearMisses"):
        screen.title("Nearest of them")
        screen.line("\n".join(near_miss_lines(now)))


COMMANDS = (
    CliCommand(
        "alloc why",
        "Explain why an allocation was placed on its node",
        explain_placement,
        (VERBOSE, *JSON_FLAGS),
        (1, 1),
        "<allocation>",
        "one argument: <allocation>",
        details="It shows the scores then and now, and what ruled out the other nodes.",
    ),
)
