"""A job's place in the queue of its node pool."""

from __future__ import annotations

import time
from typing import Final

from yurt.cli.declaration import Invocation
from yurt.cli.errors import ApiError
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import go_duration, local_time

ONE_SECOND = 1_000_000_000


def queue_jobs(call: Invocation, pool: str, query: Json) -> Json:
    """The answer about the jobs of one queue."""
    answer: Json = call.api.get("/v1/queue/jobs", {"node_pool": pool, "namespace": "*"} | query)
    return answer


NO_LATEST_START: Final = "no promise yet: later jobs of tenants with less usage may pass, or a limit is missing"


def place_of(call: Invocation, job: Json) -> Json | None:
    """The row of a job in the queue of its node pool."""
    queue = queue_jobs(call, job.get("NodePool") or "default", {"sort": "priority"})
    own = (job["ID"], job.get("Namespace") or "default")
    return next((row for row in queue["Workloads"] if (row["JobID"], row["Namespace"]) == own), None)


def place_facts(row: Json) -> list[tuple[str, str]]:
    """The facts of a queue row in words."""
    facts = [("Queue Position", str(row["Position"])), ("Queue Status", row["Status"]), ("Reason", row["Reason"])]
    if row.get("WaitsFor"):
        facts.append(("Waits For", f"job {row['WaitsFor']}, which ends first of those that run"))
    for title, key in (("Expected Start", "ExpectedStart"), ("In 4 of 5 Cases By", "ExpectedBy")):
        if row.get(key):
            facts.append((title, when(row[key])))
    facts.append(("At The Latest", when(row["LatestStart"]) if row.get("LatestStart") else NO_LATEST_START))
    return facts


def when(at_ns: int) -> str:
    """`in 2h5m (2026-01-02T10:00:00Z)`, or `now`."""
    wait = at_ns - time.time_ns()
    if wait < ONE_SECOND:
        return "now"
    return f"in {go_duration(wait // ONE_SECOND * ONE_SECOND)} ({local_time(at_ns)})"


def show_place(call: Invocation, job: Json) -> None:
    """Print the queue position of a waiting job; nothing for other jobs and agents without queues."""
    if job.get("Type") != "batch" or job.get("Status") == "dead":
        return
    try:
        row = place_of(call, job)
    except ApiError:
        return
    if row is not None:
        call.screen.title("Queue")
        call.screen.pairs(place_facts(row))
