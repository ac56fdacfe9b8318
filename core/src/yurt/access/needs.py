"""Needs: the permission that a route or a call requires of its caller, as data.

A need is a leaf (a capability in a namespace, node read, management) or a combination of leaves. `satisfied` holds the
meaning of the combinations, so that an authority decides about leaves only. Capabilities carry Nomad's names.

`each_row` is the need of a list that filters instead of refusing: anyone may ask, and sees the rows for which the inner
need is satisfied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import assert_never

from yurt.sdk.value import Value


class Capability(StrEnum):
    """A capability that a policy may grant in a namespace."""

    LIST_JOBS = "list-jobs"
    PARSE_JOB = "parse-job"
    READ_JOB = "read-job"
    SUBMIT_JOB = "submit-job"
    REGISTER_JOB = "register-job"
    REVERT_JOB = "revert-job"
    DEREGISTER_JOB = "deregister-job"
    PURGE_JOB = "purge-job"
    EVALUATE_JOB = "evaluate-job"
    PLAN_JOB = "plan-job"
    TAG_JOB_VERSION = "tag-job-version"
    STABLE_JOB = "stable-job"
    DISPATCH_JOB = "dispatch-job"
    FORCE_PERIODIC_JOB = "force-periodic-job"
    SCALE_JOB = "scale-job"
    READ_JOB_SCALING = "read-job-scaling"
    LIST_SCALING_POLICIES = "list-scaling-policies"
    READ_SCALING_POLICY = "read-scaling-policy"
    FAIL_DEPLOYMENT = "fail-deployment"
    PAUSE_DEPLOYMENT = "pause-deployment"
    PROMOTE_DEPLOYMENT = "promote-deployment"
    UNBLOCK_DEPLOYMENT = "unblock-deployment"
    CANCEL_DEPLOYMENT = "cancel-deployment"
    SET_ALLOC_HEALTH_DEPLOYMENT = "set-alloc-health-deployment"
    READ_LOGS = "read-logs"
    READ_FS = "read-fs"
    ALLOC_EXEC = "alloc-exec"
    ALLOC_NODE_EXEC = "alloc-node-exec"
    ALLOC_LIFECYCLE = "alloc-lifecycle"
    GC_ALLOCATION = "gc-allocation"
    PAUSE_ALLOCATION = "pause-allocation"
    DELETE_SERVICE_REGISTRATION = "delete-service-registration"
    CSI_REGISTER_PLUGIN = "csi-register-plugin"
    CSI_LIST_VOLUME = "csi-list-volume"
    CSI_READ_VOLUME = "csi-read-volume"
    CSI_WRITE_VOLUME = "csi-write-volume"
    CSI_MOUNT_VOLUME = "csi-mount-volume"
    HOST_VOLUME_CREATE = "host-volume-create"
    HOST_VOLUME_REGISTER = "host-volume-register"
    HOST_VOLUME_READ = "host-volume-read"
    HOST_VOLUME_WRITE = "host-volume-write"
    HOST_VOLUME_DELETE = "host-volume-delete"
    SUBMIT_RECOMMENDATION = "submit-recommendation"
    SENTINEL_OVERRIDE = "sentinel-override"


class VariableCapability(StrEnum):
    """A capability that a policy may grant on a path of variables."""

    LIST = "list"
    READ = "read"
    WRITE = "write"
    DESTROY = "destroy"


class NodePoolCapability(StrEnum):
    """A capability that a policy may grant on a node pool."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"


class HostVolumeMountCapability(StrEnum):
    """A capability that a policy may grant on host volumes of a name."""

    MOUNT_READONLY = "mount-readonly"
    MOUNT_READWRITE = "mount-readwrite"


class OperatorCapability(StrEnum):
    """A capability that a policy may grant to operators apart from the levels read and write."""

    SNAPSHOT_SAVE = "snapshot-save"
    LICENSE_READ = "license-read"
    KEYRING_ROTATE = "keyring-rotate"
    KEYRING_READ = "keyring-read"
    KEYRING_DELETE = "keyring-delete"


class Area(StrEnum):
    """Parts of the cluster about which a policy has one level."""

    NODE = "node"
    AGENT = "agent"
    OPERATOR = "operator"
    QUOTA = "quota"
    PLUGIN = "plugin"


class Level(StrEnum):
    """The levels of an area; `list` exists for plugins only."""

    LIST = "list"
    READ = "read"
    WRITE = "write"


class Anonymous(Value):
    """Nothing: anyone may ask."""


class Authenticated(Value):
    """Any authenticated caller."""


class Management(Value):
    """A management token."""


class InNamespace(Value):
    """One of these capabilities in the namespace of the object."""

    capabilities: tuple[Capability, ...]


class AnyInNamespace(Value):
    """Any capability in the namespace, and no denial."""


class OnVariable(Value):
    """A capability on the path of a variable."""

    capability: VariableCapability


class InNodePool(Value):
    """A capability on the node pool."""

    capability: NodePoolCapability


class OnHostVolume(Value):
    """One of these capabilities on host volumes of the name."""

    capabilities: tuple[HostVolumeMountCapability, ...]


class AsWorkload(Value):
    """The workload identity of a task or service in the namespace of the object; no policy grants it."""


class AsNode(Value):
    """The identity or the secret of the node that the request is about; no policy grants it."""


class AtLevel(Value):
    """A level in an area of the cluster."""

    area: Area
    level: Level


class AsOperator(Value):
    """A capability of operators."""

    capability: OperatorCapability


class AnyOf(Value):
    """At least one of these."""

    needs: tuple[Need, ...]


class AllOf(Value):
    """Each of these."""

    needs: tuple[Need, ...]


class EachRow(Value):
    """No need of the request itself; each row of the answer needs this."""

    need: Need


Leaf = (
    Anonymous
    | Authenticated
    | Management
    | InNamespace
    | AnyInNamespace
    | OnVariable
    | InNodePool
    | OnHostVolume
    | AsWorkload
    | AsNode
    | AtLevel
    | AsOperator
)
Need = Leaf | AnyOf | AllOf | EachRow

ANONYMOUS = Anonymous()
AUTHENTICATED = Authenticated()
MANAGEMENT = Management()
ANY_CAPABILITY = AnyInNamespace()
WORKLOAD = AsWorkload()
OWN_NODE = AsNode()
NODE_READ, NODE_WRITE = AtLevel(area=Area.NODE, level=Level.READ), AtLevel(area=Area.NODE, level=Level.WRITE)
AGENT_READ, AGENT_WRITE = AtLevel(area=Area.AGENT, level=Level.READ), AtLevel(area=Area.AGENT, level=Level.WRITE)
OPERATOR_READ = AtLevel(area=Area.OPERATOR, level=Level.READ)
OPERATOR_WRITE = AtLevel(area=Area.OPERATOR, level=Level.WRITE)
QUOTA_READ, QUOTA_WRITE = AtLevel(area=Area.QUOTA, level=Level.READ), AtLevel(area=Area.QUOTA, level=Level.WRITE)
PLUGIN_LIST, PLUGIN_READ = AtLevel(area=Area.PLUGIN, level=Level.LIST), AtLevel(area=Area.PLUGIN, level=Level.READ)


def namespace(*capabilities: Capability) -> InNamespace:
    """One of the capabilities in the namespace of the object."""
    assert capabilities, "a need in a namespace names a capability"
    return InNamespace(capabilities=capabilities)


def variable(capability: VariableCapability) -> OnVariable:
    """A capability on the path of the variable."""
    return OnVariable(capability=capability)


def node_pool(capability: NodePoolCapability) -> InNodePool:
    """A capability on the node pool."""
    return InNodePool(capability=capability)


def host_volume(*capabilities: HostVolumeMountCapability) -> OnHostVolume:
    """One of the capabilities on host volumes of the name."""
    assert capabilities, "a need on a host volume names a capability"
    return OnHostVolume(capabilities=capabilities)


def operator(capability: OperatorCapability) -> AsOperator:
    """A capability of operators."""
    return AsOperator(capability=capability)


def any_of(*needs: Need) -> AnyOf:
    """At least one of the needs."""
    assert len(needs) > 1, "a choice has at least two needs"
    return AnyOf(needs=needs)


def all_of(*needs: Need) -> AllOf:
    """Each of the needs."""
    assert len(needs) > 1, "a combination has at least two needs"
    return AllOf(needs=needs)


def each_row(need: Need) -> EachRow:
    """A list that filters: each row needs this, the request itself needs nothing."""
    assert not isinstance(need, EachRow), "a row is filtered once"
    return EachRow(need=need)


def satisfied(need: Need, holds: Callable[[Leaf], bool], *, has_row: bool) -> bool:
    """Whether a need is satisfied when `holds` decides its leaves; `has_row` is False before a row is known."""
    match need:
        case AnyOf(needs=parts):
            return any(satisfied(part, holds, has_row=has_row) for part in parts)
        case AllOf(needs=parts):
            return all(satisfied(part, holds, has_row=has_row) for part in parts)
        case EachRow(need=inner):
            return not has_row or satisfied(inner, holds, has_row=True)
        case Anonymous():
            return True
        case (
            Authenticated() | Management() | InNamespace() | AnyInNamespace() | OnVariable() | InNodePool()
            | OnHostVolume() | AsWorkload() | AsNode() | AtLevel() | AsOperator()
        ):  # fmt: skip
            return holds(need)
        case _:
            assert_never(need)


def is_scoped(need: Need) -> bool:
    """Whether the answer depends on a namespace, a variable's path, a node pool, a host volume or a node."""
    match need:
        case AnyOf(needs=parts) | AllOf(needs=parts):
            return any(map(is_scoped, parts))
        case EachRow(need=inner):
            return is_scoped(inner)
        case InNamespace() | AnyInNamespace() | OnVariable() | InNodePool() | OnHostVolume() | AsWorkload() | AsNode():
            return True
        case Anonymous() | Authenticated() | Management() | AtLevel() | AsOperator():
            return False
        case _:
            assert_never(need)


_WORDS: Mapping[type, str] = {
    Anonymous: "none",
    Authenticated: "any token",
    Management: "management",
    AnyInNamespace: "any capability in the namespace",
    AsWorkload: "workload identity of the namespace",
    AsNode: "identity of the node",
}


def describe(need: Need) -> str:
    """The need in the words of policies: `submit-job or register-job`, `node:read`, `none`."""
    match need:
        case AnyOf(needs=parts):
            return " or ".join(map(_nested, parts))
        case AllOf(needs=parts):
            return " and ".join(map(_nested, parts))
        case EachRow(need=inner):
            return f"each row: {describe(inner)}"
        case Anonymous() | Authenticated() | Management() | AnyInNamespace() | AsWorkload() | AsNode():
            return _WORDS[type(need)]
        case InNamespace(capabilities=capabilities):
            return " or ".join(capabilities)
        case OnVariable(capability=capability):
            return f"variables:{capability}"
        case InNodePool(capability=capability):
            return f"node_pool:{capability}"
        case OnHostVolume(capabilities=capabilities):
            return " or ".join(f"host_volume:{each}" for each in capabilities)
        case AtLevel(area=area, level=level):
            return f"{area}:{level}"
        case AsOperator(capability=capability):
            return f"operator:{capability}"
        case _:
            assert_never(need)


def _nested(need: Need) -> str:
    text = describe(need)
    return f"({text})" if " or " in text or " and " in text else text
