"""Spans of a job's way from its submission to its started tasks, read from the rows that the log changes.

An evaluation is a span from its creation to its end, and a child of the one that it follows. An allocation is a span
from its placement to the first report that it runs or has ended, and a child of its evaluation. A task is a span from
its receipt by the client to its start, with the task's events in it.

Ids come from the rows' ids, so that no state is kept and a span that is made twice is the same span. The trace's id is
that of the evaluation which began it, without dashes. Servers stamp evaluations and allocations, clients stamp tasks:
where their clocks differ, so do the spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

from yurt.readmodels.alloc_facts import failure_event, reason, started_at
from yurt.sdk.value import UnixNano
from yurt.state import Change
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.evaluation import Evaluation
from yurt.structs.predicates import is_eval_terminal
from yurt.structs.status import CLIENT_FAILED, CLIENT_LOST, CLIENT_PENDING, CLIENT_UNKNOWN, EVAL_FAILED, TASK_DEAD

FOLLOWED_MAX: Final = 64
"""Evaluations that are followed back to the one that began a trace."""
RANDOM_BITS: Final = 62
"""The bits at the end of a UUID that are random (RFC 9562, version 4)."""
STARTED: Final = "Started"
NOT_BEGUN: Final = frozenset({CLIENT_PENDING, CLIENT_UNKNOWN})

Attributes = Mapping[str, str | int]
FindEvaluation = Callable[[str], Evaluation | None]
"""An evaluation by its id, None for one that the state does not keep."""


class SpanEvent(NamedTuple):
    """Something that happened within a span."""

    name: str
    time: UnixNano
    message: str


class Span(NamedTuple):
    """A span; `error` is "" where nothing failed."""

    name: str
    trace_id: int
    """128 bits."""
    span_id: int
    """64 bits."""
    parent_id: int | None
    start: UnixNano
    end: UnixNano
    attributes: Attributes
    events: tuple[SpanEvent, ...] = ()
    error: str = ""


def is_sampled(trace_id: int, ratio: float) -> bool:
    """Whether a share of the traces includes this one: every server decides alike, for all spans of a trace."""
    return trace_id % (1 << RANDOM_BITS) < ratio * (1 << RANDOM_BITS)


def spans_of(changes: Iterable[Change], find: FindEvaluation) -> Iterator[Span]:
    """The spans that the changes of one command end."""
    for change in changes:
        if change.after is None:
            continue
        if change.table == "evals":
            yield from _of_evaluation(change.before, change.after, find)
        elif change.table == "allocs":
            yield from _of_allocation(change.before, change.after, find)


def _of_evaluation(before: Evaluation | None, after: Evaluation, find: FindEvaluation) -> Iterator[Span]:
    was_terminal = before is not None and is_eval_terminal(before)
    if was_terminal or not is_eval_terminal(after):
        return
    yield Span(
        name=f"evaluation {after.triggered_by}",
        trace_id=_trace_id(after, find),
        span_id=_span_id(after.id),
        parent_id=_span_id(after.previous_eval) if find(after.previous_eval) else None,
        start=after.create_time,
        end=after.modify_time,
        attributes=_job_attributes(after.namespace, after.job_id)
        | {
            "yurt.evaluation.id": after.id,
            "yurt.evaluation.triggered_by": after.triggered_by,
            "yurt.evaluation.status": after.status,
            "yurt.evaluation.blocked": after.blocked_eval,
        },
        error=(after.status_description or after.status) if after.status == EVAL_FAILED else "",
    )


def _of_allocation(before: Allocation | None, after: Allocation, find: FindEvaluation) -> Iterator[Span]:
    """Its own span, and those of its tasks that have started or failed to since the row before."""
    evaluation = find(after.eval_id)
    if evaluation is None:
        return
    trace_id, own_id = _trace_id(evaluation, find), _span_id(after.id)
    shared = _job_attributes(after.namespace, after.job_id) | {
        "yurt.allocation.id": after.id,
        "yurt.group": after.task_group,
        "yurt.node.id": after.node_id,
        "yurt.node.name": after.node_name,
    }
    had_begun = before is not None and (before.client_status not in NOT_BEGUN or started_at(before) > 0)
    if not had_begun and after.client_status not in NOT_BEGUN:
        is_failure = after.client_status in {CLIENT_FAILED, CLIENT_LOST}
        yield Span(
            name="allocation start",
            trace_id=trace_id,
            span_id=own_id,
            parent_id=_span_id(evaluation.id),
            start=after.create_time,
            end=_begun_at(after),
            attributes=shared | {"yurt.allocation.status": after.client_status},
            error=(reason(after) or after.client_status) if is_failure else "",
        )
    for task, state in after.task_states.items():
        earlier = before.task_states.get(task) if before is not None else None
        had_begun = earlier is not None and _has_begun(earlier)
        if state.events and _has_begun(state) and not had_begun and not _is_restart(state):
            yield _of_task(task, state, trace_id, own_id, shared)


def _of_task(task: str, state: TaskState, trace_id: int, alloc_span_id: int, shared: Attributes) -> Span:
    end = state.started_at or state.events[-1].time
    seen = tuple(
        SpanEvent(event.type, event.time, event.display_message) for event in state.events if event.time <= end
    )
    cause = failure_event(state) or state.events[-1]
    return Span(
        name="task start",
        trace_id=trace_id,
        span_id=_span_id(f"{shared['yurt.allocation.id']}/{task}"),
        parent_id=alloc_span_id,
        start=state.events[0].time,
        end=UnixNano(end),
        attributes={**shared, "yurt.task": task},
        events=seen,
        error=(cause.display_message or cause.type) if state.failed and not state.started_at else "",
    )


def _has_begun(state: TaskState) -> bool:
    """Whether a task has started, or never will."""
    return bool(state.started_at) or state.state == TASK_DEAD


def _is_restart(state: TaskState) -> bool:
    """Whether a task has started before, as one has that was restarted on request."""
    return sum(event.type == STARTED for event in state.events) > 1


def _begun_at(alloc: Allocation) -> UnixNano:
    """The first start of a task; if none has started, when the allocation changed last."""
    started = started_at(alloc)
    return UnixNano(max(started, alloc.create_time)) if started else alloc.modify_time


def _trace_id(evaluation: Evaluation, find: FindEvaluation) -> int:
    """The id of the evaluation that began this one's trace, as far back as the state keeps them."""
    for _ in range(FOLLOWED_MAX):
        previous = find(evaluation.previous_eval)
        if previous is None:
            break
        evaluation = previous
    return UUID(evaluation.id).int


def _span_id(row_id: str) -> int:
    return int.from_bytes(blake2b(row_id.encode(), digest_size=8).digest(), "big") or 1


def _job_attributes(namespace: str, job_id: str) -> dict[str, str | int]:
    return {"yurt.namespace": namespace, "yurt.job.id": job_id}
