"""Allocations for the fake driver."""

from __future__ import annotations

from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.testing import factories


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
