"""Commands on jobs."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import UnixNano, no_entries
from yurt.structs.commands.base import Command, EventType
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, JobSubmission, JobVersionTag, ScalingEvent
from yurt.structs.plan import DeploymentUpdate


class RegisterJob(Command, tag=True):
    """Store a job, as a new version if its specification changed; the evaluation commits with it (invariant B1).

    At most `tracked_versions` untagged versions are kept. What a user registers is based on the job that it replaces.
    """

    event_type = EventType("JobRegistered")

    job: Job
    evaluation: Evaluation | None = None
    submission: JobSubmission | None = None
    deployment_update: DeploymentUpdate | None = None
    tracked_versions: int = 6


class DeregisterJob(Command, tag=True):
    """Stop a job, or with `purge` delete it and its versions; a missing job only gets the evaluation."""

    event_type = EventType("JobDeregistered", publishes_deletion=True)

    namespace: str
    job_id: str
    purge: bool = False
    evaluation: Evaluation | None = None
    submit_time: UnixNano = UnixNano(0)
    priority_default: int = 50
    """The priority of the evaluation of a missing job."""


class ScaleJob(Command, tag=True):
    """Set a group's count and record the scaling event; without a count, only record it.

    The job's groups may ask for `count_max` allocations together.
    """

    event_type = EventType("JobRegistered")

    namespace: str
    job_id: str
    group: str
    event: ScalingEvent
    enforce_index: int | None = None
    evaluation: Evaluation | None = None
    count_max: int = 0
    tracked_versions: int = 6
    is_management: bool = False
    """Whether the caller has a management token, which permits it while job registrations are disabled."""


class DispatchJob(Command, tag=True):
    """Register a child of a parameterized job, unless one with the same idempotency token exists."""

    event_type = EventType("JobRegistered")

    namespace: str
    job_id: str
    child_id: str
    payload: bytes = b""
    meta: Mapping[str, str] = no_entries()
    idempotency_token: str = ""
    priority: int = 0
    evaluation: Evaluation | None = None
    now: UnixNano = UnixNano(0)
    is_management: bool = False
    """Whether the caller has a management token, which permits it while job registrations are disabled."""


class LaunchPeriodicJob(Command, tag=True):
    """Register the child of a periodic job for a time, and record the launch.

    Nothing is registered when the child is there already, or when it may not overlap with one that is not over. A
    scheduled launch carries the index of the specification whose schedule it follows; a forced one carries 0.
    """

    event_type = EventType("JobRegistered")

    namespace: str
    job_id: str
    launched_at: UnixNano
    specification_index: int = 0
    evaluation: Evaluation | None = None
    now: UnixNano = UnixNano(0)
    is_management: bool = False
    """Whether the caller has a management token, which permits it while job registrations are disabled."""


class EvaluateJob(Command, tag=True):
    """Create an evaluation of a job."""

    event_type = EventType("EvaluationUpdated")

    namespace: str
    job_id: str
    evaluation: Evaluation


class SetJobStability(Command, tag=True):
    """Mark a version as stable or not; creates no new version."""

    namespace: str
    job_id: str
    version: int
    stable: bool


class SetJobVersionTag(Command, tag=True):
    """Tag a version (None: the current one), or remove a tag; tagged versions are not garbage-collected."""

    namespace: str
    job_id: str
    name: str
    version: int | None = 0
    tag: JobVersionTag | None = None


class RecordScalingEvent(Command, tag=True):
    """Record a scaling attempt of a group; the newest 20 are kept."""

    namespace: str
    job_id: str
    group: str
    event: ScalingEvent


class FormGang(Command, tag=True):
    """Start a generation of a gang with its waiting allocations, in the order of their ranks.

    Rejected unless `after` is the last generation (0: there is none), and these are all allocations of the group that
    are to run.
    """

    namespace: str
    job_id: str
    group: str
    after: int
    members: tuple[str, ...]


class DeleteJobs(Command, tag=True):
    """Delete dead jobs, given as (namespace, id), as garbage collection."""

    event_type = EventType("JobBatchDeregistered", publishes_deletion=True)

    keys: tuple[tuple[str, str], ...]


JobCommand = (
    RegisterJob
    | DeregisterJob
    | ScaleJob
    | DispatchJob
    | LaunchPeriodicJob
    | EvaluateJob
    | SetJobStability
    | SetJobVersionTag
    | RecordScalingEvent
    | FormGang
    | DeleteJobs
)
