"""How large an attempt is: large ones are made beside the event loop."""

from __future__ import annotations

from yurt.fsm import apply
from yurt.server.scheduling.work_sources import attempt_size, evaluation_size
from yurt.state import Snapshot, Tables
from yurt.structs import commands as c
from yurt.structs.job import Job
from yurt.structs.status import JOB_SYSTEM
from yurt.testing import factories


def state_with(job: Job, *, nodes: int = 3, allocs: int = 0) -> Snapshot:
    state = Snapshot.empty()
    made = [factories.node(factories.number_id(number, kind=1)) for number in range(nodes)]
    for node in made:
        state = apply(state, c.RegisterNode(node=node), index=state.index + 1).state
    state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state
    edit = state.edit(state.index + 1)
    for _ in range(allocs):
        alloc = factories.alloc(job, on=made[0])
        edit.put(Tables.allocs, alloc.id, alloc)
    return edit.commit()


def test_a_service_job_is_as_large_as_what_it_asks_for_or_what_is_there() -> None:
    job = factories.job(task_groups=(factories.group(count=4), factories.group("other", count=3)))
    assert attempt_size(state_with(job), job) == 7
    assert attempt_size(state_with(job, allocs=9), job) == 9


def test_a_job_that_stops_or_is_gone_is_as_large_as_what_is_there() -> None:
    job = factories.job(task_groups=(factories.group(count=4),), stop=True)
    state = state_with(job, allocs=2)
    assert attempt_size(state, job) == 2
    evaluation = factories.evaluation(job)
    assert evaluation_size(state, evaluation) == 2
    gone = apply(state, c.DeregisterJob(namespace=job.namespace, job_id=job.id, purge=True), index=state.index + 1)
    assert evaluation_size(gone.state, evaluation) == 2


def test_a_group_of_a_system_job_is_on_every_node() -> None:
    job = factories.job(type=JOB_SYSTEM, task_groups=(factories.group(), factories.group("other")))
    assert attempt_size(state_with(job, nodes=5), job) == 10
