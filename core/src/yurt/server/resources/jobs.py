"""Operations on jobs: register, plan, stop, evaluate, revert, scale, dispatch, launch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from yurt import scheduler
from yurt.fsm.basis import expectation
from yurt.fsm.eval_triggers import Mint, requested_evaluation
from yurt.fsm.jobs import REGISTRATION_DISABLED, enforced_index_conflict
from yurt.rules.bounds import is_costly
from yurt.rules.child_jobs import dispatch_id, instance_of, periodic_child_id
from yurt.rules.periodic import next_launch
from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied, Reason
from yurt.sdk.value import UnixNano, replace
from yurt.server.config import ServerConfig
from yurt.server.log.log_writer import Committed
from yurt.server.log.replica import Replica
from yurt.server.requests import (
    NO_RETAINED_FIELDS,
    NO_RIGHTS,
    PLAIN_DISPATCH,
    DispatchRequest,
    RetainedFields,
    SubmitterRights,
)
from yurt.server.resources.admission import admitted, inherited, with_defaults, with_descent_of
from yurt.server.results import JobDispatched, JobPlanned, JobRegistered
from yurt.server.scheduling.plan_annotations import annotated
from yurt.server.scheduling.work_sources import attempt_size
from yurt.server.scheduling.worker import THREAD_COUNT
from yurt.state import Snapshot
from yurt.state.tables import JobKey
from yurt.structs import status
from yurt.structs.alloc import Allocation, DesiredTransition
from yurt.structs.commands import (
    DeregisterJob,
    DispatchJob,
    EvaluateJob,
    LaunchPeriodicJob,
    RegisterJob,
    ScaleJob,
    SetDesiredTransitions,
    SetJobStability,
)
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.diff import JobDiff
from yurt.structs.job import Job, JobSubmission, ScalingEvent
from yurt.structs.predicates import is_client_terminal

if TYPE_CHECKING:
    from yurt.scheduler.capacity.limits import LimitsOf

INSTANCE_EXISTS: Final = "an instance of this second exists; launch the next one a second later"
HELD_BACK: Final = (
    "another instance runs, and the job has prohibit_overlap: forced launches ignore it once all servers "
    "have this version"
)
MARKED_TOGETHER: Final = 200
"""Allocations that one command marks."""


def allow_any(job: Job) -> None:
    """The check for registrations without a caller: every content is permitted."""


class Jobs:
    """Operations on jobs."""

    def __init__(self, replica: Replica, config: ServerConfig, limits: Mapping[str, LimitsOf]) -> None:
        self._replica = replica
        self._config = config
        self._limits = limits

    async def register(
        self,
        job: Job,
        *,
        submission: JobSubmission | None = None,
        enforce_index: int | None = None,
        eval_priority: int = 0,
        keep: RetainedFields = NO_RETAINED_FIELDS,
        rights: SubmitterRights = NO_RIGHTS,
    ) -> JobRegistered:
        """Register a job and evaluate it; `keep` selects what stays. Raises Invalid with every problem."""
        warnings: tuple[str, ...] = ()
        if submission is not None and len(submission.source) > self._config.job_max_source_size:
            warnings = ("the job's source is too large to be kept with it",)
            submission = None
        mint = self._replica.mint()
        evaluation = requested_evaluation(job.key, status.TRIGGER_JOB_REGISTER, mint, priority=eval_priority)
        advice: tuple[str, ...] = ()

        async def decision(state: Snapshot) -> RegisterJob:
            nonlocal advice
            stored = state.jobs.get(job.key)
            _check_enabled(state, is_management=rights.is_management)
            _check_enforced_index(stored, enforce_index)
            ready = inherited(with_defaults(state, job), stored, keep)
            advice = await self._admit(state, ready, rights)
            return self._registration(state, replace(ready, submit_time=mint.now), evaluation, submission)

        return _registered(await self._replica.decide(decision), job.key, evaluation, (*warnings, *advice))

    async def _admit(self, state: Snapshot, job: Job, rights: SubmitterRights) -> tuple[str, ...]:
        """The warnings of an admissible job; raises Invalid with all problems otherwise."""
        admission = await admitted(state, job, self._config, reads_nodes=rights.reads_nodes)
        if admission.errors:
            raise Invalid(multi_error(admission.errors))
        return admission.warnings

    def _registration(
        self, state: Snapshot, job: Job, evaluation: Evaluation, submission: JobSubmission | None
    ) -> RegisterJob:
        """The command that registers a job admitted on a state, based on the rows that the admission read."""
        return RegisterJob(
            job=job,
            evaluation=evaluation,
            submission=submission,
            tracked_versions=self._config.job_tracked_versions,
            based_on=(
                expectation(state, "jobs", job.key),
                expectation(state, "namespaces", job.namespace),
                expectation(state, "scheduler_config", ""),
            ),
        )

    async def plan(self, job: Job, *, diff: bool, rights: SubmitterRights = NO_RIGHTS) -> JobPlanned:
        """The plan for registering the job; changes nothing.

        One that only launches others places nothing by itself: its failures are those that a child would meet now.
        """
        state = self._replica.state
        stored = state.jobs.get(job.key)
        job = with_descent_of(with_defaults(state, job), stored)
        warnings = await self._admit(state, job, rights)
        mint = self._replica.mint()
        job = replace(job, submit_time=mint.now)
        changes = await _compared(stored, job) if diff else None
        launch = next_launch(job.periodic, mint.now) if job.periodic is not None and job.periodic.enabled else None
        planned = JobPlanned(
            job_modify_index=stored.job_modify_index if stored is not None else 0,
            diff=changes,
            next_periodic_launch=launch or 0,
            warnings=warnings,
        )
        attempt = await self._attempt(state, instance_of(job), mint.now)
        planned = replace(planned, failed_tg_allocs=attempt.outcome.evaluation.failed_tg_allocs)
        if job.is_template:
            return planned
        annotations = attempt.plan.annotations
        return replace(
            planned,
            diff=annotated(changes, annotations) if changes is not None else None,
            annotations=annotations,
            created_evals=attempt.outcome.created,
        )

    async def _attempt(self, state: Snapshot, job: Job, now: UnixNano) -> scheduler.Attempt:
        """A dry run of the job's registration."""
        seed = int(self._replica.env.uuid().replace("-", ""), 16)
        attempt = partial(scheduler.dry_run, state, job, now=now, seed=seed, **self._limits)
        is_large = attempt_size(state, job) > THREAD_COUNT or is_costly(job)
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
        """Stop a job, or delete it with `purge`; an unknown job only gets an evaluation."""
        key, mint = (namespace, job_id), self._replica.mint()
        evaluation = requested_evaluation(key, status.TRIGGER_JOB_DEREGISTER, mint, priority=eval_priority)
        if no_shutdown_delay:
            live = await self._allocs_of(key, lambda alloc: not is_client_terminal(alloc))
            await self._mark(live, DesiredTransition(no_shutdown_delay=True), mint)
        command = DeregisterJob(
            namespace=namespace,
            job_id=job_id,
            purge=purge,
            evaluation=evaluation,
            submit_time=mint.now,
            priority_default=self._config.job_default_priority,
        )
        return _registered(await self._replica.propose(command), key, evaluation)

    async def evaluate(self, namespace: str, job_id: str, *, force_reschedule: bool = False) -> JobRegistered:
        """Evaluate a job; `force_reschedule` replaces failed allocations at once."""
        key, mint = (namespace, job_id), self._replica.mint()
        evaluation = requested_evaluation(key, status.TRIGGER_JOB_REGISTER, mint)
        if force_reschedule:
            failed = await self._allocs_of(key, _may_be_rescheduled)
            await self._mark(failed, DesiredTransition(force_reschedule=True), mint)
        command = EvaluateJob(namespace=namespace, job_id=job_id, evaluation=evaluation)
        return _registered(await self._replica.propose(command), key, evaluation)

    async def revert(
        self,
        key: JobKey,
        version: int,
        *,
        enforce_prior_version: int | None = None,
        rights: SubmitterRights = NO_RIGHTS,
        check: Callable[[Job], None] = allow_any,
    ) -> JobRegistered:
        """Register an earlier version of a job as a new version.

        `check` raises PermissionDenied where the caller may not register what the version contains.
        """
        mint = self._replica.mint()
        evaluation = requested_evaluation(key, status.TRIGGER_JOB_REGISTER, mint)
        advice: tuple[str, ...] = ()

        async def decision(state: Snapshot) -> RegisterJob:
            nonlocal advice
            _check_enabled(state, is_management=rights.is_management)
            old = _version_to_revert_to(state, key, version, enforce_prior_version)
            job = with_descent_of(replace(old, stop=False, submit_time=mint.now), state.jobs.get(key))
            check(job)
            advice = await self._admit(state, job, rights)
            command = self._registration(state, job, evaluation, state.job_submissions.get((*key, version)))
            return replace(command, based_on=(*command.based_on, expectation(state, "job_versions", (*key, version))))

        return _registered(await self._replica.decide(decision), key, evaluation, advice)

    async def set_stability(self, namespace: str, job_id: str, version: int, *, stable: bool) -> int:
        """Set a version's stability; returns the index."""
        command = SetJobStability(namespace=namespace, job_id=job_id, version=version, stable=stable)
        return (await self._replica.propose(command)).index

    async def scale(
        self,
        namespace: str,
        job_id: str,
        event: ScalingEvent,
        *,
        group: str,
        enforce_index: int | None = None,
        is_management: bool = False,
    ) -> JobRegistered:
        """Set a group's count from the event; an event without a count is only recorded."""
        key, mint = (namespace, job_id), self._replica.mint()
        evaluation = None
        if event.count is not None:
            evaluation = requested_evaluation(key, status.TRIGGER_SCALING, mint)
            evaluation = replace(evaluation, status_description=event.message)
        command = ScaleJob(
            namespace=namespace,
            job_id=job_id,
            group=group,
            event=replace(event, time=mint.now),
            enforce_index=enforce_index,
            evaluation=evaluation,
            count_max=self._config.job_max_count,
            tracked_versions=self._config.job_tracked_versions,
            is_management=is_management,
        )
        return _registered(await self._replica.propose(command), key, evaluation)

    async def dispatch(
        self,
        namespace: str,
        job_id: str,
        request: DispatchRequest = PLAIN_DISPATCH,
        *,
        is_management: bool = False,
    ) -> JobDispatched:
        """Create a child of a parameterized job; a used idempotency token returns its child."""
        priority_max = self._config.job_max_priority
        if request.priority and not 1 <= request.priority <= priority_max:
            raise Invalid(f"Job priority must be between [1, {priority_max}]")
        mint = self._replica.mint()
        child_id = dispatch_id(job_id, template=request.id_prefix, at=mint.now, suffix=mint.new_id())
        evaluation = requested_evaluation((namespace, child_id), status.TRIGGER_JOB_REGISTER, mint)
        command = DispatchJob(
            namespace=namespace,
            job_id=job_id,
            child_id=child_id,
            payload=request.payload,
            meta=request.meta,
            idempotency_token=request.idempotency_token,
            priority=request.priority,
            evaluation=evaluation,
            now=mint.now,
            is_management=is_management,
        )
        committed = await self._replica.propose(command)
        child = committed.state.jobs.get((namespace, child_id))
        if child is None:  # the token made another child before
            earlier = committed.state.jobs.where("token", (namespace, job_id, request.idempotency_token))[0]
            return JobDispatched(
                dispatched_job_id=earlier.id, job_create_index=earlier.create_index, index=committed.index
            )
        stored = _registered(committed, child.key, evaluation)
        return JobDispatched(
            dispatched_job_id=child_id,
            eval_id=stored.eval_id,
            eval_create_index=stored.eval_create_index,
            job_create_index=child.create_index,
            index=committed.index,
        )

    async def force_periodic(self, namespace: str, job_id: str, *, is_management: bool = False) -> JobRegistered:
        """Launch a periodic job now, independently of its schedule and of `prohibit_overlap`.

        A launch that `apply` leaves out has no evaluation and a warning that says why.
        """
        return await self._launch((namespace, job_id), self._replica.env.now(), is_management=is_management)

    async def launch(self, parent: Job, at: UnixNano) -> JobRegistered:
        """Launch the periodic job's child for the scheduled time `at`.

        `apply` makes none when it is there already, or may not overlap with a live one. Raises Conflict when the parent
        has changed: its new schedule has its own times.
        """
        return await self._launch(parent.key, at, specification_index=parent.job_modify_index)

    async def _launch(
        self, key: JobKey, at: UnixNano, *, specification_index: int = 0, is_management: bool = False
    ) -> JobRegistered:
        namespace, job_id = key
        child_key, mint = (namespace, periodic_child_id(job_id, at)), self._replica.mint()
        evaluation = requested_evaluation(child_key, status.TRIGGER_PERIODIC, mint)
        command = LaunchPeriodicJob(
            namespace=namespace,
            job_id=job_id,
            launched_at=at,
            specification_index=specification_index,
            evaluation=evaluation,
            now=mint.now,
            is_management=is_management,
        )
        committed = await self._replica.propose(command)
        return _registered(committed, child_key, evaluation, _unlaunched(committed.state, child_key, evaluation))

    async def validate(
        self, job: Job, *, rights: SubmitterRights = NO_RIGHTS
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """All errors and warnings of the job."""
        state = self._replica.state
        admission = await admitted(state, with_defaults(state, job), self._config, reads_nodes=rights.reads_nodes)
        return admission.errors, admission.warnings

    async def _mark(self, alloc_ids: Sequence[str], transition: DesiredTransition, mint: Mint) -> None:
        """Store the desired status of allocations, in commands of limited size."""
        async for part in self._replica.turns.slices(alloc_ids, MARKED_TOGETHER):
            with suppress(NotFound):  # all of them were collected meanwhile
                command = SetDesiredTransitions(transitions=dict.fromkeys(part, transition), now=mint.now)
                await self._replica.propose(command)

    async def _allocs_of(self, key: JobKey, predicate: Callable[[Allocation], bool]) -> tuple[str, ...]:
        """The ids of a job's wanted allocations; none for a deleted job."""
        state, ids = self._replica.state, list[str]()
        allocs = state.allocs.each_where("job", key) if key in state.jobs else iter(())
        async for part in self._replica.turns.slices(allocs):
            ids += [alloc.id for alloc in part if predicate(alloc)]
        return tuple(ids)


async def _compared(stored: Job | None, job: Job) -> JobDiff:
    """The difference between two versions of a job."""
    from yurt.rules.diff import job_diff

    if is_costly(job) or (stored is not None and is_costly(stored)):
        return await asyncio.to_thread(job_diff, stored, job)
    return job_diff(stored, job)


def _may_be_rescheduled(alloc: Allocation) -> bool:
    """Whether the allocation has failed without a replacement, present or planned."""
    return (
        alloc.client_status == status.CLIENT_FAILED
        and not alloc.next_allocation
        and not alloc.desired_transition.force_reschedule
    )


def _registered(
    committed: Committed, key: JobKey, evaluation: Evaluation | None, warnings: tuple[str, ...] = ()
) -> JobRegistered:
    """The result of a job command in the API's form."""
    job = committed.state.jobs.get(key)
    stored = committed.state.evals.get(evaluation.id) if evaluation is not None else None
    return JobRegistered(
        eval_id=stored.id if stored is not None else "",
        eval_create_index=committed.index if stored is not None else 0,
        job_modify_index=job.job_modify_index if job is not None else committed.index,
        index=committed.index,
        warnings=warnings,
    )


def _unlaunched(state: Snapshot, child: JobKey, evaluation: Evaluation) -> tuple[str, ...]:
    """Why a launch made no child; empty when it made one."""
    if evaluation.id in state.evals:
        return ()
    return (INSTANCE_EXISTS if child in state.jobs else HELD_BACK,)


def _check_enabled(state: Snapshot, *, is_management: bool) -> None:
    if state.scheduler_config.reject_job_registration and not is_management:
        raise PermissionDenied(REGISTRATION_DISABLED, reason=Reason.REGISTRATION_DISABLED)


def _check_enforced_index(stored: Job | None, enforced: int | None) -> None:
    problem = enforced_index_conflict(stored, enforced)
    if problem:
        raise Conflict(problem, reason=Reason.JOB_CHANGED)


def _version_to_revert_to(state: Snapshot, key: JobKey, version: int, enforce_prior_version: int | None) -> Job:
    """The version to revert to; raises NotFound, Conflict or Invalid."""
    namespace, job_id = key
    job = state.jobs.get(key)
    if job is None:
        raise NotFound(f'job "{job_id}" not found')
    if enforce_prior_version is not None and enforce_prior_version != job.version:
        raise Conflict(f"Current job has version {job.version}; enforcing version {enforce_prior_version}")
    if version == job.version:
        raise Invalid("can't revert to current version")
    old = state.version(namespace, job_id, version)
    if old is None:
        raise NotFound(f'job "{job_id}" in namespace "{namespace}" at version {version} not found')
    return old


def multi_error(errors: tuple[str, ...]) -> str:
    """Problems as one text, in the format known to the API's clients."""
    count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    lines = "".join(f"\t* {error}\n" for error in errors)
    return f"{count} occurred:\n{lines}\n"
