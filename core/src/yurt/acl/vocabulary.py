"""The words of the policy language: blocks, levels, capabilities, and what one of them includes.

Names are Nomad's. A level (`policy = "read"`) is a short-hand for capabilities where a block has some, and a level of
its own elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from yurt.access.needs import (
    Area,
    Capability,
    HostVolumeMountCapability,
    NodePoolCapability,
    OperatorCapability,
    VariableCapability,
)

DENY: Final = "deny"
NAMESPACE, NODE_POOL, HOST_VOLUME = "namespace", "node_pool", "host_volume"
VARIABLES, PATH, SENTINEL = "variables", "path", "sentinel"
POLICY, CAPABILITIES = "policy", "capabilities"
LABELLED: Final = (NAMESPACE, NODE_POOL, HOST_VOLUME)
"""Blocks with a label, of which a policy may have many."""
AREAS: Final[Mapping[str, tuple[str, ...]]] = {
    Area.AGENT: (DENY, "read", "write", "scale"),
    Area.NODE: (DENY, "read", "write", "scale"),
    Area.OPERATOR: (DENY, "read", "write", "scale"),
    Area.QUOTA: (DENY, "read", "write", "scale"),
    Area.PLUGIN: (DENY, "list", "read", "write"),
    SENTINEL: (DENY, "read", "write"),
}
"""Blocks without a label, one of each in a policy, with their levels. `sentinel` is Nomad Enterprise's: it is checked
and grants nothing."""
BLOCKS: Final = (*LABELLED, *AREAS)
RANKS: Final = {DENY: 4, "write": 3, "read": 2, "list": 1}
"""Of several levels in an area the highest applies; `scale` counts as none."""

_READ_NAMESPACE: Final = (
    Capability.LIST_JOBS, Capability.PARSE_JOB, Capability.READ_JOB, Capability.CSI_LIST_VOLUME,
    Capability.CSI_READ_VOLUME, Capability.READ_JOB_SCALING, Capability.LIST_SCALING_POLICIES,
    Capability.READ_SCALING_POLICY, Capability.HOST_VOLUME_READ,
)  # fmt: skip
_WRITE_NAMESPACE: Final = (
    *_READ_NAMESPACE, Capability.SCALE_JOB, Capability.SUBMIT_JOB, Capability.DISPATCH_JOB, Capability.READ_LOGS,
    Capability.READ_FS, Capability.ALLOC_EXEC, Capability.ALLOC_LIFECYCLE, Capability.CSI_MOUNT_VOLUME,
    Capability.CSI_WRITE_VOLUME, Capability.SUBMIT_RECOMMENDATION, Capability.HOST_VOLUME_CREATE,
)  # fmt: skip
_SCALE_NAMESPACE: Final = (
    Capability.LIST_SCALING_POLICIES, Capability.READ_SCALING_POLICY, Capability.READ_JOB_SCALING,
    Capability.SCALE_JOB, Capability.READ_JOB, Capability.SUBMIT_RECOMMENDATION,
)  # fmt: skip

LEVELS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    NAMESPACE: {
        DENY: (DENY,),
        "read": _READ_NAMESPACE,
        "write": _WRITE_NAMESPACE,
        "scale": _SCALE_NAMESPACE,
    },
    NODE_POOL: {
        DENY: (DENY,),
        "read": (NodePoolCapability.READ,),
        "write": tuple(NodePoolCapability),
        "scale": (),
    },
    HOST_VOLUME: {
        DENY: (DENY,),
        "read": (HostVolumeMountCapability.MOUNT_READONLY,),
        "write": tuple(HostVolumeMountCapability),
        "scale": (),
    },
    Area.OPERATOR: {
        DENY: (DENY,),
        "read": (OperatorCapability.LICENSE_READ, OperatorCapability.KEYRING_READ),
        "write": tuple(OperatorCapability),
        "scale": (),
    },
    SENTINEL: {DENY: (), "read": (), "write": ()},
}
"""The capabilities that a level includes, in blocks that have capabilities."""

GRANTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    NAMESPACE: (DENY, *Capability),
    NODE_POOL: (DENY, *NodePoolCapability),
    HOST_VOLUME: (DENY, *HostVolumeMountCapability),
    Area.OPERATOR: (DENY, *OperatorCapability),
    SENTINEL: (DENY, "sentinel-read", "sentinel-submit", "sentinel-delete"),
    PATH: (DENY, *VariableCapability),
}
"""The capabilities that a block may name."""

INCLUDED: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    NAMESPACE: {
        Capability.HOST_VOLUME_WRITE: (
            Capability.HOST_VOLUME_REGISTER, Capability.HOST_VOLUME_CREATE, Capability.HOST_VOLUME_DELETE,
            Capability.HOST_VOLUME_READ,
        ),
        Capability.HOST_VOLUME_REGISTER: (Capability.HOST_VOLUME_CREATE, Capability.HOST_VOLUME_READ),
        Capability.HOST_VOLUME_CREATE: (Capability.HOST_VOLUME_READ,),
    },
    PATH: {VariableCapability.READ: (VariableCapability.LIST,)},
}  # fmt: skip
"""The capabilities that another one includes."""

PASSES: Final[Mapping[str, tuple[str, ...]]] = {
    Capability.SUBMIT_JOB: (
        Capability.REGISTER_JOB, Capability.REVERT_JOB, Capability.DEREGISTER_JOB, Capability.PURGE_JOB,
        Capability.EVALUATE_JOB, Capability.PLAN_JOB, Capability.TAG_JOB_VERSION, Capability.STABLE_JOB,
        Capability.SCALE_JOB, Capability.PARSE_JOB, Capability.FORCE_PERIODIC_JOB, Capability.GC_ALLOCATION,
        Capability.FAIL_DEPLOYMENT, Capability.PAUSE_DEPLOYMENT, Capability.PROMOTE_DEPLOYMENT,
        Capability.SET_ALLOC_HEALTH_DEPLOYMENT, Capability.DELETE_SERVICE_REGISTRATION,
    ),
    Capability.DISPATCH_JOB: (Capability.FORCE_PERIODIC_JOB,),
    Capability.READ_JOB: (Capability.READ_JOB_SCALING,),
    Capability.READ_FS: (Capability.READ_LOGS,),
    Capability.CSI_READ_VOLUME: (Capability.CSI_LIST_VOLUME,),
}  # fmt: skip
"""Capabilities that another one makes unnecessary: each route that accepts one of them accepts that one too."""
