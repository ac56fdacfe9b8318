"""The operations of one request, by resource. Each is a small object that names what it works with.

An operation decides itself whether the caller may change the object: a body may name a namespace that the dispatcher
has not seen. So no handler can forget it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.access import Access
from yurt.server.clients.introduction import Introductions
from yurt.server.operations.acl import AclPolicyOperations, AclTokenOperations
from yurt.server.operations.cluster import NamespaceOperations, NodeOperations, NodePoolOperations
from yurt.server.operations.explanations import Explanations
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
from yurt.server.resources.acl_policies import AclPolicies
from yurt.server.resources.acl_tokens import AclTokens
from yurt.server.resources.csi_volumes import CsiVolumes
from yurt.state import Snapshot

if TYPE_CHECKING:
    from yurt.server.server import Server


class Operations:
    """Makes the operations of a resource when a handler asks for them."""

    __slots__ = ("_access", "_server")

    def __init__(self, server: Server, access: Access) -> None:
        self._server = server
        self._access = access

    @property
    def jobs(self) -> JobOperations:
        """Jobs and their versions."""
        return JobOperations(self._server.jobs, self._server.propose, self._access)

    @property
    def allocations(self) -> AllocationOperations:
        """Allocations."""
        return AllocationOperations(self._server.allocs, self._server.writer, self._access)

    @property
    def deployments(self) -> DeploymentOperations:
        """Deployments."""
        return DeploymentOperations(self._server.deployments, self._server.writer, self._access)

    @property
    def nodes(self) -> NodeOperations:
        """Nodes."""
        return NodeOperations(self._server.nodes, self._access)

    @property
    def services(self) -> ServiceOperations:
        """Service registrations."""
        return ServiceOperations(self._server.services, self._access)

    @property
    def variables(self) -> VariableOperations:
        """Variables."""
        return VariableOperations(self._server.variables, self._access)

    @property
    def host_volumes(self) -> HostVolumeOperations:
        """Dynamic host volumes and the claims of sticky ones."""
        return HostVolumeOperations(self._server.host_volumes, self._access)

    @property
    def csi_volumes(self) -> CsiVolumeOperations:
        """CSI volumes."""
        return CsiVolumeOperations(CsiVolumes(self._server), self._access)

    @property
    def evaluations(self) -> EvaluationOperations:
        """Evaluations."""
        return EvaluationOperations(self._server.writer)

    def explanations(self, state: Snapshot) -> Explanations:
        """Explanations on a state."""
        server = self._server
        return Explanations(state, self._access, config=server.config, limits=server.limits, replay=server.replay)

    @property
    def system(self) -> SystemOperations:
        """Configuration and garbage collection."""
        return SystemOperations(self._server.system, self._server.writer)

    @property
    def root_keys(self) -> RootKeyOperations:
        """Root keys."""
        return RootKeyOperations(self._server.root_keys)

    @property
    def introductions(self) -> IntroductionOperations:
        """Introduction of new clients."""
        return IntroductionOperations(Introductions(self._server))

    @property
    def snapshots(self) -> SnapshotOperations:
        """Archives of the whole state."""
        return SnapshotOperations(self._server)

    @property
    def namespaces(self) -> NamespaceOperations:
        """Namespaces."""
        return NamespaceOperations(self._server.writer, self._server.config.region)

    @property
    def node_pools(self) -> NodePoolOperations:
        """Node pools."""
        return NodePoolOperations(self._server.writer, self._server.config.region, self._access)

    @property
    def acl_tokens(self) -> AclTokenOperations:
        """Tokens."""
        return AclTokenOperations(AclTokens(self._server), self._access)

    @property
    def acl_policies(self) -> AclPolicyOperations:
        """Policies, roles, login methods and binding rules."""
        return AclPolicyOperations(AclPolicies(self._server), self._access)
