"""The tables of the state, one declaration each; docs/howto/add-a-table.md explains how to add one.

Their order is that of snapshots and digests: a new table comes at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, TypeAlias

from yurt.access import Capability, Scope, needs
from yurt.access.needs import VariableCapability
from yurt.sdk.value import replace
from yurt.state.row_codecs import AllocRows, JobKeys, PlainRows
from yurt.state.schema import OnRestore, RenamedTable, SearchContext, TableSchema, TableSet, Topic
from yurt.structs.accounting.usage_day import UsageDay, UsageDayKey
from yurt.structs.acl import (
    ACLAuthMethod,
    ACLBindingRule,
    ACLBootstrap,
    ACLPolicy,
    ACLRevocation,
    ACLRole,
    ACLToken,
    EndedSession,
    OneTimeToken,
    hash_of_secret,
    without_method_secrets,
)
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import (
    AutopilotConfiguration,
    ClusterMetadata,
    DriverSchema,
    Namespace,
    NodePool,
    PeriodicLaunch,
    RestoreChunk,
    SchedulerConfiguration,
)
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import JobScalingEvents, JobSubmission
from yurt.structs.node import Node
from yurt.structs.plan import StagedPlan
from yurt.structs.predicates import (
    CSI,
    alloc_index,
    asks_csi,
    is_eval_terminal,
    is_stopping,
    is_terminal,
    providers_on,
    runs_csi_plugin,
)
from yurt.structs.queueing.gang import GangKey, GangRoster
from yurt.structs.queueing.usage import QueueUsage
from yurt.structs.quota import QuotaSpec
from yurt.structs.service import ServiceRegistration
from yurt.structs.status import CLIENT_TERMINAL, DESIRED_RUN
from yurt.structs.summary import JobSummary
from yurt.structs.variable import EncryptedVariable, RootKeyMeta
from yurt.structs.volumes.csi import CSIVolume, without_secrets
from yurt.structs.volumes.host import HostVolume, TaskGroupHostVolumeClaim
from yurt.structs.volumes.request import source_of

JobKey = tuple[str, str]
VersionKey = tuple[str, str, int]

DEFAULT_NAMESPACE: Final = "default"
BUILT_IN_POOLS: Final = ("all", "default")
FIRST_INDEX: Final = 1
"""The index of the rows that exist before the first command."""

_READ_JOB: Final = needs.namespace(Capability.READ_JOB)
_ID_AND_NAME: Final = attrgetter("namespace", "id", "name")


def _built_in_namespace() -> Namespace:
    return Namespace(
        name=DEFAULT_NAMESPACE,
        description="Default shared namespace",
        create_index=FIRST_INDEX,
        modify_index=FIRST_INDEX,
    )


def _built_in_pools() -> tuple[tuple[str, NodePool], ...]:
    texts = {"all": "Node pool with all nodes in the cluster.", "default": "Default node pool."}
    return tuple(
        (name, NodePool(name=name, description=texts[name], create_index=FIRST_INDEX, modify_index=FIRST_INDEX))
        for name in BUILT_IN_POOLS
    )


def _stopping(alloc: Allocation) -> str | None:
    return alloc.namespace if is_stopping(alloc) else None


SEVERAL_VOLUMES: Final = ""
"""Stands for the volume of allocations that claim several CSI volumes: an index has one key for a row."""


def _claiming(alloc: Allocation) -> tuple[str, str] | None:
    """The namespace and name of the CSI volume that an allocation claims."""
    if alloc.job is None or not asks_csi(alloc.job) or alloc.client_status in CLIENT_TERMINAL:
        return None
    group = alloc.job.group(alloc.task_group)
    requests = [] if group is None else [request for request in group.volumes.values() if request.type == CSI]
    if not requests:
        return None
    sources = {source_of(request, alloc_index(alloc.name)) for request in requests}
    return alloc.namespace, sources.pop() if len(sources) == 1 else SEVERAL_VOLUMES


class Tables(TableSet):
    """All tables: the attributes of an instance are its rows, those of the class their declarations."""

    __slots__ = ()

    jobs = TableSchema(
        JobKeys(list[tuple[JobKey, int]]),
        key_of=lambda job: job.key,
        namespace_of=lambda _, job: job.namespace,
        indexes={
            "parent": lambda job: (job.namespace, job.parent_id) if job.parent_id else None,
            "token": lambda job: (
                (job.namespace, job.parent_id, job.dispatch_idempotency_token)
                if job.dispatch_idempotency_token
                else None
            ),
            "system": lambda job: "system" if job.type in ("system", "sysbatch") else None,
            "csi": lambda job: job.namespace if asks_csi(job) else None,
            "csi_plugin": lambda job: "csi_plugin" if runs_csi_plugin(job) else None,
            "periodic": lambda job: "periodic" if job.periodic is not None else None,
            "scaled": lambda job: "scaled" if any(group.scaling is not None for group in job.task_groups) else None,
        },
        topic=Topic("Job", key=lambda job: job.id, needs=_READ_JOB),
        search=SearchContext("jobs", _ID_AND_NAME, is_shown_by_name=True),
    )
    """Current jobs by (namespace, id)."""

    job_versions = TableSchema(
        JobKeys(list[tuple[VersionKey, int]]),
        key_of=lambda job: (job.namespace, job.id, job.version),
        namespace_of=lambda _, job: job.namespace,
        indexes={"job": lambda job: (job.namespace, job.id)},
    )
    """Retained versions by (namespace, id, version)."""

    job_summaries = TableSchema(
        PlainRows(list[tuple[JobKey, JobSummary]]),
        key_of=lambda summary: (summary.namespace, summary.job_id),
        namespace_of=lambda _, summary: summary.namespace,
    )
    """Summaries by (namespace, id)."""

    job_submissions = TableSchema(
        PlainRows(list[tuple[VersionKey, JobSubmission]]),
        key_of=None,
        namespace_of=lambda key, _: key[0],
    )
    """Submitted texts by (namespace, id, version)."""

    scaling_events = TableSchema(
        PlainRows(list[tuple[JobKey, JobScalingEvents]]),
        key_of=lambda events: (events.namespace, events.job_id),
        namespace_of=lambda _, events: events.namespace,
    )
    """Scaling events by (namespace, id)."""

    nodes = TableSchema(
        PlainRows(list[tuple[str, Node]]),
        key_of=lambda node: node.id,
        namespace_of=None,
        topic=Topic(
            "Node",
            key=lambda node: node.id,
            needs=needs.NODE_READ,
            place=lambda node: Scope(node_pool=node.node_pool),
            shown=lambda node: replace(node, secret_id=""),
        ),
        indexes={
            "secret": lambda node: hash_of_secret(node.secret_id) if node.secret_id else None,
            "service_providers": providers_on,
        },
        search=SearchContext("nodes", lambda node: ("", node.id, node.name), has_uuids=True, is_shown_by_name=True),
        columns_work=8,
    )
    """Nodes by id; `secret` finds one by the hash of its secret, `service_providers` those with the same providers."""

    evals = TableSchema(
        PlainRows(list[tuple[str, Evaluation]]),
        key_of=lambda evaluation: evaluation.id,
        namespace_of=lambda _, evaluation: evaluation.namespace,
        indexes={
            "job": lambda evaluation: (evaluation.namespace, evaluation.job_id),
            "live": lambda evaluation: (
                None if is_eval_terminal(evaluation) else (evaluation.namespace, evaluation.job_id)
            ),
            "status": lambda evaluation: None if is_eval_terminal(evaluation) else evaluation.status,
        },
        topic=Topic(
            "Evaluation",
            key=lambda evaluation: evaluation.id,
            needs=_READ_JOB,
            filter_keys=lambda evaluation: (evaluation.job_id, evaluation.deployment_id),
        ),
        search=SearchContext("evals", lambda each: (each.namespace, each.id, ""), has_uuids=True),
    )
    """Evaluations by id; `live` indexes those that are not terminal by job, `status` all by status."""

    allocs = TableSchema(
        AllocRows(),
        key_of=lambda alloc: alloc.id,
        namespace_of=lambda _, alloc: alloc.namespace,
        # Extractors in C: a plan writes thousands of rows.
        indexes={
            "node": attrgetter("node_id"),
            "job": attrgetter("namespace", "job_id"),
            "live": lambda alloc: None if is_terminal(alloc) else (alloc.namespace, alloc.job_id),
            "eval": attrgetter("eval_id"),
            "deployment": attrgetter("deployment_id"),
            "stopping": lambda alloc: None if alloc.desired_status == DESIRED_RUN else _stopping(alloc),
            "csi": _claiming,
        },
        topic=Topic(
            "Allocation",
            key=lambda alloc: alloc.id,
            needs=_READ_JOB,
            filter_keys=lambda alloc: (alloc.job_id, alloc.deployment_id),
            shown=lambda alloc: replace(alloc, job=None),
        ),
        search=SearchContext("allocs", _ID_AND_NAME, has_uuids=True, is_shown_by_name=True),
        columns_work=1,
    )
    """Allocations by id; `live` indexes those that are not terminal by job, `stopping` indexes by namespace those that
    the servers have stopped and whose clients have not reported the end, `csi` those that have not ended and claim
    CSI volumes by namespace and volume."""

    deployments = TableSchema(
        PlainRows(list[tuple[str, Deployment]]),
        key_of=lambda deployment: deployment.id,
        namespace_of=lambda _, deployment: deployment.namespace,
        indexes={"job": lambda deployment: (deployment.namespace, deployment.job_id)},
        topic=Topic(
            "Deployment",
            key=lambda deployment: deployment.id,
            needs=_READ_JOB,
            filter_keys=lambda deployment: (deployment.job_id,),
        ),
        search=SearchContext("deployment", lambda each: (each.namespace, each.id, ""), has_uuids=True),
    )
    """Deployments by id."""

    services = TableSchema(
        PlainRows(list[tuple[str, ServiceRegistration]]),
        key_of=lambda service: service.id,
        namespace_of=lambda _, service: service.namespace,
        indexes={
            "name": lambda service: (service.namespace, service.service_name),
            "job": lambda service: (service.namespace, service.job_id),
            "alloc": lambda service: service.alloc_id,
            "node": lambda service: service.node_id,
        },
        topic=Topic(
            "Service",
            key=lambda service: service.id,
            needs=_READ_JOB,
            filter_keys=lambda each: (each.job_id, each.service_name),
        ),
    )
    """Registered service instances by id."""

    variables = TableSchema(
        PlainRows(list[tuple[tuple[str, str], EncryptedVariable]]),
        key_of=lambda variable: variable.key,
        namespace_of=lambda _, variable: variable.namespace,
        indexes={
            "root_key": lambda variable: variable.key_id,
            "locked": lambda variable: "locked" if variable.lock is not None else None,
            "namespace": attrgetter("namespace"),
        },
        topic=Topic(
            "Variable",
            key=lambda variable: variable.path,
            needs=needs.variable(VariableCapability.LIST),
            place=lambda variable: Scope(variable=variable.path),
            payload="Metadata",
            shown=lambda variable: replace(variable, data=b""),
            has_deletion_flag=True,
        ),
        search=SearchContext("vars", lambda variable: (variable.namespace, variable.path, "")),
    )
    """Variables by (namespace, path)."""

    root_keys = TableSchema(
        PlainRows(list[tuple[str, RootKeyMeta]]),
        key_of=lambda key: key.key_id,
        namespace_of=None,
    )
    """Root keys by id, without the secret key material."""

    namespaces = TableSchema(
        PlainRows(list[tuple[str, Namespace]]),
        key_of=lambda namespace: namespace.name,
        namespace_of=lambda _, namespace: namespace.name,
        indexes={"quota": attrgetter("quota")},
        search=SearchContext("namespaces", lambda namespace: ("", namespace.name, namespace.name)),
        built_in=((DEFAULT_NAMESPACE, _built_in_namespace()),),
    )
    """Namespaces by name; `default` always exists. `quota` finds those that name a quota."""

    node_pools = TableSchema(
        PlainRows(list[tuple[str, NodePool]]),
        key_of=lambda pool: pool.name,
        namespace_of=None,
        topic=Topic("NodePool", key=lambda pool: pool.name, needs=needs.MANAGEMENT),
        search=SearchContext("node_pools", lambda pool: ("", pool.name, pool.name)),
        indexes={"queue": lambda pool: "" if pool.batch_queue is None else pool.batch_queue.type},
        built_in=_built_in_pools(),
    )
    """Node pools by name; `default` and `all` always exist. `queue` finds those with a queue, by its type."""

    scheduler_configurations = RenamedTable(
        PlainRows(list[tuple[str, SchedulerConfiguration]]),
        key_of=lambda _: "",
        namespace_of=None,
        stored_as="scheduler_config",
    )
    """The scheduler's configuration under the key "", once an operator has set it."""

    autopilot_configurations = RenamedTable(
        PlainRows(list[tuple[str, AutopilotConfiguration]]),
        key_of=lambda _: "",
        namespace_of=None,
        stored_as="autopilot_config",
    )
    """The autopilot configuration under the key "", once an operator has set it."""

    periodic_launches = TableSchema(
        PlainRows(list[tuple[JobKey, PeriodicLaunch]]),
        key_of=lambda launch: (launch.namespace, launch.id),
        namespace_of=lambda _, launch: launch.namespace,
    )
    """The last launches of periodic jobs by (namespace, id)."""

    schemas = TableSchema(
        PlainRows(list[tuple[tuple[str, str], DriverSchema]]),
        key_of=lambda schema: (schema.driver, schema.digest),
        namespace_of=None,
    )
    """The options that drivers accept, by (driver, digest)."""

    restore_chunks = TableSchema(
        PlainRows(list[tuple[tuple[str, int], RestoreChunk]]),
        key_of=None,
        namespace_of=None,
        on_restore=OnRestore.KEEP,
    )
    """Pieces of a snapshot that is being restored, by (restore, number)."""

    staged_plans = TableSchema(
        PlainRows(list[tuple[tuple[str, int], StagedPlan]]),
        key_of=None,
        namespace_of=lambda _, staged: staged.plan.namespace,
        on_restore=OnRestore.CLEAR,
    )
    """Parts of plans that wait for their other parts, by (plan, number)."""

    csi_volumes = TableSchema(
        PlainRows(list[tuple[tuple[str, str], CSIVolume]]),
        key_of=lambda volume: (volume.namespace, volume.id),
        namespace_of=lambda _, volume: volume.namespace,
        topic=Topic(
            "CSIVolume",
            key=lambda volume: volume.id,
            needs=needs.namespace(Capability.CSI_READ_VOLUME),
            filter_keys=lambda volume: (volume.id, volume.name, volume.plugin_id),
            payload="Volume",
            shown=without_secrets,
        ),
        search=SearchContext("volumes", _ID_AND_NAME),
    )
    """Registered CSI volumes by (namespace, id)."""

    host_volumes = TableSchema(
        PlainRows(list[tuple[str, HostVolume]]),
        key_of=lambda volume: volume.id,
        namespace_of=lambda _, volume: volume.namespace,
        indexes={"node": lambda volume: volume.node_id, "name": lambda volume: volume.name},
        topic=Topic(
            "HostVolume",
            key=lambda volume: volume.id,
            needs=needs.namespace(Capability.HOST_VOLUME_READ),
            filter_keys=lambda volume: (volume.id, volume.name, volume.plugin_id),
            payload="Volume",
        ),
        search=SearchContext("host_volumes", _ID_AND_NAME, has_uuids=True, is_shown_by_name=True),
    )
    """Dynamic host volumes by id."""

    host_volume_claims = TableSchema(
        PlainRows(list[tuple[str, TaskGroupHostVolumeClaim]]),
        key_of=lambda claim: claim.id,
        namespace_of=lambda _, claim: claim.namespace,
        indexes={
            "job": lambda claim: (claim.namespace, claim.job_id),
            "group": lambda claim: (claim.namespace, claim.job_id, claim.task_group_name),
            "volume": lambda claim: claim.volume_id,
        },
    )
    """Claims of sticky host volumes by id."""

    acl_policies = TableSchema(
        PlainRows(list[tuple[str, ACLPolicy]]),
        key_of=lambda policy: policy.name,
        namespace_of=None,
        indexes={"namespace": lambda policy: "" if policy.job_acl is None else policy.job_acl.namespace},
        topic=Topic("ACLPolicy", key=lambda policy: policy.name, needs=needs.MANAGEMENT),
    )
    """Policies by name; `namespace` indexes those attached to workloads by their namespace."""

    acl_roles = TableSchema(
        PlainRows(list[tuple[str, ACLRole]]),
        key_of=lambda role: role.id,
        namespace_of=None,
        indexes={"name": lambda role: role.name},
        topic=Topic("ACLRole", key=lambda role: role.id, needs=needs.MANAGEMENT, filter_keys=lambda role: (role.name,)),
    )
    """Roles by id."""

    acl_tokens = TableSchema(
        PlainRows(list[tuple[str, ACLToken]]),
        key_of=lambda token: token.accessor_id,
        namespace_of=None,
        indexes={
            "secret": lambda token: token.secret_hash,
            "expiring": lambda token: "expiring" if token.expiration_time else None,
        },
        topic=Topic(
            "ACLToken",
            key=lambda token: token.accessor_id,
            needs=needs.MANAGEMENT,
            shown=lambda each: replace(each, secret_hash=""),
        ),
    )
    """Tokens by accessor id; `secret` finds them by the hash of their secret."""

    acl_auth_methods = TableSchema(
        PlainRows(list[tuple[str, ACLAuthMethod]]),
        key_of=lambda method: method.name,
        namespace_of=None,
        indexes={
            "default": lambda method: "default" if method.default else None,
            "root_key": lambda method: method.key_id or None,
        },
        topic=Topic(
            "ACLAuthMethod",
            key=lambda method: method.name,
            needs=needs.MANAGEMENT,
            payload="AuthMethod",
            shown=without_method_secrets,
        ),
    )
    """Login methods by name."""

    acl_binding_rules = TableSchema(
        PlainRows(list[tuple[str, ACLBindingRule]]),
        key_of=lambda rule: rule.id,
        namespace_of=None,
        indexes={"auth_method": lambda rule: rule.auth_method},
        topic=Topic(
            "ACLBindingRule",
            key=lambda rule: rule.id,
            needs=needs.MANAGEMENT,
            filter_keys=lambda rule: (rule.auth_method,),
        ),
    )
    """Binding rules by id."""

    one_time_tokens = TableSchema(
        PlainRows(list[tuple[str, OneTimeToken]]),
        key_of=lambda token: token.secret_hash,
        namespace_of=None,
        indexes={"accessor": lambda token: token.accessor_id},
        on_restore=OnRestore.CLEAR,
    )
    """One-time tokens by the hash of their secret."""

    acl_bootstrap = TableSchema(
        PlainRows(list[tuple[str, ACLBootstrap]]),
        key_of=lambda _: "",
        namespace_of=None,
        on_restore=OnRestore.MERGE,
    )
    """The index of the creation of the first management token, under the key "". A restore does not set it back: the
    file that once permitted another bootstrap would permit it again."""

    acl_revocations = TableSchema(
        PlainRows(list[tuple[str, ACLRevocation]]),
        key_of=lambda revocation: revocation.accessor_id,
        namespace_of=None,
        on_restore=OnRestore.MERGE,
    )
    """Revoked tokens by accessor id; "" represents the dropped ones."""

    quotas = TableSchema(
        PlainRows(list[tuple[str, QuotaSpec]]),
        key_of=lambda spec: spec.name,
        namespace_of=None,
        indexes={"parent": attrgetter("parent")},
        search=SearchContext("quotas", lambda spec: ("", spec.name, spec.name)),
    )
    """Quotas by name; `parent` finds those below another."""

    queue_usages = TableSchema(
        PlainRows(list[tuple[tuple[str, tuple[str, ...]], QueueUsage]]),
        key_of=lambda row: (row.pool, row.tenant),
        namespace_of=lambda _, row: row.tenant[0],
        indexes={"pool": attrgetter("pool")},
    )
    """The usage of tenants in pools with a fair-share queue, by (pool, tenant)."""

    ended_sessions = TableSchema(
        PlainRows(list[tuple[str, EndedSession]]),
        key_of=lambda session: session.id,
        namespace_of=None,
        indexes={"token": lambda session: session.secret_hash},
        on_restore=OnRestore.MERGE,
    )
    """Ended browser sessions by id, kept for as long as their cookies would be valid."""

    gang_rosters = TableSchema(
        PlainRows(list[tuple[GangKey, GangRoster]]),
        key_of=lambda roster: roster.key,
        namespace_of=lambda key, _: key[0],
        indexes={"job": lambda roster: roster.key[:2]},
    )
    """The rosters of the present generations of gangs with a rendezvous, by (namespace, job, group)."""

    usage_days = TableSchema(
        PlainRows(list[tuple[UsageDayKey, UsageDay]]),
        key_of=lambda row: (row.namespace, row.day),
        namespace_of=lambda _, row: row.namespace,
        indexes={"namespace": attrgetter("namespace")},
    )
    """The usage of allocations that ended on a day, by (namespace, day)."""

    cluster_metadata = TableSchema(
        PlainRows(list[tuple[str, ClusterMetadata]]),
        key_of=lambda _: "",
        namespace_of=None,
        on_restore=OnRestore.KEEP,
    )
    """The ID of the cluster under the key "". A restore keeps it: clients tell by it that the log is another one, and a
    cluster that restores another one's snapshot, in its place or next to it, has a log of its own."""


AnyTable: TypeAlias = TableSchema[Any, Any]
"""A table whose row type does not matter."""
TABLES: Final[Mapping[str, AnyTable]] = {
    schema.name: schema for schema in vars(Tables).values() if isinstance(schema, TableSchema)
}
"""All tables by name, in the order of snapshots and digests."""
