"""The operations of one request, by resource. Each is a small object that names its dependencies.

Each operation checks for itself whether the caller may change the object, so that no handler can forget it: a body may
name a namespace that the dispatcher has not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from yurt.access import Access
from yurt.server.clients.introduction import Introductions
from yurt.server.config import ServerConfig
from yurt.server.keys.root_keys import RootKeys
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.replica import Replica
from yurt.server.operations.acl import AclPolicyOperations, AclTokenOperations, SessionOperations
from yurt.server.operations.cluster import NamespaceOperations, NodeOperations, NodePoolOperations, QuotaOperations
from yurt.server.operations.jobs import JobOperations
from yurt.server.operations.operator import (
    IntroductionOperations,
    RootKeyOperations,
    SnapshotOperations,
    SystemOperations,
)
from yurt.server.operations.scheduling import AllocationOperations, DeploymentOperations, EvaluationOperations
from yurt.server.operations.services import ServiceOperations
from yurt.server.operations.variables import VariableOperations
from yurt.server.operations.volumes import CsiVolumeOperations, HostVolumeOperations
from yurt.server.read_models import ReadModels
from yurt.server.resources.resources import ServerResources
from yurt.server.scheduling.scheduling import Scheduling
from yurt.state import Snapshot

if TYPE_CHECKING:
    from yurt.server.keys.sessions import Sessions
    from yurt.server.login.service import Logins
    from yurt.server.operations.explanations import Explanations
    from yurt.server.views.live_rows import LiveRows


class OperationDependencies(msgspec.Struct, frozen=True):
    """The parts that carry operations out; made once per server."""

    replica: Replica
    leader: CurrentLeader
    config: ServerConfig
    scheduling: Scheduling
    resources: ServerResources
    root_keys: RootKeys
    introductions: Introductions
    logins: Callable[[], Logins]
    """Created on first use."""
    read_models: ReadModels
    sessions: Sessions | None
    """None while access control is off."""


class Operations:
    """Makes the operations of a resource on demand."""

    __slots__ = ("_access", "_parts")

    def __init__(self, parts: OperationDependencies, access: Access) -> None:
        self._parts = parts
        self._access = access

    @property
    def jobs(self) -> JobOperations:
        """Jobs and their versions."""
        return JobOperations(self._parts.resources.jobs, self._parts.replica.propose, self._access)

    @property
    def allocations(self) -> AllocationOperations:
        """Allocations."""
        return AllocationOperations(self._parts.resources.allocs, self._parts.replica.writer, self._access)

    @property
    def deployments(self) -> DeploymentOperations:
        """Deployments."""
        return DeploymentOperations(self._parts.resources.deployments, self._parts.replica.writer, self._access)

    @property
    def nodes(self) -> NodeOperations:
        """Nodes."""
        return NodeOperations(self._parts.resources.nodes, self._access)

    @property
    def services(self) -> ServiceOperations:
        """Service registrations."""
        return ServiceOperations(self._parts.resources.services, self._access)

    @property
    def variables(self) -> VariableOperations:
        """Variables."""
        return VariableOperations(self._parts.resources.variables, self._access)

    @property
    def host_volumes(self) -> HostVolumeOperations:
        """Dynamic host volumes and the claims of sticky ones."""
        return HostVolumeOperations(self._parts.resources.host_volumes, self._access)

    @property
    def csi_volumes(self) -> CsiVolumeOperations:
        """CSI volumes."""
        return CsiVolumeOperations(self._parts.resources.csi_volumes, self._access)

    @property
    def evaluations(self) -> EvaluationOperations:
        """Evaluations."""
        return EvaluationOperations(self._parts.replica.writer)

    @property
    def live_rows(self) -> LiveRows:
        """The rows of the read models."""
        from yurt.server.views.live_rows import LiveRows

        return LiveRows(self._parts.read_models, self._access)

    def explanations(self, state: Snapshot) -> Explanations:
        """Explanations of a state."""
        from yurt.server.operations.explanations import Explanations

        parts, scheduling = self._parts, self._parts.scheduling
        return Explanations(
            state,
            self._access,
            config=parts.config,
            limits=scheduling.limits,
            replay=scheduling.replays.replay,
        )

    @property
    def system(self) -> SystemOperations:
        """Configuration and garbage collection."""
        parts = self._parts
        return SystemOperations(parts.resources.system, parts.scheduling.workers)

    @property
    def root_keys(self) -> RootKeyOperations:
        """Root keys."""
        return RootKeyOperations(self._parts.root_keys)

    @property
    def introductions(self) -> IntroductionOperations:
        """Introduction of new clients."""
        return IntroductionOperations(self._parts.introductions)

    @property
    def snapshots(self) -> SnapshotOperations:
        """Archives of the complete state."""
        return SnapshotOperations(self._parts.replica, self._parts.leader)

    @property
    def namespaces(self) -> NamespaceOperations:
        """Namespaces."""
        return NamespaceOperations(self._parts.replica.writer, self._parts.config.region)

    @property
    def quotas(self) -> QuotaOperations:
        """Quotas."""
        return QuotaOperations(self._parts.replica.writer)

    @property
    def node_pools(self) -> NodePoolOperations:
        """Node pools."""
        replica = self._parts.replica
        return NodePoolOperations(replica.writer, self._parts.config.region, self._access, now=replica.env.now)

    @property
    def acl_tokens(self) -> AclTokenOperations:
        """Tokens."""
        return AclTokenOperations(self._parts.resources.acl_tokens, self._access)

    @property
    def sessions(self) -> SessionOperations:
        """Sessions of browsers; only with access control."""
        assert self._parts.sessions is not None, "sessions are of tokens, so there is access control"
        return SessionOperations(self._parts.sessions)

    @property
    def logins(self) -> Logins:
        """Logins, for anybody."""
        return self._parts.logins()

    @property
    def acl_policies(self) -> AclPolicyOperations:
        """Policies, roles, login methods and binding rules."""
        return AclPolicyOperations(self._parts.resources.acl_policies, self._access)
