"""Factories for allocations whose tasks the fake driver runs."""

from __future__ import annotations

from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.status import CLIENT_RUNNING
from yurt.testing import factories
from yurt.testing.fakes import FakeServerPort, eventually


def placed(node_id: str, *, job: Job | None = None, number: int = 0) -> Allocation:
    """An allocation of a job's first group on a node, all its tasks run by the fake driver."""
    job = job or factories.job()
    group = job.task_groups[0]
    tasks = tuple(
        replace(task, driver="fake", config={} if "run_for" in task.config else task.config) for task in group.tasks
    )
    job = replace(job, task_groups=(replace(group, tasks=tasks), *job.task_groups[1:]))
    return Allocation(
        id=factories.new_id(),
        namespace=job.namespace,
        name=f"{job.id}.{group.name}[{number}]",
        node_id=node_id,
        job_id=job.id,
        job=job,
        task_group=group.name,
    )


def with_task(alloc: Allocation, **changes: object) -> Allocation:
    """The allocation with its first task changed."""
    assert alloc.job is not None
    group = alloc.job.task_groups[0]
    tasks = (replace(group.tasks[0], **changes), *group.tasks[1:])
    return replace(alloc, job=replace(alloc.job, task_groups=(replace(group, tasks=tasks),)))


def messages(server: FakeServerPort, alloc: Allocation, task: str = "web") -> list[str]:
    """The messages of a task's events as the servers store them, oldest first."""
    return [event.display_message for event in server.last_update(alloc.id).task_states[task].events]


async def running(server: FakeServerPort, alloc: Allocation) -> None:
    """Place an allocation and wait until it runs."""
    server.put_alloc(alloc)
    await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
