"""Jobs and their task groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from yurt.sdk.value import OWN, Duration, UnixNano, Value, no_entries
from yurt.structs.constraint import Affinity, Constraint, Spread
from yurt.structs.network import NetworkResource
from yurt.structs.policies import (
    Checkpoint,
    DisconnectStrategy,
    Gang,
    MigrateStrategy,
    Requeue,
    ReschedulePolicy,
    RestartPolicy,
    UpdateStrategy,
)
from yurt.structs.resources import EphemeralDisk
from yurt.structs.service import Service
from yurt.structs.task import Consul, ScalingPolicy, Task
from yurt.structs.volumes.request import VolumeRequest


class TaskGroup(Value):
    """Tasks that are placed together on one node, `count` times."""

    name: str = ""
    count: int = 1
    constraints: tuple[Constraint, ...] = ()
    affinities: tuple[Affinity, ...] = ()
    tasks: tuple[Task, ...] = ()
    spreads: tuple[Spread, ...] = ()
    volumes: Mapping[str, VolumeRequest] = no_entries()
    restart_policy: RestartPolicy = RestartPolicy()
    disconnect: DisconnectStrategy | None = None
    reschedule_policy: ReschedulePolicy | None = None
    ephemeral_disk: EphemeralDisk = EphemeralDisk()
    update: UpdateStrategy | None = None
    migrate: MigrateStrategy | None = None
    networks: tuple[NetworkResource, ...] = ()
    meta: Mapping[str, str] = no_entries()
    services: tuple[Service, ...] = ()
    shutdown_delay: Duration = Duration(0)
    max_run_duration: Duration = Duration(0)
    stop_after_client_disconnect: Duration = Duration(0)
    max_client_disconnect: Duration = Duration(0)
    scaling: ScalingPolicy | None = None
    consul: Consul | None = None
    prevent_reschedule_on_lost: bool = False
    gang: Annotated[Gang | None, OWN] = None
    requeue: Annotated[Requeue | None, OWN] = None
    checkpoint: Annotated[Checkpoint | None, OWN] = None

    @property
    def least(self) -> int:
        """The minimum number of running allocations, without which none is placed; above 1 only for gangs."""
        if self.gang is None:
            return 0
        return min(self.gang.min or self.count, self.count)

    @property
    def canaries(self) -> int:
        """The number of canaries of an update, 0 for none; a gang's are at least as many as must run together.

        A job with fewer is refused, but the minimum of a whole gang grows when the group is scaled.
        """
        requested = self.update.canary if self.update is not None else 0
        return max(requested, self.least) if requested > 0 else 0

    @property
    def max_parallel(self) -> int:
        """The number of allocations that an update replaces at once, 0 for all; all of a group with a rendezvous.

        Its members wait for each other. A job with fewer is refused, but the group's count may grow later.
        """
        requested = self.update.max_parallel if self.update is not None else 0
        meets = self.gang is not None and self.gang.rendezvous is not None
        return max(requested, self.count) if requested > 0 and meets else requested

    def task(self, name: str) -> Task | None:
        """The task with that name, or None."""
        return next((task for task in self.tasks if task.name == name), None)


class PeriodicConfig(Value):
    """The schedule by which a periodic job launches its children."""

    enabled: bool = True
    spec: str = ""
    specs: tuple[str, ...] = ()
    spec_type: str = "cron"
    prohibit_overlap: bool = False
    time_zone: str = "UTC"


class ParameterizedJobConfig(Value):
    """The payload and metadata that a dispatch of the job may or must provide."""

    payload: str = ""
    meta_required: tuple[str, ...] = ()
    meta_optional: tuple[str, ...] = ()


class MultiregionStrategy(Value):
    """The rollout of a job over regions."""

    max_parallel: int = 0
    on_failure: str = ""


class MultiregionRegion(Value):
    """One region's share of a job."""

    name: str = ""
    count: int = 0
    datacenters: tuple[str, ...] = ()
    node_pool: str = ""
    meta: Mapping[str, str] = no_entries()


class Multiregion(Value):
    """A job that spans regions."""

    strategy: MultiregionStrategy | None = None
    regions: tuple[MultiregionRegion, ...] = ()


class JobUILink(Value):
    """A link shown with the job."""

    label: str = ""
    url: str = ""


class JobUIConfig(Value):
    """Text and links shown with the job."""

    description: str = ""
    links: tuple[JobUILink, ...] = ()


class JobVersionTag(Value):
    """A name for a job version; a tagged version is not garbage-collected."""

    name: str = ""
    description: str = ""
    tagged_time: UnixNano = UnixNano(0)


class Job(Value):
    """The user's declaration of work; after canonicalisation every field is set."""

    region: str = "global"
    namespace: str = "default"
    id: str = ""
    name: str = ""
    type: str = "service"
    priority: int = 50
    all_at_once: bool = False
    datacenters: tuple[str, ...] = ("*",)
    node_pool: str = "default"
    constraints: tuple[Constraint, ...] = ()
    affinities: tuple[Affinity, ...] = ()
    task_groups: tuple[TaskGroup, ...] = ()
    update: UpdateStrategy | None = None
    multiregion: Multiregion | None = None
    spreads: tuple[Spread, ...] = ()
    periodic: PeriodicConfig | None = None
    parameterized_job: ParameterizedJobConfig | None = None
    reschedule: ReschedulePolicy | None = None
    migrate: MigrateStrategy | None = None
    requeue: Annotated[Requeue | None, OWN] = None
    checkpoint: Annotated[Checkpoint | None, OWN] = None
    meta: Mapping[str, str] = no_entries()
    ui: JobUIConfig | None = None
    stop: bool = False
    parent_id: str = ""
    dispatched: bool = False
    dispatch_idempotency_token: str = ""
    payload: bytes = b""
    consul_namespace: str = ""
    vault_namespace: str = ""
    nomad_token_id: str = ""
    status: str = "pending"
    status_description: str = ""
    stable: bool = False
    version: int = 0
    submit_time: UnixNano = UnixNano(0)
    create_index: int = 0
    modify_index: int = 0
    job_modify_index: int = 0
    version_tag: JobVersionTag | None = None

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, id), the key of every table of jobs."""
        return (self.namespace, self.id)

    @property
    def is_template(self) -> bool:
        """Whether the job is a periodic or parameterized parent, which is never evaluated itself."""
        return self.periodic is not None or (self.parameterized_job is not None and not self.dispatched)

    def group(self, name: str) -> TaskGroup | None:
        """The group with that name, or None."""
        for group in self.task_groups:
            if group.name == name:
                return group
        return None


class JobSubmission(Value):
    """The source text with which a job was submitted."""

    source: str = ""
    format: str = ""
    variable_flags: Mapping[str, str] = no_entries()
    variables: str = ""


class ScalingEvent(Value):
    """One attempt to scale a group; `count` is None when only a message was recorded."""

    time: int = 0
    count: int | None = None
    previous_count: int = 0
    message: str = ""
    error: bool = False
    meta: Mapping[str, Any] = no_entries()
    eval_id: str | None = None
    create_index: int = 0


class JobScalingEvents(Value):
    """The newest scaling events of a job by group, newest first."""

    namespace: str = "default"
    job_id: str = ""
    scaling_events: Mapping[str, tuple[ScalingEvent, ...]] = no_entries()
    modify_index: int = 0
