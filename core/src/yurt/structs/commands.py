"""Commands: every change of the replicated state, grouped by the resource whose module in `fsm` applies them.

A command carries all that `apply` needs, ids and times included: applying reads no clock and makes no id. `SINCE`
names the first version of the log format that knows a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from yurt.sdk.value import UnixNano, Value, no_entries, wire_name
from yurt.structs.alloc import AllocDeploymentStatus, AllocNetworkStatus, DesiredTransition, TaskState
from yurt.structs.cluster import AutopilotConfiguration, Namespace, NodePool, SchedulerConfiguration
from yurt.structs.csi_volume import CSIVolume
from yurt.structs.evaluation import Evaluation
from yurt.structs.host_volume import HostVolume
from yurt.structs.job import Job, JobSubmission, JobVersionTag, ScalingEvent
from yurt.structs.node import DrainMetadata, DrainStrategy, Node, NodeEvent
from yurt.structs.plan import DeploymentUpdate, Plan
from yurt.structs.service import ServiceRegistration
from yurt.structs.variable import EncryptedVariable, RootKeyMeta

LOG_VERSION = 1


class Expectation(Value):
    """A row as the proposer of a command saw it.

    `index` is the row's modify index, for a job the index of its specification (`job_modify_index`); 0: no such row.
    """

    table: str
    key: str | tuple[str | int, ...]
    index: int = 0


class Command(Value, tag_field="$", rename=wire_name, kw_only=True):
    """Base of all commands; the tag is the class name.

    A tag that ends with SKIPPABLE says that a server of a version without that command may pass over it: nothing that
    servers must agree on may come of it.

    `based_on` names the rows that the command was decided on where the decision is too large for `apply`: when one of
    them has changed, the command is rejected as stale, and its proposer decides again on the newer state.
    """

    based_on: tuple[Expectation, ...] = ()


class RegisterJob(Command, tag=True):
    """Store a job, as a new version when its specification changed; the evaluation commits with it (invariant B1).

    At most `tracked_versions` untagged versions are kept. What a user registers is based on the job that it replaces.
    """

    job: Job
    evaluation: Evaluation | None = None
    submission: JobSubmission | None = None
    deployment_update: DeploymentUpdate | None = None
    tracked_versions: int = 6


class DeregisterJob(Command, tag=True):
    """Stop a job, or delete it and its versions when `purge`; an unknown job only gets the evaluation."""

    namespace: str
    job_id: str
    purge: bool = False
    evaluation: Evaluation | None = None
    submit_time: UnixNano = UnixNano(0)
    priority_default: int = 50
    """The priority of the evaluation of an unknown job."""


class ScaleJob(Command, tag=True):
    """Give a group the count of the event and record the event; without a count the event is only recorded.

    The job's groups may ask for `count_max` allocations together.
    """

    namespace: str
    job_id: str
    group: str
    event: ScalingEvent
    enforce_index: int | None = None
    evaluation: Evaluation | None = None
    count_max: int = 0
    tracked_versions: int = 6


class DispatchJob(Command, tag=True):
    """Register a child of a parameterized job; one that was dispatched with the same token before is kept instead."""

    namespace: str
    job_id: str
    child_id: str
    payload: bytes = b""
    meta: Mapping[str, str] = no_entries()
    idempotency_token: str = ""
    priority: int = 0
    evaluation: Evaluation | None = None
    now: UnixNano = UnixNano(0)


class LaunchPeriodicJob(Command, tag=True):
    """Register the child of a periodic job for a time, and record the launch.

    Nothing is registered when the child is there already, or when it may not overlap with one that is not over. A
    scheduled launch carries the index of the specification whose schedule it follows; a forced one carries 0.
    """

    namespace: str
    job_id: str
    launched_at: UnixNano
    specification_index: int = 0
    evaluation: Evaluation | None = None
    now: UnixNano = UnixNano(0)


class EvaluateJob(Command, tag=True):
    """Have a job scheduled again."""

    namespace: str
    job_id: str
    evaluation: Evaluation


class SetJobStability(Command, tag=True):
    """Mark a version as stable or not; no new version is made."""

    namespace: str
    job_id: str
    version: int
    stable: bool


class SetJobVersionTag(Command, tag=True):
    """Name a version, or (tag None) take the name `name` away; a tagged version is kept."""

    namespace: str
    job_id: str
    name: str
    version: int = 0
    tag: JobVersionTag | None = None


class RecordScalingEvent(Command, tag=True):
    """Remember an attempt to scale a group; the newest 20 are kept."""

    namespace: str
    job_id: str
    group: str
    event: ScalingEvent


class DeleteJobs(Command, tag=True):
    """Garbage collection of dead jobs: (namespace, id) pairs."""

    keys: tuple[tuple[str, str], ...]


class RegisterNode(Command, tag=True):
    """A client's registration: inserts, or updates what the client owns; evaluations for its jobs commit with it."""

    node: Node
    events: tuple[NodeEvent, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    create_node_pool: bool = False


class SetNodeStatus(Command, tag=True):
    """A node's status; `updated_at` in unix seconds."""

    node_id: str
    status: str
    updated_at: int
    event: NodeEvent | None = None
    evaluations: tuple[Evaluation, ...] = ()


class SetNodeEligibility(Command, tag=True):
    """Whether new allocations may be placed on a node."""

    node_id: str
    eligibility: str
    event: NodeEvent | None = None
    evaluations: tuple[Evaluation, ...] = ()


class SetNodeDrain(Command, tag=True):
    """Start, change or end a node's drain."""

    node_id: str
    strategy: DrainStrategy | None
    mark_eligible: bool = False
    last_drain: DrainMetadata | None = None
    event: NodeEvent | None = None
    evaluations: tuple[Evaluation, ...] = ()


class AddNodeEvents(Command, tag=True):
    """Events by node id."""

    events: Mapping[str, tuple[NodeEvent, ...]]


class DeleteNodes(Command, tag=True):
    """Forget nodes."""

    node_ids: tuple[str, ...]
    evaluations: tuple[Evaluation, ...] = ()


class UpsertEvaluations(Command, tag=True):
    """Create evaluations or store their new states; also the delivery-limit follow-ups and cancellations."""

    evaluations: tuple[Evaluation, ...]


class DeleteEvaluations(Command, tag=True):
    """Garbage collection of evaluations and allocations."""

    eval_ids: tuple[str, ...] = ()
    alloc_ids: tuple[str, ...] = ()


class StagePlan(Command, tag=True):
    """A part of a plan that must not be seen in parts: kept aside until the `ApplyPlan` that names it."""

    plan_id: str
    number: int
    plan: Plan


class DropStagedPlans(Command, tag=True):
    """Forget staged parts: of one plan, or of all plans."""

    plan_id: str = ""


class ApplyPlan(Command, tag=True):
    """The accepted part of a plan; evaluations of preempted jobs and the evaluation's own update commit with it.

    `staged` is the id of a plan of which `parts` parts were staged: they are applied first, all at this index.
    """

    plan: Plan
    evaluations: tuple[Evaluation, ...] = ()
    staged: str = ""
    parts: int = 0
    checked_at: int = 0
    """The index of the state against which the plan was checked; 0: it is applied as it is.

    The plan is rejected as stale when its job's specification has changed since, or a node that it places on is no
    longer ready for allocations.
    """


class AllocUpdate(Value):
    """What a client reports of one allocation."""

    id: str
    node_id: str
    client_status: str
    client_description: str = ""
    task_states: Mapping[str, TaskState] = no_entries()
    deployment_status: AllocDeploymentStatus | None = None
    network_status: AllocNetworkStatus | None = None


class UpdateAllocsFromClient(Command, tag=True):
    """Reports of clients, at time `now`; evaluations that follow from them commit with it."""

    updates: tuple[AllocUpdate, ...]
    evaluations: tuple[Evaluation, ...] = ()
    now: UnixNano = UnixNano(0)


class SetDesiredTransitions(Command, tag=True):
    """What the servers want of running allocations (drain, `alloc stop`, deployment watcher), with its evaluations."""

    transitions: Mapping[str, DesiredTransition]
    evaluations: tuple[Evaluation, ...] = ()
    now: UnixNano = UnixNano(0)


class SetDeploymentStatus(Command, tag=True):
    """End or pause a deployment; may store a reverted job and an evaluation with it."""

    update: DeploymentUpdate
    evaluation: Evaluation | None = None
    job: Job | None = None
    now: UnixNano = UnixNano(0)


class SetDeploymentAllocHealth(Command, tag=True):
    """Health of a deployment's allocations decided by an operator."""

    deployment_id: str
    healthy: tuple[str, ...] = ()
    unhealthy: tuple[str, ...] = ()
    now: UnixNano = UnixNano(0)
    update: DeploymentUpdate | None = None
    evaluation: Evaluation | None = None


class PromoteDeployment(Command, tag=True):
    """Promote the canaries of all or some groups."""

    deployment_id: str
    groups: tuple[str, ...] = ()
    evaluation: Evaluation | None = None
    now: UnixNano = UnixNano(0)


class DeleteDeployments(Command, tag=True):
    """Garbage collection of deployments."""

    deployment_ids: tuple[str, ...]


class RegisterServices(Command, tag=True):
    """Service instances of live allocations; those of allocations that are gone or ended are left out."""

    services: tuple[ServiceRegistration, ...]


class DeregisterServices(Command, tag=True):
    """Forget service instances; unknown ids are nothing to forget."""

    ids: tuple[str, ...]


class PutVariable(Command, tag=True):
    """Store a variable; with `check_index` only over the version of that index (0: only when there is none)."""

    variable: EncryptedVariable
    check_index: int | None = None
    lock_id: str = ""
    now: UnixNano = UnixNano(0)


class DeleteVariable(Command, tag=True):
    """Forget a variable; one that is not there is no error."""

    namespace: str
    path: str
    check_index: int | None = None
    lock_id: str = ""


class LockVariable(Command, tag=True):
    """Lock a variable, with new content when it has any."""

    variable: EncryptedVariable
    now: UnixNano = UnixNano(0)


class ReleaseVariableLock(Command, tag=True):
    """End a lock, because its holder wants it or because its time is over."""

    namespace: str
    path: str
    lock_id: str
    now: UnixNano = UnixNano(0)


class RekeyVariables(Command, tag=True):
    """The same variables under another root key, as far as they have not changed since."""

    variables: tuple[EncryptedVariable, ...]


class PutRootKey(Command, tag=True):
    """A root key or its new state; `is_full` has all variables of the one that was active encrypted again."""

    key: RootKeyMeta
    is_full: bool = False


class DeleteRootKeys(Command, tag=True):
    """Forget root keys, those in use only by force."""

    key_ids: tuple[str, ...]
    is_forced: bool = False


class UpsertNamespaces(Command, tag=True):
    """Create or change namespaces."""

    namespaces: tuple[Namespace, ...]


class DeleteNamespaces(Command, tag=True):
    """Delete namespaces that hold nothing."""

    names: tuple[str, ...]


class UpsertNodePools(Command, tag=True):
    """Create or change node pools."""

    pools: tuple[NodePool, ...]


class DeleteNodePools(Command, tag=True):
    """Delete node pools without nodes and jobs."""

    names: tuple[str, ...]


class PutHostVolume(Command, tag=True):
    """Store a dynamic host volume; its state follows from its node unless `keeps_state`."""

    volume: HostVolume
    now: UnixNano = UnixNano(0)
    keeps_state: bool = False


class DeleteHostVolume(Command, tag=True):
    """Forget a dynamic host volume and the claims on it."""

    namespace: str
    id: str


class DeleteHostVolumeClaim(Command, tag=True):
    """Forget a claim: the next allocation may go to another volume."""

    id: str


class UpsertVolumes(Command, tag=True):
    """Register CSI volumes, or change them."""

    volumes: tuple[CSIVolume, ...]
    now: UnixNano = UnixNano(0)


class DeleteVolumes(Command, tag=True):
    """Forget CSI volumes, by (namespace, id); those that live allocations use only by force."""

    keys: tuple[tuple[str, str], ...]
    is_forced: bool = False


class SetSchedulerConfiguration(Command, tag=True):
    """Replace the scheduler's configuration; with `check_index` only when it was last changed there."""

    configuration: SchedulerConfiguration
    check_index: int | None = None


class SetAutopilotConfiguration(Command, tag=True):
    """Replace how servers mind themselves; with `check_index` only when it was last changed there."""

    configuration: AutopilotConfiguration
    check_index: int | None = None


class RecordPeriodicLaunch(Command, tag=True):
    """The last launch of a periodic job, so that none runs twice."""

    namespace: str
    job_id: str
    launched_at: UnixNano


class StoreSchema(Command, tag=True):
    """A driver's option schema, by digest."""

    driver: str
    digest: str
    schema: Mapping[str, Any]


class StageRestore(Command, tag=True):
    """A piece of a snapshot that is to be restored; number 0 begins, and drops what another restore left."""

    restore_id: str
    number: int
    data: bytes


class FinishRestore(Command, tag=True):
    """Replace the whole state by the snapshot whose `count` pieces were staged; `digest` is their SHA-256 in hex."""

    restore_id: str
    count: int
    digest: str


class KeepAlive(Command, tag=True):
    """Nothing changes but the index."""


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
    | DeleteJobs
)
NodeCommand = RegisterNode | SetNodeStatus | SetNodeEligibility | SetNodeDrain | AddNodeEvents | DeleteNodes
EvaluationCommand = UpsertEvaluations | DeleteEvaluations
AllocCommand = StagePlan | DropStagedPlans | ApplyPlan | UpdateAllocsFromClient | SetDesiredTransitions
RestoreCommand = StageRestore | FinishRestore
ServiceCommand = RegisterServices | DeregisterServices
VariableCommand = (
    PutVariable | DeleteVariable | LockVariable | ReleaseVariableLock | RekeyVariables | PutRootKey | DeleteRootKeys
)
HostVolumeCommand = PutHostVolume | DeleteHostVolume | DeleteHostVolumeClaim
DeploymentCommand = SetDeploymentStatus | SetDeploymentAllocHealth | PromoteDeployment | DeleteDeployments
ClusterCommand = (
    UpsertNamespaces
    | DeleteNamespaces
    | UpsertNodePools
    | DeleteNodePools
    | UpsertVolumes
    | DeleteVolumes
    | SetSchedulerConfiguration
    | SetAutopilotConfiguration
    | RecordPeriodicLaunch
    | StoreSchema
    | KeepAlive
)
AnyCommand = (
    JobCommand
    | NodeCommand
    | EvaluationCommand
    | AllocCommand
    | ServiceCommand
    | VariableCommand
    | HostVolumeCommand
    | DeploymentCommand
    | ClusterCommand
    | RestoreCommand
)


class Applied(Value):
    """The command changed the state at `index`."""

    index: int


class Rejected(Value):
    """The command did not fit the state; the same on every replica.

    Kinds: not_found, conflict, invalid, denied, and stale (a row that the command is based on has changed).
    """

    kind: str
    message: str


Result = Applied | Rejected

SKIPPABLE = "?"


class _Tagged(msgspec.Struct):
    """A command of any version, as far as its tag."""

    tag: str = msgspec.field(name="$")


_KNOWN = frozenset(str(each.__struct_config__.tag) for each in get_args(AnyCommand))
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyCommand] = msgspec.msgpack.Decoder(AnyCommand)
_several = msgspec.msgpack.Decoder(tuple[AnyCommand, ...])
_parts = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])
_tagged = msgspec.msgpack.Decoder(_Tagged)


def encode_command(command: AnyCommand) -> bytes:
    """The command as one log record."""
    return _encoder.encode(command)


def decode_command(data: bytes) -> AnyCommand:
    """The inverse; raises msgspec.DecodeError for a record of a newer or broken format.

    What a newer version wrote and this one may pass over is decoded as what changes nothing.
    """
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError:
        tag = _tagged.decode(data).tag
        if tag in _KNOWN or not tag.endswith(SKIPPABLE):
            raise
    return KeepAlive()


def decode_commands(data: bytes) -> tuple[AnyCommand, ...]:
    """Commands that were encoded together; raises as `decode_command` does."""
    try:
        return _several.decode(data)
    except msgspec.ValidationError:
        return tuple(decode_command(bytes(part)) for part in _parts.decode(data))
