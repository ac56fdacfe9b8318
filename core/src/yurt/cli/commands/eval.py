"""`yurt eval`: show, repeat and delete evaluations."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_eval
from yurt.cli.api.namespaces import warn_of_namespace
from yurt.cli.api.paging import PAGE_FLAGS, page_query, show_next_page
from yurt.cli.declaration import JSON_FLAGS, UI, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import ApiError, UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.confirm import confirm
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import ago, local_time, parse_time, plural, sentence

FAILED = 1
_UPDATES = ("Ignore", "Place", "Stop", "InPlaceUpdate", "DestructiveUpdate")
_EXTRA_UPDATES = ("Canary", "Preemptions", "Migrate")
GROUPS_MAX = 20
"""Groups for each of which one allocation is queried."""


def delete_evals(call: Invocation) -> int:
    """Delete one evaluation, or those that an expression matches."""
    requested = call.flags.text("filter")
    if bool(requested) == bool(call.args):
        raise UsageError("Name an evaluation or give -filter, one of the two")
    body: Json = {"Filter": requested} if requested else {"EvalIDs": [find_eval(call, call.args[0])["ID"]]}
    if requested and not call.flags.is_on("yes") and not confirm(_question(call, requested)):
        call.screen.line("Cancelling eval deletion")
        return 0
    answer: Json = call.api.delete("/v1/evaluations", body=body) or {}
    count = answer.get("Count") or 0
    call.screen.line(f"Successfully deleted {count} {'evaluation' if count == 1 else 'evaluations'}")
    return 0


def _question(call: Invocation, requested: str) -> str:
    count = (call.api.get("/v1/evaluations/count", {"filter": requested}) or {}).get("Count") or 0
    return f"Are you sure you want to delete those of {count} matching evaluations that have ended?"


def list_evals(call: Invocation) -> int:
    """Evaluations, newest first."""
    from yurt.cli.views.browser import offer_page, page
    from yurt.cli.views.job import placement_failures

    is_json = wants_data(call)
    flags = call.flags
    answer = call.api.read(
        "/v1/evaluations",
        {
            "job": flags.text("job"),
            "status": flags.text("status"),
            "reverse": True,
            **page_query(call),
        },
    )
    found: list[Json] = answer.data or []
    if not found:
        warn_of_namespace(call)
    if is_json:
        return show_data(call, found)
    if not found:
        call.screen.line("No evals found")
        return 0
    rows = []
    for each in found:
        space, node = each.get("Namespace") or "default", call.short(each.get("NodeID"))
        start = [
            call.short(each["ID"]),
            str(each["Priority"]),
            each["TriggeredBy"],
            each.get("JobID") or "",
            space,
            node,
        ]
        rows.append([*start, each["Status"], placement_failures(each)])
    call.screen.table("ID|Priority|Triggered By|Job ID|Namespace|Node ID|Status|Placement Failures", rows)
    show_next_page(call, answer.next_token)
    offer_page(call, page("evaluations"), "evaluations")
    return 0


def replay_eval(call: Invocation) -> int:
    """Repeat an evaluation's attempts, and report whether the results are identical."""
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


def show_eval(call: Invocation) -> int:
    """Show one evaluation, or follow it."""
    from yurt.cli.views.browser import offer_page, page
    from yurt.cli.views.monitor import EvalMonitor

    is_json = wants_data(call)
    evaluation = find_eval(call, call.args[0])
    if call.flags.is_on("monitor"):
        return EvalMonitor(call).follow(evaluation["ID"])
    if is_json:
        return show_data(call, evaluation)
    _show_whole(call, evaluation)
    offer_page(call, page("evaluations", evaluation["ID"]), "this evaluation")
    return 0


def _show_whole(call: Invocation, evaluation: Json) -> None:
    from yurt.cli.views.explanations import explained, is_of_every_node, nowhere_text, show_near_misses
    from yurt.cli.views.placement_metrics import failure_lines

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


def _facts(call: Invocation, evaluation: Json) -> list[tuple[str, object]]:
    from yurt.cli.views.job import placement_failures

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
    answer: Json = call.api.get(api_path("evaluation", evaluation["ID"]), {"related": True}) or {}
    related = answer.get("RelatedEvals") or []
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
    from yurt.cli.views.allocs import job_version

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
    """Show the nodes that were ruled out for the last placement of each group, where most were filtered."""
    from yurt.cli.views.placement_metrics import ruled_out_lines

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
    """The metrics of an allocation; empty when it was removed meanwhile."""
    try:
        found: Json = call.api.get(api_path("allocation", alloc["ID"])) or {}
    except ApiError:
        return {}
    return found.get("Metrics") or {}


COMMANDS = (
    CliCommand(
        "eval delete",
        "Delete evaluations that have ended, with all their allocations",
        delete_evals,
        (text("filter", "Those that the expression matches."), switch("yes", "Skip the confirmation.")),
        (0, 1),
        "[<evaluation>]",
        "at most one argument: <evaluation>",
        details=(
            "An evaluation with an allocation that has not ended is kept. The evaluation broker must be paused "
            "meanwhile: yurt operator scheduler set-config -pause-eval-broker=true"
        ),
    ),
    CliCommand(
        "eval list",
        "List evaluations, newest first",
        list_evals,
        (
            text("job", "Only those of this job."),
            text("status", "Only those with this status."),
            text("filter", "Only those that the expression matches."),
            *PAGE_FLAGS,
            UI,
            VERBOSE,
            *JSON_FLAGS,
        ),
    ),
    CliCommand(
        "eval replay",
        "Repeat an evaluation from the command log and compare the plans",
        replay_eval,
        (VERBOSE, *JSON_FLAGS),
        (1, 1),
        "<evaluation>",
        "one argument: <evaluation>",
        details=(
            "The servers rebuild the state that the evaluation was scheduled on, and schedule it once more with the "
            "seed and the time of then. The exit code is 1 when anything comes out differently. Nothing is changed."
        ),
    ),
    CliCommand(
        "eval status",
        "Show an evaluation: what it placed, and why not the rest",
        show_eval,
        (
            switch("monitor", "Follow the evaluation until it ends."),
            UI,
            VERBOSE,
            *JSON_FLAGS,
        ),
        (1, 1),
        "<evaluation>",
        "one argument: <evaluation>",
    ),
)
