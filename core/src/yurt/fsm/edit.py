"""One command's changes, with the bookkeeping that follows from them.

Whoever changes an allocation, an evaluation, a job or a deployment goes through `Edit`. It gathers what depends on
those rows (job summaries, deployment counters, job statuses, the counts of a parent's children) and writes each of
them once, in `finish`. So a plan of 200 allocations writes one summary. A summary counts the allocations that are
in the table and belong to the present life of the job: an allocation whose job was created at another index (the
job was purged and registered again) is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from yurt.sdk.value import replace
from yurt.state import Changes, Snapshot, Tables
from yurt.state.tables import JobKey
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment, DeploymentState
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.questions import is_client_terminal, is_deployment_active
from yurt.structs.summary import JobChildrenSummary, JobSummary, TaskGroupSummary

SUMMARY_FIELDS = {
    status.CLIENT_PENDING: "starting",
    status.CLIENT_RUNNING: "running",
    status.CLIENT_COMPLETE: "complete",
    status.CLIENT_FAILED: "failed",
    status.CLIENT_LOST: "lost",
    status.CLIENT_UNKNOWN: "unknown",
}
"""The counter of a group's summary that an allocation of a client status belongs to."""

COUNTED_BY: Final = attrgetter("job", "task_group", "client_status", "deployment_id")
"""New allocations that follow each other and agree in these are counted together."""

CHILD_FIELDS = {status.JOB_PENDING: "pending", status.JOB_RUNNING: "running", status.JOB_DEAD: "dead"}


class GroupProgress:
    """What one command adds to a group's deployment state."""

    __slots__ = ("canaries", "healthy", "healthy_at", "placed", "placed_at", "unhealthy")

    def __init__(self) -> None:
        self.placed = 0
        self.placed_at = 0
        self.healthy = 0
        self.healthy_at = 0
        self.unhealthy = 0
        self.canaries: list[str] = []


class Edit:
    """The changes of the command at `index`."""

    def __init__(self, state: Snapshot, index: int) -> None:
        self.tx = state.edit(index)
        self.index = index
        self._touched: dict[JobKey, None] = {}
        self._without_evals: set[JobKey] = set()
        self._counts: dict[JobKey, dict[tuple[str, str], int]] = {}
        self._queued: dict[JobKey, dict[str, int]] = {}
        self._lives: dict[JobKey, int | None] = {}
        self._progress: dict[tuple[str, str], GroupProgress] = {}

    # Reads, with the edits made so far.

    def job(self, key: JobKey) -> Job | None:
        """The current job."""
        found: Job | None = self.tx.get(Tables.jobs, key)
        return found

    def alloc(self, alloc_id: str) -> Allocation | None:
        """An allocation."""
        found: Allocation | None = self.tx.get(Tables.allocs, alloc_id)
        return found

    def evaluation(self, eval_id: str) -> Evaluation | None:
        """An evaluation."""
        found: Evaluation | None = self.tx.get(Tables.evals, eval_id)
        return found

    def deployment(self, deployment_id: str) -> Deployment | None:
        """A deployment."""
        found: Deployment | None = self.tx.get(Tables.deployments, deployment_id)
        return found

    # Writes.

    def put_alloc(self, before: Allocation | None, after: Allocation) -> None:
        """Insert or replace an allocation and note what follows from it."""
        self.tx.put(Tables.allocs, after.id, after)
        if is_client_terminal(after):
            self.drop_services("alloc", after.id)
        key = (after.namespace, after.job_id)
        self._touched[key] = None
        if before is None or before.client_status != after.client_status or before.job is not after.job:
            if before is not None:
                self._count(key, before, -1)
            self._count(key, after, 1)
        if after.deployment_id:
            self._note_progress(before, after)

    def put_new_allocs(self, allocs: Sequence[Allocation]) -> None:
        """Insert allocations that are not there yet and not over: what follows is noted once for all that share it."""
        self.tx.put_new(Tables.allocs, {alloc.id: alloc for alloc in allocs})
        for _, alike in groupby(allocs, key=COUNTED_BY):
            group = list(alike)
            first = group[0]
            key = (first.namespace, first.job_id)
            self._touched[key] = None
            self._count(key, first, len(group))
            if first.deployment_id:
                plain = sum(1 for alloc in group if alloc.deployment_status is None)
                for alloc in group if plain < len(group) else (first,):
                    self._note_progress(None, alloc)
                if plain == len(group):
                    self._progress[(first.deployment_id, first.task_group)].placed += plain - 1

    def delete_alloc(self, alloc: Allocation) -> None:
        """Forget an allocation."""
        self.tx.delete(Tables.allocs, alloc.id)
        self.drop_services("alloc", alloc.id)
        key = (alloc.namespace, alloc.job_id)
        self._touched[key] = None
        self._count(key, alloc, -1)

    def drop_services(self, column: str, value: str) -> None:
        """Forget the service registrations of an allocation or a node."""
        for service_id in self.tx.keys_where(Tables.services, column, value):
            self.tx.delete(Tables.services, service_id)

    def put_evaluation(self, evaluation: Evaluation) -> None:
        """Store an evaluation; queued counts of the job's summary follow the evaluation written last."""
        self.tx.put(Tables.evals, evaluation.id, evaluation)
        key = (evaluation.namespace, evaluation.job_id)
        self._touched[key] = None
        if evaluation.queued_allocations:
            self._queued.setdefault(key, {}).update(evaluation.queued_allocations)

    def delete_evaluation(self, evaluation: Evaluation) -> None:
        """Forget an evaluation."""
        self.tx.delete(Tables.evals, evaluation.id)
        key = (evaluation.namespace, evaluation.job_id)
        self._touched[key] = None
        self._without_evals.add(key)

    def put_deployment(self, deployment: Deployment) -> None:
        """Store a deployment."""
        self.tx.put(Tables.deployments, deployment.id, deployment)
        self._touched[(deployment.namespace, deployment.job_id)] = None

    def delete_deployment(self, deployment: Deployment) -> None:
        """Forget a deployment."""
        self.tx.delete(Tables.deployments, deployment.id)
        self._touched[(deployment.namespace, deployment.job_id)] = None

    def put_job(self, job: Job) -> None:
        """Store the current job and its row among the versions: one object in both."""
        self.tx.put(Tables.jobs, job.key, job)
        self.tx.put(Tables.job_versions, (job.namespace, job.id, job.version), job)
        self._touched[job.key] = None

    def add_summary(self, job: Job) -> None:
        """Make sure that a job has a summary with all its groups."""
        summary: JobSummary | None = self.tx.get(Tables.job_summaries, job.key)
        if summary is None:
            summary = JobSummary(job_id=job.id, namespace=job.namespace, create_index=job.create_index)
        if summary.children is None:
            summary = replace(summary, children=self._children(job))
        self._lives.pop(job.key, None)
        missing = {group.name: TaskGroupSummary() for group in job.task_groups if group.name not in summary.summary}
        self.tx.put(
            Tables.job_summaries,
            job.key,
            replace(summary, summary={**summary.summary, **missing}, modify_index=self.index),
        )

    def count_child(self, job: Job, amount: int) -> None:
        """Add a child to, or take it from, its parent's summary."""
        key = (job.namespace, job.parent_id)
        summary: JobSummary | None = self.tx.get(Tables.job_summaries, key)
        if not job.parent_id or summary is None:
            return
        children = summary.children or JobChildrenSummary()
        field = CHILD_FIELDS[job.status]
        count = getattr(children, field) + amount
        assert count >= 0, (key, field, count)
        children = replace(children, **{field: count})
        self.tx.put(Tables.job_summaries, key, replace(summary, children=children, modify_index=self.index))

    def _children(self, job: Job) -> JobChildrenSummary | None:
        """Children that are there already, as those of a parent that was purged and comes back."""
        keys = self.tx.keys_where(Tables.jobs, "parent", job.key)
        if not keys and not job.is_template:
            return None
        counts = Counter(CHILD_FIELDS[child.status] for child in self.tx.rows(Tables.jobs, keys))
        return JobChildrenSummary(**counts)

    # The end of a command.

    def finish(self) -> tuple[Snapshot, Changes]:
        """Write what follows from the edits; the state after them and all that changed."""
        for (deployment_id, group), progress in self._progress.items():
            self._write_progress(deployment_id, group, progress)
        for key in {**dict.fromkeys(self._counts), **dict.fromkeys(self._queued)}:
            self._write_summary(key)
        # Statuses come last: they follow from the allocations, evaluations and deployments as they are now.
        for key in self._touched:
            self._write_status(key)
        return self.tx.commit(), self.tx.changes

    def _count(self, key: JobKey, alloc: Allocation, amount: int) -> None:
        if alloc.job is None or alloc.job.create_index != self._life(key):
            return
        counts = self._counts.setdefault(key, {})
        cell = (alloc.task_group, SUMMARY_FIELDS[alloc.client_status])
        counts[cell] = counts.get(cell, 0) + amount

    def _life(self, key: JobKey) -> int | None:
        """The create index of the job that the summary counts for; None without a summary."""
        if key not in self._lives:
            summary: JobSummary | None = self.tx.get(Tables.job_summaries, key)
            self._lives[key] = None if summary is None else summary.create_index
        return self._lives[key]

    def _write_summary(self, key: JobKey) -> None:
        summary: JobSummary | None = self.tx.get(Tables.job_summaries, key)
        if summary is None:
            return
        changed: dict[str, dict[str, int]] = {}
        for (group, field), amount in self._counts.get(key, {}).items():
            if amount:
                now = getattr(summary.summary.get(group, TaskGroupSummary()), field) + amount
                assert now >= 0, (key, group, field, now)
                changed.setdefault(group, {})[field] = now
        for group, queued in self._queued.get(key, {}).items():
            known = summary.summary.get(group)
            if known is not None and known.queued != queued:
                changed.setdefault(group, {})["queued"] = queued
        if changed:
            groups = dict(summary.summary)
            for group, fields in changed.items():
                groups[group] = replace(groups.get(group, TaskGroupSummary()), **fields)
            self.tx.put(Tables.job_summaries, key, replace(summary, summary=groups, modify_index=self.index))

    def _write_status(self, key: JobKey) -> None:
        job = self.job(key)
        if job is None:
            return
        now = self._derived_status(job)
        if now != job.status:
            self.count_child(job, -1)
            job = replace(job, status=now, modify_index=self.index)
            self.tx.put(Tables.jobs, key, job)
            self.tx.put(Tables.job_versions, (*key, job.version), job)
            self.count_child(job, 1)

    def _derived_status(self, job: Job) -> str:
        if job.type == status.JOB_SYSTEM or job.is_template:
            return status.JOB_DEAD if job.stop else status.JOB_RUNNING
        if self.tx.count_where(Tables.allocs, "live", job.key) or self._has_active_deployment(job.key):
            return status.JOB_RUNNING
        if self.tx.count_where(Tables.evals, "live", job.key):
            return status.JOB_PENDING
        had_evals = job.key in self._without_evals or self.tx.count_where(Tables.evals, "job", job.key)
        if job.stop or had_evals or job.status != status.JOB_PENDING:
            return status.JOB_DEAD
        return status.JOB_PENDING

    def _has_active_deployment(self, key: JobKey) -> bool:
        deployments = (self.deployment(found) for found in self.tx.keys_where(Tables.deployments, "job", key))
        return any(deployment is not None and is_deployment_active(deployment) for deployment in deployments)

    def _note_progress(self, before: Allocation | None, after: Allocation) -> None:
        is_new = before is None or before.deployment_id != after.deployment_id
        was = None if is_new or before is None or before.deployment_status is None else before.deployment_status.healthy
        health = after.deployment_status
        now = None if health is None else health.healthy
        is_canary = health is not None and health.canary
        if not is_new and was == now:
            return
        progress = self._progress.setdefault((after.deployment_id, after.task_group), GroupProgress())
        if is_new:
            progress.placed += 1
            progress.placed_at = progress.placed_at or after.modify_time
            if is_canary:
                progress.canaries.append(after.id)
        if was != now and now is not None and health is not None:
            progress.healthy += (1 if now else 0) - (1 if was else 0)
            progress.unhealthy += 0 if now else 1
            if now:
                progress.healthy_at = max(progress.healthy_at, health.timestamp)

    def _write_progress(self, deployment_id: str, group: str, progress: GroupProgress) -> None:
        assert progress.placed >= 0 and progress.unhealthy >= 0, "an allocation is placed, or found bad, once"
        assert progress.placed >= len(progress.canaries), "canaries are placed allocations"
        deployment = self.deployment(deployment_id)
        state = deployment.task_groups.get(group) if deployment is not None else None
        if deployment is None or state is None:
            return
        changed = replace(
            state,
            placed_allocs=state.placed_allocs + progress.placed,
            healthy_allocs=state.healthy_allocs + progress.healthy,
            unhealthy_allocs=state.unhealthy_allocs + progress.unhealthy,
            placed_canaries=with_new(state.placed_canaries, progress.canaries),
            require_progress_by=_progress_by(state, progress),
        )
        self.put_deployment(with_group(deployment, group, changed, index=self.index))


def _progress_by(state: DeploymentState, progress: GroupProgress) -> int:
    """The first placement starts the deadline; each newly healthy allocation moves it on (semantics, section 11)."""
    deadline = state.require_progress_by
    if not state.progress_deadline:
        return deadline
    if progress.placed and not deadline:
        deadline = progress.placed_at + state.progress_deadline
    if progress.healthy > 0:
        deadline = max(deadline, progress.healthy_at + state.progress_deadline)
    assert deadline >= state.require_progress_by, "a deadline moves on, never back"
    return deadline


def with_new(known: tuple[str, ...], added: list[str]) -> tuple[str, ...]:
    """The known ids and then those of the added ones that are new."""
    return (*known, *(one for one in added if one not in known)) if added else known


def with_group(deployment: Deployment, group: str, state: DeploymentState, *, index: int) -> Deployment:
    """A copy with one group's state changed."""
    groups = {**deployment.task_groups, group: state}
    return replace(deployment, task_groups=groups, modify_index=index)
