"""The operations and duties of all resources of one server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from yurt.server.resources.acl_policies import AclPolicies
from yurt.server.resources.acl_tokens import AclTokens
from yurt.server.resources.allocs import Allocs
from yurt.server.resources.csi_volumes import CsiVolumes
from yurt.server.resources.deployments import Deployments
from yurt.server.resources.host_volumes import HostVolumes
from yurt.server.resources.jobs import Jobs
from yurt.server.resources.nodes import Nodes
from yurt.server.resources.services import Services
from yurt.server.resources.system import System
from yurt.server.resources.variables import Variables

if TYPE_CHECKING:
    from yurt.server.log.replica import Replica
    from yurt.server.resources.gangs import GangRendezvous
    from yurt.server.resources.region_replication import Replication
    from yurt.state.watch import Watches


class LazyGangs:
    """The rendezvous of gangs, imported with the first one: most servers never have one."""

    def __init__(self, replica: Replica, watches: Watches) -> None:
        self._replica = replica
        self._watches = watches
        self._made: GangRendezvous | None = None

    def get(self) -> GangRendezvous:
        """The rendezvous."""
        if self._made is None:
            from yurt.server.resources.gangs import GangRendezvous

            self._made = GangRendezvous(self._replica, self._watches)
        return self._made

    def end_term(self) -> None:
        """Send all who wait here to the next leader."""
        if self._made is not None:
            self._made.end_term()


class ServerResources(msgspec.Struct, frozen=True):
    """The operations and duties, one object for each resource."""

    jobs: Jobs
    allocs: Allocs
    deployments: Deployments
    nodes: Nodes
    services: Services
    variables: Variables
    host_volumes: HostVolumes
    csi_volumes: CsiVolumes
    gangs: LazyGangs
    acl_tokens: AclTokens
    acl_policies: AclPolicies
    system: System
    replication: Replication | None
    """The replication from another region; None in the authoritative region."""
