"""The effect of a command on job summaries: counts of allocations, queued placements and children.

A summary counts the allocations that are in the table and belong to the present registration of the job. A job that
was purged and registered again has another create index, and allocations of the older registration are not counted.
Counts are gathered while a command runs and written once, so that a plan of 200 allocations writes one summary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from yurt.sdk.value import replace
from yurt.state import Tables, Transaction
from yurt.state.tables import JobKey
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.plan import Plan
from yurt.structs.summary import JobChildrenSummary, JobSummary, TaskGroupSummary

SUMMARY_FIELDS: Final = {
    status.CLIENT_PENDING: "starting",
    status.CLIENT_RUNNING: "running",
    status.CLIENT_COMPLETE: "complete",
    status.CLIENT_FAILED: "failed",
    status.CLIENT_LOST: "lost",
    status.CLIENT_UNKNOWN: "unknown",
}
"""For each client status, the counter of a group's summary that counts it."""

CHILD_FIELDS: Final = {status.JOB_PENDING: "pending", status.JOB_RUNNING: "running", status.JOB_DEAD: "dead"}
"""For each job status, the counter of a parent's summary that counts a child with it."""


class SummaryChanges:
    """The changes of one command's transaction."""

    def __init__(self, tx: Transaction, index: int) -> None:
        self._tx = tx
        self._index = index
        self._counts: dict[JobKey, dict[tuple[str, str], int]] = {}
        self._queued: dict[JobKey, dict[str, int]] = {}
        self._plans: dict[JobKey, Plan] = {}
        self._registrations: dict[JobKey, int | None] = {}
        """The create index of the job that a summary counts for; None without a summary."""

    def add(self, job: Job) -> None:
        """Create a job's summary, with all its groups, if missing."""
        key = job.key
        summary: JobSummary | None = self._tx.get(Tables.job_summaries, key)
        if summary is None:
            summary = JobSummary(job_id=job.id, namespace=job.namespace, create_index=job.create_index)
        if summary.children is None:
            summary = replace(summary, children=self._children(job))
        self._registrations.pop(key, None)
        missing = {group.name: TaskGroupSummary() for group in job.task_groups if group.name not in summary.summary}
        self._tx.put(
            Tables.job_summaries,
            key,
            replace(summary, summary={**summary.summary, **missing}, modify_index=self._index),
        )

    def count_child(self, job: Job, amount: int) -> None:
        """Add `amount` children of a status to their parent's summary; a negative amount removes them."""
        if not job.parent_id:
            return
        key = (job.namespace, job.parent_id)
        summary: JobSummary | None = self._tx.get(Tables.job_summaries, key)
        if summary is None:
            return
        children = summary.children or JobChildrenSummary()
        field = CHILD_FIELDS[job.status]
        count = getattr(children, field) + amount
        assert count >= 0, (key, field, count)
        children = replace(children, **{field: count})
        self._tx.put(Tables.job_summaries, key, replace(summary, children=children, modify_index=self._index))

    def count(self, key: JobKey, alloc: Allocation, amount: int) -> None:
        """Count allocations of one job, group and client status."""
        if alloc.job is None or alloc.job.create_index != self._registration(key):
            return
        counts = self._counts.setdefault(key, {})
        cell = (alloc.task_group, SUMMARY_FIELDS[alloc.client_status])
        counts[cell] = counts.get(cell, 0) + amount

    def note_queued(self, key: JobKey, queued: Mapping[str, int]) -> None:
        """Record the queued placements by group from the job's evaluation."""
        self._queued.setdefault(key, {}).update(queued)

    def note_plan(self, plan: Plan) -> None:
        """Record that a plan placed allocations of its job."""
        key = (plan.namespace, plan.job_id)
        self._plans[key] = plan
        self._counts.setdefault(key, {})

    def write(self) -> None:
        """Write each changed summary once."""
        for key in self._counts | self._queued:
            self._write(key)

    def _write(self, key: JobKey) -> None:
        summary: JobSummary | None = self._tx.get(Tables.job_summaries, key)
        if summary is None:
            return
        changed: dict[str, dict[str, int]] = {}
        for (group, field), amount in self._counts.get(key, {}).items():
            if amount:
                now = getattr(summary.summary.get(group, TaskGroupSummary()), field) + amount
                assert now >= 0, (key, group, field, now)
                changed.setdefault(group, {})[field] = now
        for group, queued in self._queued.get(key, {}).items():
            existing = summary.summary.get(group)
            if existing is not None and existing.queued != queued:
                changed.setdefault(group, {})["queued"] = queued
        plan = self._plans.get(key)
        if plan is not None:
            summary = replace(
                summary,
                plan_index=self._index,
                plan_token=plan.eval_token,
                plan_snapshot_index=plan.snapshot_index,
            )
        if changed or plan is not None:
            groups = dict(summary.summary)
            for group, fields in changed.items():
                groups[group] = replace(groups.get(group, TaskGroupSummary()), **fields)
            self._tx.put(Tables.job_summaries, key, replace(summary, summary=groups, modify_index=self._index))

    def _registration(self, key: JobKey) -> int | None:
        if key not in self._registrations:
            summary: JobSummary | None = self._tx.get(Tables.job_summaries, key)
            self._registrations[key] = None if summary is None else summary.create_index
        return self._registrations[key]

    def _children(self, job: Job) -> JobChildrenSummary | None:
        """The counts of the existing children: a purged parent may be registered again."""
        keys = self._tx.keys_where(Tables.jobs, "parent", job.key)
        if not keys and not job.is_template:
            return None
        counts = Counter(CHILD_FIELDS[child.status] for child in self._tx.rows(Tables.jobs, keys))
        return JobChildrenSummary(**counts)
