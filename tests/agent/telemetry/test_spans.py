"""Spans that are read from the log's changes, and the ids by which they belong together."""

from __future__ import annotations

import random
import uuid

from yurt.agent.telemetry.spans import Span, is_sampled, spans_of
from yurt.sdk.value import UnixNano, replace
from yurt.state import Change
from yurt.structs.alloc import Allocation, TaskEvent, TaskState
from yurt.structs.evaluation import Evaluation

FIRST, SECOND, ALLOC = (str(uuid.UUID(int=random.Random(seed).getrandbits(128), version=4)) for seed in range(3))
REGISTERED = Evaluation(
    id=FIRST, job_id="web", triggered_by="job-register", create_time=UnixNano(10), modify_time=UnixNano(10)
)
PENDING = Allocation(
    id=ALLOC, eval_id=SECOND, namespace="default", job_id="web", task_group="g", create_time=UnixNano(50),
    modify_time=UnixNano(50),
)  # fmt: skip
RECEIVED = TaskEvent(type="Received", time=UnixNano(60), display_message="Task received by client")
STARTED = TaskEvent(type="Started", time=UnixNano(90), display_message="Task started by client")
BLOCKED = Evaluation(
    id=SECOND, previous_eval=FIRST, triggered_by="queued-allocs", status="blocked", create_time=UnixNano(20)
)
EVALS = {FIRST: REGISTERED, SECOND: BLOCKED}


def changed(table: str, before: object, after: object) -> list[Span]:
    return list(spans_of([Change(table, "key", before, after)], EVALS.get))


def test_a_job_that_waits_for_room_is_one_trace_down_to_its_tasks() -> None:
    first = changed("evals", REGISTERED, replace(REGISTERED, status="complete", modify_time=UnixNano(20)))
    second = changed("evals", BLOCKED, replace(BLOCKED, status="complete", modify_time=UnixNano(55)))
    runs = TaskState(state="running", started_at=UnixNano(90), events=(RECEIVED, STARTED))
    running = replace(PENDING, client_status="running", task_states={"web": runs}, modify_time=UnixNano(95))
    alloc, task = changed("allocs", PENDING, running)
    spans = [*first, *second, alloc, task]
    assert {span.trace_id for span in spans} == {uuid.UUID(FIRST).int}
    assert [span.parent_id for span in spans] == [None, *(span.span_id for span in spans[:-1])]
    assert [(span.name, span.start, span.end, span.error) for span in spans] == [
        ("evaluation job-register", 10, 20, ""),
        ("evaluation queued-allocs", 20, 55, ""),
        ("allocation start", 50, 90, ""),
        ("task start", 60, 90, ""),
    ]
    assert [event.name for event in task.events] == ["Received", "Started"]
    assert task.attributes["yurt.task"] == "web" and alloc.attributes["yurt.job.id"] == "web"
    assert changed("allocs", running, replace(running, modify_time=UnixNano(99))) == []


def test_what_fails_says_why() -> None:
    refused = TaskEvent(type="Driver Failure", time=UnixNano(70), driver_error="x", display_message="no such image")
    given_up = TaskEvent(type="Not Restarting", time=UnixNano(72))
    dead = TaskState(state="dead", failed=True, events=(RECEIVED, refused, given_up))
    failed = replace(
        PENDING,
        client_status="failed",
        client_description="Failed tasks",
        task_states={"web": dead},
        modify_time=UnixNano(75),
    )
    alloc, task = changed("allocs", PENDING, failed)
    assert (alloc.error, alloc.end, task.error, task.end) == ("no such image", 75, "no such image", 72)
    (evaluation,) = changed("evals", REGISTERED, replace(REGISTERED, status="failed", status_description="too often"))
    assert evaluation.error == "too often"


def test_tasks_that_start_later_have_their_spans_then() -> None:
    runs = TaskState(state="running", started_at=UnixNano(90), events=(RECEIVED, STARTED))
    one = replace(PENDING, client_status="running", task_states={"web": runs, "after": TaskState(events=(RECEIVED,))})
    assert [span.attributes.get("yurt.task") for span in changed("allocs", PENDING, one)] == [None, "web"]
    both = replace(one, task_states={"web": runs, "after": runs})
    assert [span.attributes.get("yurt.task") for span in changed("allocs", one, both)] == ["after"]


def test_nothing_is_told_of_rows_that_wait_or_whose_evaluation_is_gone() -> None:
    assert changed("evals", None, REGISTERED) == []
    assert changed("evals", REGISTERED, None) == []
    assert changed("jobs", None, object()) == []
    assert changed("allocs", None, PENDING) == []
    assert changed("allocs", PENDING, replace(PENDING, client_status="unknown")) == []
    assert list(spans_of([Change("allocs", ALLOC, PENDING, replace(PENDING, client_status="running"))], {}.get)) == []


def test_a_share_of_the_traces_is_sampled() -> None:
    drawn = random.Random(4)
    ids = [uuid.UUID(int=drawn.getrandbits(128), version=4).int for _ in range(2_000)]
    assert all(is_sampled(each, 1.0) for each in ids) and not any(is_sampled(each, 0.0) for each in ids)
    assert 400 < sum(is_sampled(each, 0.25) for each in ids) < 600
    assert {each for each in ids if is_sampled(each, 0.1)} < {each for each in ids if is_sampled(each, 0.25)}


def test_what_has_started_before_starts_no_second_time() -> None:
    runs = TaskState(state="running", started_at=UnixNano(90), events=(RECEIVED, STARTED))
    running = replace(PENDING, client_status="running", task_states={"web": runs})
    unknown = replace(running, client_status="unknown")
    assert changed("allocs", unknown, running) == []
    assert changed("allocs", unknown, replace(unknown, client_status="lost")) == []
    waits = replace(running, task_states={"web": replace(runs, started_at=0)})
    again = replace(running, task_states={"web": replace(runs, events=(RECEIVED, STARTED, STARTED))})
    assert changed("allocs", waits, again) == []
