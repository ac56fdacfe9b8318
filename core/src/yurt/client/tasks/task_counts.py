"""Counts starts, ends and restarts of tasks, under Nomad's names.

Counters are labelled by job, not by allocation: allocations come and go without bound, and a counter is never removed.
"""

from __future__ import annotations

from yurt.lifecycle.task import BACKOFF, DEAD, RUNNING, TaskMachine
from yurt.runtime.metrics import Labels, Metrics
from yurt.structs.alloc import Allocation


def count_change(metrics: Metrics, before: TaskMachine, after: TaskMachine, labels: Labels) -> None:
    """Count the change of a task's phase."""
    if after.phase == before.phase:
        return
    if after.phase == RUNNING:
        metrics.count("allocs.running", labels=labels)
    elif after.phase == BACKOFF:
        metrics.count("allocs.restart", labels=labels)
    elif after.phase == DEAD:
        metrics.count("allocs.failed" if after.state.failed else "allocs.complete", labels=labels)


def count_oom(metrics: Metrics, labels: Labels) -> None:
    """Count a run that the kernel killed for memory."""
    metrics.count("allocs.oom_killed", labels=labels)


def task_labels(alloc: Allocation, task: str) -> Labels:
    """The labels of a task's counters."""
    return (("job", alloc.job_id), ("namespace", alloc.namespace), ("task", task), ("task_group", alloc.task_group))
