"""Allocations of a job that were preempted and wait to be placed again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yurt.cli.declaration import Invocation
from yurt.cli.terminal.text import SECOND, go_duration, now_ns, parse_time, two_units

Json = dict[str, Any]
EVICT = "evict"
SHOWN_MAX = 20
"""Rows of the table; the newest."""


def show_requeues(call: Invocation, job: Json, evaluations: Iterable[Json], allocs: Iterable[Json]) -> None:
    """Print attempts, next time and reason of each preempted allocation that has no successor yet."""
    policies = {group["Name"]: group.get("Requeue") for group in job.get("TaskGroups") or ()}
    by_id = {evaluation["ID"]: evaluation for evaluation in evaluations}
    waiting = [alloc for alloc in allocs if is_waiting(alloc) and policies.get(alloc["TaskGroup"]) is not None]
    if not waiting:
        return
    waiting.sort(key=lambda alloc: -(alloc.get("ModifyIndex") or 0))
    rows = [requeue_row(call, alloc, policies[alloc["TaskGroup"]] or {}, by_id) for alloc in waiting[:SHOWN_MAX]]
    call.screen.title("Requeued Allocations")
    call.screen.table("Alloc ID|Task Group|Attempts|Next Attempt|Lost Run Time|Reason", rows)
    if len(waiting) > SHOWN_MAX:
        call.screen.line(f"and {len(waiting) - SHOWN_MAX} more")


def is_waiting(alloc: Json) -> bool:
    """Whether an allocation was requeued and has no successor yet."""
    return alloc.get("DesiredStatus") == EVICT and not alloc.get("NextAllocation")


def requeue_row(call: Invocation, alloc: Json, policy: Json, evaluations: dict[str, Json]) -> list[str]:
    """One row of the table."""
    tracker = alloc.get("RescheduleTracker") or {}
    done, limit = tracker.get("Requeues") or 0, policy.get("Attempts", -1)
    return [
        call.short(alloc["ID"]),
        alloc["TaskGroup"],
        f"{done}/{'unlimited' if limit < 0 else limit}",
        next_attempt(alloc, evaluations, has_attempts=limit < 0 or done < limit),
        go_duration((tracker.get("Lost") or 0) // SECOND * SECOND),
        alloc.get("DesiredDescription") or "preempted",
    ]


def next_attempt(alloc: Json, evaluations: dict[str, Json], *, has_attempts: bool) -> str:
    """When it is placed again, or what that waits for."""
    if not has_attempts:
        return "none: no attempts left"
    if alloc["ClientStatus"] in ("running", "pending"):
        return "after its end: it saves its work"
    at = parse_time((evaluations.get(alloc.get("FollowupEvalID") or "") or {}).get("WaitUntil"))
    if at > now_ns():
        return f"{two_units(at - now_ns())} from now"
    return "as soon as there is room"
