"""What a plain job takes, in calls of functions: a number that no other work on the machine changes.

A plain job names nothing of its nodes, has no services, no signals and no policy on idle devices, as most jobs. What
a feature asks of the jobs that use it must cost these nothing. Seconds are measured by `python -m bench server`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, cast

from yurt.api.decode import decode_job
from yurt.fsm import apply
from yurt.runtime.metrics import Metrics
from yurt.runtime.turns import Turns
from yurt.scheduler import InFlightPlans, attempt, check_plan
from yurt.sdk.value import UnixNano
from yurt.server.config import ServerConfig
from yurt.server.resources.admission import admitted, with_defaults
from yurt.server.resources.idle import IdleReclaimer
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.state import Change, Snapshot, Tables
from yurt.structs.commands import ApplyPlan, RegisterJob
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv

TRIES = 3
CALLS_MAX = 344
"""The calls of an admission, those in C included, and a margin of a tenth, as versions of Python differ."""
CALLS_TO_PLACE_MAX = 1_880
"""The same from the command that registers an admitted job to the state with its allocation."""
TASK: dict[str, Any] = {
    "Name": "main",
    "Driver": "raw_exec",
    "Config": {"command": "/bin/sleep", "args": ["600"]},
    "Env": {"MODE": "plain"},
    "Resources": {"CPU": 100, "MemoryMB": 64},
}
GROUP: dict[str, Any] = {"Name": "main", "Count": 1}
JOB: dict[str, Any] = {"ID": "web", "Type": "service"}


def state_with_nodes(count: int) -> Snapshot:
    """A state with ready nodes."""
    transaction = Snapshot.empty().edit(2)
    for _ in range(count):
        node = factories.node()
        transaction.put(Tables.nodes, node.id, node)
    return transaction.commit()


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Counts the calls of functions into the list's only number."""
    count = [0]

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        count[0] += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        yield count
    finally:
        sys.setprofile(None)


def document(number: int = 0) -> dict[str, Any]:
    """A job as a client sends it."""
    return {**JOB, "ID": f"web-{number}", "TaskGroups": [{**GROUP, "Tasks": [dict(TASK)]}]}


def calls_of_admission(state: Snapshot) -> int:
    """The calls of functions from the document of a job to its warnings, when it was admitted before."""
    counts = list[int]()

    async def admit_once() -> None:
        config, sent = ServerConfig(name="cost"), document()
        with counted_calls() as count:
            job = with_defaults(state, decode_job(sent)[0])
            admission = await admitted(state, job, config, reads_nodes=True)
        assert not admission.errors, admission.errors
        counts.append(*count)

    for _ in range(TRIES):
        asyncio.run(admit_once())
    return min(counts[1:])


def calls_to_place(state: Snapshot) -> int:
    """The calls of functions that register, plan, check and place one job more."""
    counts, plans = list[int](), InFlightPlans()
    for number in range(TRIES):
        job = with_defaults(state, decode_job(document(number))[0])
        evaluation = factories.evaluation(job)
        register = RegisterJob(job=job, evaluation=evaluation)
        with counted_calls() as count:
            state = apply(state, register, index=state.index + 1).state
            made = attempt(state, evaluation, now=UnixNano(factories.NOW), seed=number)
            accepted = check_plan(plans.view(state), made.plan).accepted
            plans.add(state, (accepted,))
            state = apply(state, ApplyPlan(plan=accepted, checked_at=state.index), index=state.index + 1).state
            plans.remove((accepted,))
        assert len(state.allocs) == number + 1
        counts.append(*count)
    return min(counts[1:])


def test_the_admission_of_a_plain_job_takes_few_calls() -> None:
    assert calls_of_admission(state_with_nodes(60)) <= CALLS_MAX


def test_the_placement_of_a_plain_job_takes_few_calls() -> None:
    assert calls_to_place(state_with_nodes(60)) <= CALLS_TO_PLACE_MAX


def calls_to_observe(count: int) -> int:
    """The calls of functions with which a leader's duties follow a plan that places so many allocations."""
    state = Snapshot.empty()
    metrics, env = Metrics(), FakeEnv()
    queue = EvalQueue(env=env, writer=None, current=lambda: state, turns=Turns(), metrics=metrics)
    reclaimer = IdleReclaimer(env=env, writer=cast(Any, None), metrics=metrics, config=ServerConfig(name="cost"))
    placed = [factories.alloc() for _ in range(count)]
    changes = tuple(Change("allocs", alloc.id, None, alloc) for alloc in placed)
    with counted_calls() as calls:
        queue.observe(changes, index=1)
        reclaimer.observe(changes)
    return calls[0]


def test_duties_make_no_calls_for_each_placed_allocation_without_a_past() -> None:
    assert calls_to_observe(300) == calls_to_observe(3)
