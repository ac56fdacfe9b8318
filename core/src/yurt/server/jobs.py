"""Operations on jobs: register, plan, stop, evaluate, revert, scale, dispatch, launch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from yurt import scheduler
from yurt.api.diff import job_diff
from yurt.duties.children import (
    children_by_token,
    dispatch_id,
    dispatch_problem,
    dispatched_child,
    has_live_child,
    instance_of,
    periodic_child,
)
from yurt.duties.evals import Mint, evaluation_of
from yurt.duties.periodic import next_launch
from yurt.duties.scaling import scaled, scaling_problem
from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied
from yurt.sdk.value import UnixNano, replace
from yurt.server.admission import admit, count_problem, with_counts_of, with_descent_of, with_resources_of
from yurt.server.plan_annotations import annotated
from yurt.server.requests import NOTHING_KEPT, PLAIN_DISPATCH, DispatchRequest, Kept
from yurt.server.results import JobDispatched, JobPlanned, JobRegistered
from yurt.server.work import attempt_size
from yurt.server.worker import THREAD_COUNT
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation, DesiredTransition
from yurt.structs.commands import (
    DeregisterJob,
    RecordPeriodicLaunch,
    RecordScalingEvent,
    RegisterJob,
    SetDesiredTransitions,
    SetJobStability,
    UpsertEvaluations,
)
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, JobSubmission, ScalingEvent
from yurt.structs.questions import is_client_terminal

if TYPE_CHECKING:
    from yurt.server.server import Server

MARKED_TOGETHER: Final = 200
"""Allocations that one command marks."""
DISABLED: Final = "Job registration, dispatch, and scale are disabled by the scheduler configuration"


class Jobs:
    """Operations on jobs."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def register(
        self,
        job: Job,
        *,
        submission: JobSubmission | None = None,
        enforce_index: int | None = None,
        eval_priority: int = 0,
        keep: Kept = NOTHING_KEPT,
        warnings: tuple[str, ...] = (),
    ) -> JobRegistered:
        """Store a job and have it scheduled; `keep` of the running one. Raises Invalid with every problem found."""
        self._check_enabled()
        known = self._server.state.jobs.get(job.key)
        check_enforced_index(known, enforce_index)
        job = with_descent_of(job, known)
        if keep.counts and known is not None:
            job = with_counts_of(job, known)
        if keep.resources and known is not None:
            job = with_resources_of(job, known)
        admission = admit(self._server.state, job, self._server.config)
        if admission.errors:
            raise Invalid(multi_error(admission.errors))
        warnings = (*warnings, *admission.warnings)
        if submission is not None and len(submission.source) > self._server.config.job_max_source_size:
            warnings = (*warnings, "the job's source is too large to be kept with it")
            submission = None
        mint = self._mint()
        job = replace(job, submit_time=mint.now)
        evaluation = None
        if not job.is_template:
            evaluation = evaluation_of(job, status.TRIGGER_JOB_REGISTER, mint, priority=eval_priority)
        return await self._store(job, evaluation, submission=submission, warnings=warnings)

    async def plan(self, job: Job, *, diff: bool) -> JobPlanned:
        """What registering the job would do; nothing is changed.

        One that only launches others places nothing by itself: its failures are those that a child would meet now.
        """
        state = self._server.state
        known = state.jobs.get(job.key)
        job = with_descent_of(job, known)
        admission = admit(state, job, self._server.config)
        if admission.errors:
            raise Invalid(multi_error(admission.errors))
        mint = self._mint()
        job = replace(job, submit_time=mint.now)
        changes = job_diff(known, job) if diff else None
        launch = next_launch(job.periodic, mint.now) if job.periodic is not None and job.periodic.enabled else None
        planned = JobPlanned(
            job_modify_index=known.job_modify_index if known is not None else 0,
            diff=changes,
            next_periodic_launch=launch or 0,
            warnings=admission.warnings,
        )
        tried = await self._tried(state, instance_of(job), mint.now)
        planned = replace(planned, failed_tg_allocs=tried.outcome.evaluation.failed_tg_allocs)
        if job.is_template:
            return planned
        annotations = tried.plan.annotations
        return replace(
            planned,
            diff=annotated(changes, annotations) if changes is not None else None,
            annotations=annotations,
            created_evals=tried.outcome.created,
        )

    async def _tried(self, state: Snapshot, job: Job, now: UnixNano) -> scheduler.Attempt:
        """What registering a job would place on the state."""
        seed = int(self._server.env.uuid().replace("-", ""), 16)
        attempt = partial(scheduler.dry_run, state, job, now=now, seed=seed, **self._server.limits)
        is_large = attempt_size(state, job) > THREAD_COUNT
        return await asyncio.to_thread(attempt) if is_large else attempt()

    async def deregister(
        self,
        namespace: str,
        job_id: str,
        *,
        purge: bool = False,
        eval_priority: int = 0,
        no_shutdown_delay: bool = False,
    ) -> JobRegistered:
        """Stop a job, or delete it when `purge`; an unknown job only gets an evaluation."""
        known = self._server.state.jobs.get((namespace, job_id))
        mint = self._mint()
        subject = known or Job(namespace=namespace, id=job_id, priority=self._server.config.job_default_priority)
        evaluation = evaluation_of(subject, status.TRIGGER_JOB_DEREGISTER, mint, priority=eval_priority)
        if known is None:
            applied = await self._server.propose(UpsertEvaluations(evaluations=(evaluation,)))
            return JobRegistered(eval_id=evaluation.id, eval_create_index=applied.index, index=applied.index)
        if no_shutdown_delay:
            live = await self._allocs_of(known, lambda alloc: not is_client_terminal(alloc))
            await self._mark(live, DesiredTransition(no_shutdown_delay=True), mint)
        applied = await self._server.propose(
            DeregisterJob(
                namespace=namespace,
                job_id=job_id,
                purge=purge,
                evaluation=None if known.is_template else evaluation,
                submit_time=mint.now,
            )
        )
        return JobRegistered(
            eval_id="" if known.is_template else evaluation.id,
            eval_create_index=0 if known.is_template else applied.index,
            job_modify_index=applied.index,
            index=applied.index,
        )

    async def evaluate(self, namespace: str, job_id: str, *, force_reschedule: bool = False) -> JobRegistered:
        """Have a job scheduled again; `force_reschedule` replaces failed allocations at once."""
        job = self._find(namespace, job_id, "job not found")
        if job.periodic is not None:
            raise Invalid("can't evaluate periodic job")
        if job.is_template:
            raise Invalid("can't evaluate parameterized job")
        mint = self._mint()
        evaluation = evaluation_of(job, status.TRIGGER_JOB_REGISTER, mint)
        failed = await self._allocs_of(job, _may_be_rescheduled) if force_reschedule else ()
        if failed:
            index = await self._mark(failed, DesiredTransition(force_reschedule=True), mint, evaluation)
        else:
            index = (await self._server.propose(UpsertEvaluations(evaluations=(evaluation,)))).index
        return JobRegistered(
            eval_id=evaluation.id, eval_create_index=index, job_modify_index=job.job_modify_index, index=index
        )

    async def revert(
        self, namespace: str, job_id: str, version: int, *, enforce_prior_version: int | None = None
    ) -> JobRegistered:
        """Register an earlier version of a job again, as a new version."""
        self._check_enabled()
        job = self._find(namespace, job_id, f'job "{job_id}" not found')
        if enforce_prior_version is not None and enforce_prior_version != job.version:
            raise Conflict(f"Current job has version {job.version}; enforcing version {enforce_prior_version}")
        if version == job.version:
            raise Invalid("can't revert to current version")
        old = self._server.state.version(namespace, job_id, version)
        if old is None:
            raise NotFound(f'job "{job_id}" in namespace "{namespace}" at version {version} not found')
        submission = self._server.state.job_submissions.get((namespace, job_id, version))
        return await self.register(replace(old, stop=False), submission=submission)

    async def set_stability(self, namespace: str, job_id: str, version: int, *, stable: bool) -> int:
        """Mark a version as stable or not; the index of the change."""
        command = SetJobStability(namespace=namespace, job_id=job_id, version=version, stable=stable)
        return (await self._server.propose(command)).index

    async def scale(
        self,
        namespace: str,
        job_id: str,
        event: ScalingEvent,
        *,
        group: str,
        enforce_index: int | None = None,
    ) -> JobRegistered:
        """Change a group's count to the event's; without a count the event is only remembered."""
        self._check_enabled()
        job = self._find(namespace, job_id, f'job "{job_id}" not found')
        check_enforced_index(job, enforce_index)
        problem = scaling_problem(self._server.state, job, group, event.count)
        if problem:
            raise Invalid(problem)
        known, mint = job.group(group), self._mint()
        event = replace(event, time=mint.now, previous_count=known.count if known is not None else 0)
        if event.count is None:
            recorded = await self._record_scaling(job, group, event)
            return JobRegistered(job_modify_index=job.job_modify_index, index=recorded)
        stored = await self._scale_to(job, group, event, mint)
        await self._record_scaling(job, group, replace(event, eval_id=stored.eval_id or None))
        return stored

    async def _record_scaling(self, job: Job, group: str, event: ScalingEvent) -> int:
        command = RecordScalingEvent(namespace=job.namespace, job_id=job.id, group=group, event=event)
        return (await self._server.propose(command)).index

    async def _scale_to(self, job: Job, group: str, event: ScalingEvent, mint: Mint) -> JobRegistered:
        assert event.count is not None
        job = replace(scaled(job, group, event.count), submit_time=mint.now)
        problem = count_problem(job, self._server.config)
        if problem:
            raise Invalid(problem)
        evaluation = None if job.is_template else evaluation_of(job, status.TRIGGER_SCALING, mint)
        if evaluation is not None and event.message:
            evaluation = replace(evaluation, status_description=event.message)
        return await self._store(job, evaluation)

    async def dispatch(self, namespace: str, job_id: str, request: DispatchRequest = PLAIN_DISPATCH) -> JobDispatched:
        """Make a child of a parameterized job; a known idempotency token gives the child that it made before."""
        self._check_enabled()
        parent = self._server.state.jobs.get((namespace, job_id))
        problem = dispatch_problem(parent, job_id, request.payload, request.meta)
        if problem:
            raise NotFound(problem) if parent is None else Invalid(problem)
        assert parent is not None
        priority, highest = request.priority or parent.priority, self._server.config.job_max_priority
        if not 1 <= priority <= highest:
            raise Invalid(f"Job priority must be between [1, {highest}]")
        if request.idempotency_token:
            for child in children_by_token(self._server.state, parent, request.idempotency_token):
                index = self._server.state.index
                return JobDispatched(dispatched_job_id=child.id, job_create_index=child.create_index, index=index)
        mint = self._mint()
        child_id = dispatch_id(job_id, template=request.id_prefix, at=mint.now, suffix=mint.new_id())
        child = dispatched_child(
            parent, child_id, payload=request.payload, meta=request.meta, token=request.idempotency_token
        )
        stored = await self._store_child(replace(child, priority=priority), mint)
        return JobDispatched(
            dispatched_job_id=child_id,
            eval_id=stored.eval_id,
            eval_create_index=stored.eval_create_index,
            job_create_index=stored.index,
            index=stored.index,
        )

    async def force_periodic(self, namespace: str, job_id: str) -> JobRegistered:
        """Launch a periodic job now, beside its schedule."""
        self._check_enabled()
        job = self._find(namespace, job_id, "job not found")
        if job.periodic is None:
            raise Invalid("can't force launch non-periodic job")
        launched = await self.launch(job, self._server.env.now())
        return launched or JobRegistered(index=self._server.state.index)

    async def launch(self, parent: Job, at: UnixNano) -> JobRegistered | None:
        """The periodic job's child for the time `at`; None when it ran already, or may not overlap with a live one."""
        assert parent.periodic is not None
        child = periodic_child(parent, at)
        state = self._server.state
        if parent.periodic.prohibit_overlap and has_live_child(state, parent):
            return None
        launched = None
        if child.key not in state.jobs:
            launched = await self._store_child(child, self._mint())
        await self._server.propose(RecordPeriodicLaunch(namespace=parent.namespace, job_id=parent.id, launched_at=at))
        return launched

    def validate(self, job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Everything that is wrong with the job, and what it should be warned of."""
        admission = admit(self._server.state, job, self._server.config)
        return admission.errors, admission.warnings

    async def _store(
        self,
        job: Job,
        evaluation: Evaluation | None,
        *,
        submission: JobSubmission | None = None,
        warnings: tuple[str, ...] = (),
    ) -> JobRegistered:
        command = RegisterJob(
            job=job,
            evaluation=evaluation,
            submission=submission,
            tracked_versions=self._server.config.job_tracked_versions,
        )
        applied = await self._server.propose(command)
        stored = self._server.state.jobs.get(job.key)
        return JobRegistered(
            eval_id=evaluation.id if evaluation is not None else "",
            eval_create_index=applied.index if evaluation is not None else 0,
            job_modify_index=stored.job_modify_index if stored is not None else applied.index,
            index=applied.index,
            warnings=warnings,
        )

    async def _store_child(self, child: Job, mint: Mint) -> JobRegistered:
        child = replace(child, submit_time=mint.now)
        trigger = status.TRIGGER_PERIODIC if not child.dispatched else status.TRIGGER_JOB_REGISTER
        evaluation = None if child.is_template else evaluation_of(child, trigger, mint)
        return await self._store(child, evaluation)

    async def _mark(
        self, alloc_ids: Sequence[str], transition: DesiredTransition, mint: Mint, evaluation: Evaluation | None = None
    ) -> int:
        """Store what is wanted of allocations in commands of some each; the evaluation comes with the last of them."""
        index = self._server.state.index
        async for part in self._server.writer.turns.slices(alloc_ids, MARKED_TOGETHER):
            is_last = part[-1] == alloc_ids[-1]
            command = SetDesiredTransitions(
                transitions=dict.fromkeys(part, transition),
                evaluations=(evaluation,) if is_last and evaluation is not None else (),
                now=mint.now,
            )
            index = (await self._server.propose(command)).index
        return index

    async def _allocs_of(self, job: Job, wanted: Callable[[Allocation], bool]) -> tuple[str, ...]:
        """The ids of the job's allocations that are wanted."""
        found: list[str] = []
        async for part in self._server.writer.turns.slices(self._server.state.allocs.each_where("job", job.key)):
            found += [alloc.id for alloc in part if wanted(alloc)]
        return tuple(found)

    def _find(self, namespace: str, job_id: str, text: str) -> Job:
        job = self._server.state.jobs.get((namespace, job_id))
        if job is None:
            raise NotFound(text)
        return job

    def _check_enabled(self) -> None:
        if self._server.state.scheduler_config.reject_job_registration:
            raise PermissionDenied(DISABLED)

    def _mint(self) -> Mint:
        return Mint(self._server.env.now(), self._server.env.uuid)


def _may_be_rescheduled(alloc: Allocation) -> bool:
    """The allocation has failed, and nothing replaces it yet or is about to."""
    return (
        alloc.client_status == status.CLIENT_FAILED
        and not alloc.next_allocation
        and not alloc.desired_transition.force_reschedule
    )


def check_enforced_index(known: Job | None, enforced: int | None) -> None:
    """Raise Conflict unless the job was last written at `enforced`; 0 means that it must not exist."""
    if enforced is None:
        return
    prefix = f"Enforcing job modify index {enforced}"
    if enforced == 0 and known is not None:
        raise Conflict(f"{prefix}: job already exists")
    if enforced != 0 and known is None:
        raise Conflict(f"{prefix}: job does not exist")
    if known is not None and known.job_modify_index != enforced:
        raise Conflict(f"{prefix}: job exists with conflicting job modify index: {known.job_modify_index}")


def multi_error(errors: tuple[str, ...]) -> str:
    """Problems as one text, in the form that clients of the API know."""
    count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    lines = "".join(f"\t* {error}\n" for error in errors)
    return f"{count} occurred:\n{lines}\n"
