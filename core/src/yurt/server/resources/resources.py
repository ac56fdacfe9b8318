"""The operations and duties of all resources of one server."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from yurt.server.resources.acl_policies import AclPolicies
from yurt.server.resources.acl_tokens import AclTokens
from yurt.server.resources.allocs import Allocs
from yurt.server.resources.csi_volumes import CsiVolumes
from yurt.server.resources.deployments import Deployments
from yurt.server.resources.gangs import GangRendezvous
from yurt.server.resources.host_volumes import HostVolumes
from yurt.server.resources.jobs import Jobs
from yurt.server.resources.nodes import Nodes
from yurt.server.resources.services import Services
from yurt.server.resources.system import System
from yurt.server.resources.variables import Variables

if TYPE_CHECKING:
    from yurt.server.resources.region_replication import Replication


@dataclasses.dataclass(frozen=True, slots=True)
class ServerResources:
    """The operations and duties, one object for each resource."""

    jobs: Jobs
    allocs: Allocs
    deployments: Deployments
    nodes: Nodes
    services: Services
    variables: Variables
    host_volumes: HostVolumes
    csi_volumes: CsiVolumes
    gangs: GangRendezvous
    acl_tokens: AclTokens
    acl_policies: AclPolicies
    system: System
    replication: Replication | None
    """The replication from another region; None in the authoritative region."""
