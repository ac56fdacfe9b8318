"""One command's changes with the derived bookkeeping.

Every change of an allocation, an evaluation, a job or a deployment goes through `Edit`. It gathers what depends on
those rows (`bookkeeping`, job statuses) and writes each of them once, in `finish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from yurt.fsm.bookkeeping.deployment_progress import DeploymentProgress
from yurt.fsm.bookkeeping.summary_changes import SummaryChanges
from yurt.sdk.value import replace
from yurt.state import Changes, Snapshot, Tables
from yurt.state.tables import JobKey
from yurt.structs import status
from yurt.structs.alloc import Allocation, has_devices
from yurt.structs.cluster import Namespace
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.predicates import is_client_terminal, is_deployment_active
from yurt.structs.quota import QuotaSpec
from yurt.structs.rules import ACCOUNTING_RULES

COUNTED_BY: Final = attrgetter("job", "task_group", "client_status", "deployment_id")
"""Consecutive new allocations with equal values in these fields are counted together."""


class Edit:
    """The changes of the command at `index`, under the rules of `rules_version`."""

    def __init__(self, state: Snapshot, index: int, *, rules_version: int) -> None:
        self.tx = state.edit(index)
        self.index = index
        self.rules_version = rules_version
        self._changed_jobs: dict[JobKey, None] = {}
        self._without_evals: set[JobKey] = set()
        self.summaries = SummaryChanges(self.tx, index)
        self._progress = DeploymentProgress()
        self._ended: list[Allocation] = []
        self.counts_usage = True
        """Whether the changes count in the usage of queues; not in a restore, which brings both."""
        self.now = 0
        """The command's time, unix ns, if it has one in addition to those of its rows; else 0."""

    # Reads, with the edits made so far.

    def job(self, key: JobKey) -> Job | None:
        """The current job."""
        job: Job | None = self.tx.get(Tables.jobs, key)
        return job

    def alloc(self, alloc_id: str) -> Allocation | None:
        """An allocation."""
        alloc: Allocation | None = self.tx.get(Tables.allocs, alloc_id)
        return alloc

    def evaluation(self, eval_id: str) -> Evaluation | None:
        """An evaluation."""
        evaluation: Evaluation | None = self.tx.get(Tables.evals, eval_id)
        return evaluation

    def deployment(self, deployment_id: str) -> Deployment | None:
        """A deployment."""
        deployment: Deployment | None = self.tx.get(Tables.deployments, deployment_id)
        return deployment

    def quota_of(self, namespace: str) -> QuotaSpec | None:
        """The quota of a namespace."""
        row: Namespace | None = self.tx.get(Tables.namespaces, namespace)
        return self.tx.get(Tables.quotas, row.quota) if row is not None and row.quota else None

    # Writes.

    def put_alloc(self, before: Allocation | None, after: Allocation) -> None:
        """Insert or replace an allocation with the derived changes."""
        assert after.modify_index == self.index, (after.id, after.modify_index, "a write carries the command's index")
        self.tx.put(Tables.allocs, after.id, after)
        if is_client_terminal(after):
            self.drop_services("alloc", after.id)
        key = (after.namespace, after.job_id)
        if before is not None:
            assert before.modify_index <= after.modify_index, (after.id, before.modify_index, "an index goes back (A5)")
            assert key == (before.namespace, before.job_id), (after.id, key, "an allocation keeps its job")
        self._changed_jobs[key] = None
        if before is None or before.client_status != after.client_status or before.job is not after.job:
            if before is not None:
                is_changed = before.client_status != after.client_status
                assert not (is_changed and is_client_terminal(before)), (after.id, "a terminal status is final (E7)")
                self.summaries.count(key, before, -1)
            self.summaries.count(key, after, 1)
            if before is not None and is_client_terminal(after):
                self._ended.append(after)
        if after.deployment_id:
            self._progress.note(before, after)

    def put_new_allocs(self, allocs: Sequence[Allocation]) -> None:
        """Insert new live allocations; derived changes are computed once for all that share them."""
        self.tx.put_new(Tables.allocs, {alloc.id: alloc for alloc in allocs})
        for _, alike in groupby(allocs, key=COUNTED_BY):
            group = list(alike)
            first = group[0]
            assert not is_client_terminal(first), (first.id, "a placement has not ended yet")
            key = (first.namespace, first.job_id)
            self._changed_jobs[key] = None
            self.summaries.count(key, first, len(group))
            if first.deployment_id:
                self._progress.note_placed(group)

    def delete_alloc(self, alloc: Allocation) -> None:
        """Delete an allocation."""
        assert self.alloc(alloc.id) is alloc, (alloc.id, "only a stored allocation is uncounted")
        self.tx.delete(Tables.allocs, alloc.id)
        self.drop_services("alloc", alloc.id)
        key = (alloc.namespace, alloc.job_id)
        self._changed_jobs[key] = None
        self.summaries.count(key, alloc, -1)

    def drop_services(self, column: str, value: str) -> None:
        """Delete the service registrations of an allocation or a node."""
        for service_id in self.tx.keys_where(Tables.services, column, value):
            self.tx.delete(Tables.services, service_id)

    def put_evaluation(self, evaluation: Evaluation) -> None:
        """Store an evaluation; the job's queued counts follow the last one written."""
        assert evaluation.modify_index == self.index, (evaluation.id, evaluation.modify_index, self.index)
        self.tx.put(Tables.evals, evaluation.id, evaluation)
        key = (evaluation.namespace, evaluation.job_id)
        self._changed_jobs[key] = None
        if evaluation.queued_allocations:
            self.summaries.note_queued(key, evaluation.queued_allocations)

    def delete_evaluation(self, evaluation: Evaluation) -> None:
        """Delete an evaluation."""
        assert self.evaluation(evaluation.id) is evaluation, (evaluation.id, "only a stored evaluation is deleted")
        self.tx.delete(Tables.evals, evaluation.id)
        key = (evaluation.namespace, evaluation.job_id)
        self._changed_jobs[key] = None
        self._without_evals.add(key)

    def put_deployment(self, deployment: Deployment) -> None:
        """Store a deployment."""
        assert deployment.modify_index == self.index, (deployment.id, deployment.modify_index, self.index)
        self.tx.put(Tables.deployments, deployment.id, deployment)
        self._changed_jobs[(deployment.namespace, deployment.job_id)] = None

    def delete_deployment(self, deployment: Deployment) -> None:
        """Delete a deployment."""
        assert not is_deployment_active(deployment), (deployment.id, "its allocations would count in nothing")
        self.tx.delete(Tables.deployments, deployment.id)
        self._changed_jobs[(deployment.namespace, deployment.job_id)] = None

    def put_job(self, job: Job) -> None:
        """Store the current job, also among its versions as the same object."""
        assert job.modify_index == self.index, (job.key, job.modify_index, self.index)
        key = job.key
        self.tx.put(Tables.jobs, key, job)
        self.tx.put(Tables.job_versions, (*key, job.version), job)
        self._changed_jobs[key] = None

    # The end of a command.

    def finish(self) -> tuple[Snapshot, Changes]:
        """Write the derived changes; returns the state after the edits and all changes."""
        # Deployments before summaries and statuses: an active deployment keeps its job running.
        for deployment in self._progress.changed(self.tx, self.index):
            self.put_deployment(deployment)
        self.summaries.write()
        if self.counts_usage and self._has_fair_share():
            from yurt.fsm.bookkeeping.queue_usage import record_usage

            record_usage(self.tx, index=self.index, now=self.now)
        if self._ended and self.counts_usage and self.rules_version >= ACCOUNTING_RULES:
            self._record_ends()
        # Statuses come last: they follow from the allocations, evaluations and deployments as they are now.
        for key in self._changed_jobs:
            self._write_status(key)
        return self.tx.commit(self.rules_version), self.tx.changes

    def _record_ends(self) -> None:
        """Add the usage of ended allocations to the sums of their namespaces; those without devices are skipped
        first."""
        ended = [alloc for alloc in self._ended if alloc.accounting is not None or has_devices(alloc)]
        if ended:
            from yurt.fsm.bookkeeping.accounting import record_ends

            record_ends(self.tx, ended, index=self.index, rules_version=self.rules_version)

    def _has_fair_share(self) -> bool:
        """Whether a pool has a fair-share queue, or had one before this command."""
        base = self.tx.base
        return bool(self.tx.count_where(Tables.node_pools, "queue", "fair_share") or len(base.queue_usages))

    def _write_status(self, key: JobKey) -> None:
        job = self.job(key)
        if job is None:
            return
        assert job.key == key, (job.key, key, "a job is stored under its own key")
        now = self._derived_status(key, job)
        if now != job.status:
            self.summaries.count_child(job, -1)
            job = replace(job, status=now, modify_index=self.index)
            # No index depends on the status.
            self.tx.put_alike(Tables.jobs, key, job)
            self.tx.put_alike(Tables.job_versions, (*key, job.version), job)
            self.summaries.count_child(job, 1)

    def _derived_status(self, key: JobKey, job: Job) -> str:
        if job.type == status.JOB_SYSTEM or job.is_template:
            return status.JOB_DEAD if job.stop else status.JOB_RUNNING
        if self.tx.count_where(Tables.allocs, "live", key) or self._has_active_deployment(key):
            return status.JOB_RUNNING
        if self.tx.count_where(Tables.evals, "live", key):
            return status.JOB_PENDING
        had_evals = key in self._without_evals or self.tx.count_where(Tables.evals, "job", key)
        if job.stop or had_evals or job.status != status.JOB_PENDING:
            return status.JOB_DEAD
        return status.JOB_PENDING

    def _has_active_deployment(self, key: JobKey) -> bool:
        deployments = (
            self.deployment(deployment_id) for deployment_id in self.tx.keys_where(Tables.deployments, "job", key)
        )
        return any(deployment is not None and is_deployment_active(deployment) for deployment in deployments)
