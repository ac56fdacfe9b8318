"""Changes to jobs. Each names the job's namespace, in which the caller needs the capability."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from yurt.access import Access, Capability, Scope, needs
from yurt.server.log.log_writer import Committed
from yurt.server.operations.job_rights import require_contents, require_override
from yurt.server.requests import DispatchRequest, RetainedFields, SubmitterRights
from yurt.server.resources.jobs import Jobs
from yurt.server.results import JobDispatched, JobPlanned, JobRegistered
from yurt.state.tables import JobKey
from yurt.structs.commands import AnyCommand, SetJobVersionTag
from yurt.structs.job import Job, JobSubmission, JobVersionTag, ScalingEvent

PURGE: Final = needs.namespace(Capability.SUBMIT_JOB, Capability.PURGE_JOB)


class JobOperations:
    """Operations on jobs for one caller."""

    __slots__ = ("_access", "_jobs", "_propose")

    def __init__(self, jobs: Jobs, propose: Callable[[AnyCommand], Awaitable[Committed]], access: Access) -> None:
        self._jobs = jobs
        self._propose = propose
        self._access = access

    async def register(
        self, job: Job, *, submission: JobSubmission | None, enforce_index: int | None, eval_priority: int,
        keep: RetainedFields, overrides_policies: bool = False,
    ) -> JobRegistered:  # fmt: skip
        """Register a job and evaluate it; `keep` selects what stays from the running one.

        Its volumes and plugins need rights of their own (`job_rights`).
        """
        self._require(job.namespace)
        require_contents(self._access, job)
        require_override(self._access, job.namespace, is_requested=overrides_policies)
        return await self._jobs.register(
            job, submission=submission, enforce_index=enforce_index, eval_priority=eval_priority, keep=keep,
            rights=self._rights,
        )  # fmt: skip

    async def plan(self, job: Job, *, diff: bool, overrides_policies: bool = False) -> JobPlanned:
        """The plan for registering the job; changes nothing, so its volumes and plugins need no rights."""
        self._require(job.namespace)
        require_override(self._access, job.namespace, is_requested=overrides_policies)
        return await self._jobs.plan(job, diff=diff, rights=self._rights)

    async def validate(self, job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """All errors and warnings of the job."""
        self._require(job.namespace)
        return await self._jobs.validate(job, rights=self._rights)

    async def deregister(
        self, key: JobKey, *, purge: bool, eval_priority: int, no_shutdown_delay: bool
    ) -> JobRegistered:
        """Stop a job, or delete it with `purge`, which needs more rights."""
        access = self._access.narrowed(PURGE) if purge else self._access
        access.require(Scope(namespace=key[0]))
        return await self._jobs.deregister(
            *key, purge=purge, eval_priority=eval_priority, no_shutdown_delay=no_shutdown_delay
        )

    async def evaluate(self, key: JobKey, *, force_reschedule: bool) -> JobRegistered:
        """Evaluate a job again."""
        self._require(key[0])
        return await self._jobs.evaluate(*key, force_reschedule=force_reschedule)

    async def force_periodic(self, key: JobKey) -> JobRegistered:
        """Launch a periodic job now."""
        self._require(key[0])
        return await self._jobs.force_periodic(*key, is_management=self._access.is_management)

    async def dispatch(self, key: JobKey, request: DispatchRequest) -> JobDispatched:
        """Create a child of a parameterized job."""
        self._require(key[0])
        return await self._jobs.dispatch(*key, request, is_management=self._access.is_management)

    async def revert(self, key: JobKey, version: int, *, enforce_prior_version: int | None) -> JobRegistered:
        """Register an earlier version of a job as a new version."""
        self._require(key[0])
        return await self._jobs.revert(
            key,
            version,
            enforce_prior_version=enforce_prior_version,
            rights=self._rights,
            # The caller may have no right to read the version, so the refusal does not reveal its content.
            check=lambda job: require_contents(self._access, job, names_part=False),
        )

    async def set_stability(self, key: JobKey, version: int, *, stable: bool) -> int:
        """Set a version's stability; returns the index."""
        self._require(key[0])
        return await self._jobs.set_stability(*key, version, stable=stable)

    async def scale(self, key: JobKey, event: ScalingEvent, *, group: str, enforce_index: int | None) -> JobRegistered:
        """Set a group's count from the event."""
        self._require(key[0])
        return await self._jobs.scale(
            *key, event, group=group, enforce_index=enforce_index, is_management=self._access.is_management
        )

    async def tag(self, key: JobKey, name: str, tag: JobVersionTag, *, version: int | None) -> int:
        """Tag a version, the newest one by default; returns the index."""
        self._require(key[0])
        command = SetJobVersionTag(namespace=key[0], job_id=key[1], name=name, version=version, tag=tag)
        return (await self._propose(command)).index

    async def untag(self, key: JobKey, name: str) -> int:
        """Remove a version's tag; returns the index."""
        self._require(key[0])
        return (await self._propose(SetJobVersionTag(namespace=key[0], job_id=key[1], name=name))).index

    @property
    def _rights(self) -> SubmitterRights:
        return SubmitterRights(is_management=self._access.is_management, reads_nodes=self._access.reads_nodes)

    def _require(self, namespace: str) -> None:
        self._access.require(Scope(namespace=namespace))
