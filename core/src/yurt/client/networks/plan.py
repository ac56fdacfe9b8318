"""Plans an allocation's network before it is made. Pure."""

from __future__ import annotations

from yurt.client.networks import namespaces
from yurt.client.networks.cni import Attachment, environment
from yurt.client.networks.detection import Offered
from yurt.client.networks.records import NetworkRecord, Owner
from yurt.sdk.errors import DriverError, Invalid
from yurt.structs.alloc import Allocation
from yurt.structs.job import TaskGroup
from yurt.structs.network import NetworkResource

HOST_MODES = ("", "host")
NO_NETWORK = "none"


def network_of(group: TaskGroup) -> NetworkResource:
    """The one network of a group."""
    return group.networks[0] if group.networks else NetworkResource()


def planned(
    alloc: Allocation,
    network: NetworkResource,
    offered: Offered,
    *,
    owner: Owner,
    maker: str,
    binds_wildcard: bool,
) -> NetworkRecord:
    """The plan as a record; raises DriverError when this node does not offer the network."""
    config = offered.networks.get(network.mode)
    if not offered.has_namespaces or (config is None and network.mode != NO_NETWORK):
        reason = offered.why_not(network.mode)
        raise DriverError(f'this node has no network of mode "{network.mode}": {reason}')
    namespace = str(namespaces.FOLDER / alloc.id)
    arguments = {
        "IgnoreUnknown": "1",
        "NOMAD_REGION": alloc.job.region if alloc.job is not None else "",
        "NOMAD_NAMESPACE": alloc.namespace,
        "NOMAD_JOB_ID": alloc.job_id,
        "NOMAD_GROUP_NAME": alloc.task_group,
        "NOMAD_ALLOC_ID": alloc.id,
        **(network.cni.args if network.cni is not None else {}),
    }
    attachment = Attachment(
        container_id=alloc.id,
        namespace=namespace,
        args=arguments,
        ports=alloc.allocated_resources.shared.ports,
        binds_wildcard=binds_wildcard,
    )
    try:
        environment("", attachment, ())
    except Invalid as error:
        raise DriverError(str(error)) from None
    return NetworkRecord(
        alloc_id=alloc.id,
        owner=owner,
        namespace=namespace,
        maker=maker,
        config=config,
        attachment=attachment if config is not None else None,
    )
