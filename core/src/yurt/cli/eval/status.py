"""`yurt eval status`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_eval
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.errors import ApiError
from yurt.cli.flags import switch, without_effect
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import ago, local_time, parse_time, plural, sentence
from yurt.cli.views.allocs import job_version
from yurt.cli.views.follow import EvalMonitor
from yurt.cli.views.job import placement_failures
from yurt.cli.views.metrics import failure_lines, ruled_out_lines
from yurt.cli.views.reasons import explained, is_of_every_node, nowhere_text, show_near_misses

Json = dict[str, Any]

_UPDATES = ("Ignore", "Place", "Stop", "InPlaceUpdate", "DestructiveUpdate")
_EXTRA_UPDATES = ("Canary", "Preemptions", "Migrate")
GROUPS_MAX = 20
"""Groups of which one allocation is asked for."""


def run(call: Invocation) -> int:
    """Show one evaluation, or follow it."""
    is_json = wants_data(call)
    evaluation = find_eval(call, call.args[0])
    if call.flags.is_on("monitor"):
        return EvalMonitor(call).follow(evaluation["ID"])
    if is_json:
        return show_data(call, evaluation)
    call.screen.pairs(_facts(call, evaluation))
    _show_related(call, evaluation)
    _show_annotations(call, evaluation)
    _show_placed(call, evaluation)
    failed = evaluation.get("FailedTGAllocs") or {}
    if failed:
        call.screen.title("Failed Placements")
        lines = failure_lines(failed, call.screen, verbose=call.is_verbose, id_length=call.id_length)
        call.screen.line("\n".join(lines))
        show_near_misses(call, explained(call, evaluation))
        if evaluation.get("BlockedEval"):
            blocked = call.short(evaluation["BlockedEval"])
            call.screen.line(f'\nEvaluation "{blocked}" waiting for additional capacity to place remainder')
    elif evaluation.get("JobID") and is_of_every_node(evaluation.get("Type")):
        explanation = explained(call, evaluation)
        nowhere = nowhere_text(explanation)
        if nowhere:
            call.screen.line(f"\n{sentence(nowhere)}")
            show_near_misses(call, explanation)
    return 0


def _facts(call: Invocation, evaluation: Json) -> list[tuple[str, object]]:
    time_text = local_time if call.is_verbose else ago
    facts: list[tuple[str, object]] = [
        ("ID", call.short(evaluation["ID"])),
        ("Create Time", time_text(evaluation.get("CreateTime") or 0)),
        ("Modify Time", time_text(evaluation.get("ModifyTime") or 0)),
        ("Status", evaluation["Status"]),
        ("Status Description", evaluation.get("StatusDescription") or evaluation["Status"]),
        ("Type", evaluation["Type"]),
        ("TriggeredBy", evaluation["TriggeredBy"]),
        ("Job ID", evaluation.get("JobID") or ""),
        ("Namespace", evaluation.get("Namespace") or "default"),
    ]
    for name, key in (("Node ID", "NodeID"), ("Deployment ID", "DeploymentID")):
        if evaluation.get(key):
            facts.append((name, call.short(evaluation[key])))
    facts += [("Priority", evaluation["Priority"]), ("Placement Failures", placement_failures(evaluation))]
    wait = parse_time(evaluation.get("WaitUntil"))
    if wait:
        facts.append(("Wait Until", local_time(wait)))
    if evaluation.get("QuotaLimitReached"):
        facts.append(("Quota Limit Reached", evaluation["QuotaLimitReached"]))
    if call.is_verbose:
        names = (("Previous Eval", "PreviousEval"), ("Next Eval", "NextEval"), ("Blocked Eval", "BlockedEval"))
        facts += [(name, evaluation.get(key) or "") for name, key in names]
    return facts


def _show_related(call: Invocation, evaluation: Json) -> None:
    asked: Json = call.api.get(api_path("evaluation", evaluation["ID"]), {"related": True}) or {}
    related = asked.get("RelatedEvals") or []
    if not related:
        return
    call.screen.title("Related Evaluations")
    rows = []
    for each in related:
        description = each.get("StatusDescription") or ""
        start = [
            call.short(each["ID"]),
            str(each.get("Priority") or 0),
            each["TriggeredBy"],
            call.short(each.get("NodeID")),
        ]
        rows.append([*start, each["Status"], description])
    call.screen.table("ID|Priority|Triggered By|Node ID|Status|Description", rows)


def _show_annotations(call: Invocation, evaluation: Json) -> None:
    groups = (evaluation.get("PlanAnnotations") or {}).get("DesiredTGUpdates") or {}
    if not groups:
        return
    keys = list(_UPDATES) + [key for key in _EXTRA_UPDATES if any(group.get(key) for group in groups.values())]
    titles = {"InPlaceUpdate": "InPlace", "DestructiveUpdate": "Destructive"}
    call.screen.title("Plan Annotations")
    rows = [[name, *(str(groups[name].get(key) or 0) for key in keys)] for name in sorted(groups)]
    call.screen.table("|".join(["Task Group", *(titles.get(key, key) for key in keys)]), rows)


def _show_placed(call: Invocation, evaluation: Json) -> None:
    allocs: list[Json] = call.api.get(api_path("evaluation", evaluation["ID"], "allocations")) or []
    placed = [alloc for alloc in allocs if alloc.get("EvalID") == evaluation["ID"]]
    if not placed:
        return
    time_text = local_time if call.is_verbose else ago
    call.screen.title("Placed Allocations")
    rows = []
    for alloc in placed:
        ids = [call.short(alloc["ID"]), alloc["JobID"], call.short(alloc["NodeID"]), alloc["TaskGroup"]]
        state = [str(job_version(alloc)), alloc["DesiredStatus"], alloc["ClientStatus"]]
        times = [time_text(alloc.get("CreateTime") or 0), time_text(alloc.get("ModifyTime") or 0)]
        rows.append([*ids, *state, *times])
    call.screen.table("ID|Job ID|Node ID|Task Group|Version|Desired|Status|Created|Modified", rows)
    _show_ruled_out(call, placed)


def _show_ruled_out(call: Invocation, placed: list[Json]) -> None:
    """Which nodes were ruled out for the last that each group placed, for most of them were so then."""
    by_group: dict[str, list[Json]] = {}
    for alloc in sorted(placed, key=lambda each: (len(each["Name"]), each["Name"])):
        by_group.setdefault(alloc["TaskGroup"], []).append(alloc)
    lines = []
    for group, allocs in sorted(by_group.items())[:GROUPS_MAX]:
        reasons = ruled_out_lines(_metric_of(call, allocs[-1]))
        if reasons:
            lines += [f'Task Group "{group}" (the last of {plural(len(allocs), "allocation")}):', *reasons]
    if lines:
        call.screen.title("Ruled Out Nodes")
        call.screen.line("\n".join(lines))


def _metric_of(call: Invocation, alloc: Json) -> Json:
    """The metrics of an allocation; nothing when it was removed meanwhile."""
    try:
        found: Json = call.api.get(api_path("allocation", alloc["ID"])) or {}
    except ApiError:
        return {}
    return found.get("Metrics") or {}


COMMAND = Command(
    "eval status",
    "Show an evaluation: what it placed, and why it could not place the rest.",
    run,
    (
        switch("monitor", "Follow the evaluation until it ends."),
        without_effect("ui"),
        VERBOSE,
        *JSON_FLAGS,
    ),
    (1, 1),
    "<evaluation>",
    "one argument: <evaluation>",
)
