"""The routes of the other resources: namespaces, nodes, quotas, services, variables, volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.access import needs
from yurt.access.needs import Capability, NodePoolCapability, VariableCapability
from yurt.http import routes
from yurt.http.routes import BODY, QUERY, ROW, SERVER, handlers_of

if TYPE_CHECKING:
    from yurt.http.resources import (
        csi_volumes,
        events,
        namespaces,
        node_pools,
        nodes,
        quotas,
        search,
        services,
        variables,
        volumes,
    )
else:
    csi_volumes = handlers_of("yurt.http.resources.csi_volumes")
    events = handlers_of("yurt.http.resources.events")
    namespaces = handlers_of("yurt.http.resources.namespaces")
    node_pools = handlers_of("yurt.http.resources.node_pools")
    nodes = handlers_of("yurt.http.resources.nodes")
    quotas = handlers_of("yurt.http.resources.quotas")
    search = handlers_of("yurt.http.resources.search")
    services = handlers_of("yurt.http.resources.services")
    variables = handlers_of("yurt.http.resources.variables")
    volumes = handlers_of("yurt.http.resources.volumes")

LIST_CSI_VOLUMES = needs.namespace(
    Capability.CSI_LIST_VOLUME, Capability.CSI_READ_VOLUME, Capability.CSI_MOUNT_VOLUME, Capability.LIST_JOBS
)
WRITE_CSI_VOLUME = needs.all_of(needs.namespace(Capability.CSI_WRITE_VOLUME), needs.PLUGIN_READ)
READ_CSI_VOLUME = needs.namespace(Capability.CSI_READ_VOLUME, Capability.CSI_MOUNT_VOLUME, Capability.READ_JOB)
CSI_WRITE_VOLUME = needs.namespace(Capability.CSI_WRITE_VOLUME)
DETACH_CSI_VOLUME = needs.all_of(needs.namespace(Capability.CSI_MOUNT_VOLUME), needs.PLUGIN_READ)
STREAM = needs.each_row(
    needs.any_of(
        needs.namespace(Capability.READ_JOB, Capability.HOST_VOLUME_READ, Capability.CSI_READ_VOLUME),
        needs.variable(VariableCapability.LIST),
        needs.NODE_READ,
        needs.OPERATOR_READ,
        needs.MANAGEMENT,
    )
)
"""The union of the topics' needs; each topic's is checked when the stream begins (`yurt.server.views.events`)."""
LIST_NAMESPACES = needs.each_row(needs.ANY_CAPABILITY)
LIST_POOLS = needs.each_row(needs.node_pool(NodePoolCapability.READ))
WRITE_POOL = needs.node_pool(NodePoolCapability.WRITE)
READ_POOL = needs.node_pool(NodePoolCapability.READ)
DELETE_POOL = needs.node_pool(NodePoolCapability.DELETE)
READ_POOL_NODES = needs.all_of(needs.NODE_READ, needs.node_pool(NodePoolCapability.READ))
READ_POOL_JOBS = needs.all_of(
    needs.node_pool(NodePoolCapability.READ), needs.each_row(needs.namespace(Capability.LIST_JOBS))
)
READ_NODE_ALLOCATIONS = needs.all_of(needs.NODE_READ, needs.each_row(needs.namespace(Capability.READ_JOB)))
SEARCH = needs.each_row(
    needs.any_of(
        needs.namespace(
            Capability.READ_JOB, Capability.LIST_JOBS, Capability.CSI_LIST_VOLUME, Capability.CSI_READ_VOLUME
        ),
        needs.namespace(Capability.HOST_VOLUME_READ, Capability.LIST_SCALING_POLICIES),
        needs.ANY_CAPABILITY,
        needs.variable(VariableCapability.LIST),
        needs.node_pool(NodePoolCapability.READ),
        needs.NODE_READ,
        needs.PLUGIN_LIST,
    )
)
READ_JOB = needs.namespace(Capability.READ_JOB)
READ_SERVICES = needs.any_of(READ_JOB, needs.WORKLOAD)
"""A task may read the services of its own namespace without a policy."""
DELETE_SERVICE_REGISTRATION = needs.namespace(Capability.SUBMIT_JOB, Capability.DELETE_SERVICE_REGISTRATION)
LIST_VARIABLES = needs.each_row(needs.variable(VariableCapability.LIST))
READ_VARIABLE = needs.variable(VariableCapability.READ)
WRITE_VARIABLE = needs.variable(VariableCapability.WRITE)
DESTROY_VARIABLE = needs.variable(VariableCapability.DESTROY)
LIST_VOLUMES = needs.any_of(
    needs.namespace(
        Capability.CSI_LIST_VOLUME, Capability.CSI_READ_VOLUME, Capability.CSI_MOUNT_VOLUME, Capability.LIST_JOBS
    ),
    needs.each_row(needs.namespace(Capability.HOST_VOLUME_READ)),
)
LIST_CLAIMS = needs.each_row(needs.namespace(Capability.HOST_VOLUME_READ))
DELETE_CLAIM = needs.namespace(Capability.HOST_VOLUME_DELETE)
CREATE_HOST_VOLUME = needs.namespace(Capability.HOST_VOLUME_CREATE, Capability.HOST_VOLUME_WRITE)
REGISTER_HOST_VOLUME = needs.namespace(Capability.HOST_VOLUME_REGISTER, Capability.HOST_VOLUME_WRITE)
READ_HOST_VOLUME = needs.namespace(Capability.HOST_VOLUME_READ)
DELETE_HOST_VOLUME = needs.namespace(Capability.HOST_VOLUME_DELETE, Capability.HOST_VOLUME_WRITE)

BAD_INDEX = "Unable to parse index: it must be a number, 0 or more"

ROUTES = (
    routes.get("/v1/volumes/external", csi_volumes.not_made_here, needs=LIST_CSI_VOLUMES, scope=QUERY, from_nodes=True),
    routes.get("/v1/volumes/snapshot", csi_volumes.not_made_here, needs=LIST_CSI_VOLUMES, scope=QUERY, from_nodes=True),
    routes.write(
        "/v1/volumes/snapshot", csi_volumes.not_made_here, needs=WRITE_CSI_VOLUME, scope=BODY, from_nodes=True
    ),
    routes.delete(
        "/v1/volumes/snapshot", csi_volumes.not_made_here, needs=WRITE_CSI_VOLUME, scope=QUERY, from_nodes=True
    ),
    routes.get("/v1/volume/csi/{id}", csi_volumes.read_volume, needs=READ_CSI_VOLUME, scope=QUERY, from_nodes=True),
    routes.write("/v1/volume/csi/{id}", csi_volumes.register, needs=WRITE_CSI_VOLUME, scope=BODY, from_nodes=True),
    routes.delete("/v1/volume/csi/{id}", csi_volumes.deregister, needs=CSI_WRITE_VOLUME, scope=QUERY, from_nodes=True),
    routes.delete(
        "/v1/volume/csi/{id}/detach", csi_volumes.detach, needs=DETACH_CSI_VOLUME, scope=QUERY, from_nodes=True
    ),
    routes.write(
        "/v1/volume/csi/{id}/create", csi_volumes.not_made_here, needs=WRITE_CSI_VOLUME, scope=BODY, from_nodes=True
    ),
    routes.delete(
        "/v1/volume/csi/{id}/delete", csi_volumes.not_made_here, needs=WRITE_CSI_VOLUME, scope=QUERY, from_nodes=True
    ),
    routes.get("/v1/plugins", csi_volumes.list_csi_plugins, needs=needs.PLUGIN_LIST, from_nodes=True),
    routes.get("/v1/plugin/csi/{id}", csi_volumes.read_csi_plugin, needs=needs.PLUGIN_READ, from_nodes=True),
    routes.get(
        "/v1/event/stream",
        events.stream,
        needs=STREAM,
        scope=ROW,
        answered_by=SERVER,
        from_nodes=True,
        index_error=BAD_INDEX,
        is_stream=True,
    ),
    routes.get("/v1/namespaces", namespaces.list_namespaces, needs=LIST_NAMESPACES, scope=ROW, from_nodes=True),
    routes.write("/v1/namespace", namespaces.upsert, needs=needs.MANAGEMENT, from_nodes=True),
    routes.get("/v1/namespace/{name}", namespaces.read, needs=needs.ANY_CAPABILITY, scope=ROW, from_nodes=True),
    routes.write("/v1/namespace/{name}", namespaces.upsert, needs=needs.MANAGEMENT, from_nodes=True),
    routes.delete("/v1/namespace/{name}", namespaces.delete, needs=needs.MANAGEMENT, from_nodes=True),
    routes.get("/v1/node/pools", node_pools.list_pools, needs=LIST_POOLS, scope=ROW, from_nodes=True),
    routes.write("/v1/node/pools", node_pools.upsert, needs=WRITE_POOL, scope=BODY, from_nodes=True),
    routes.get("/v1/node/pool/{name}", node_pools.read, needs=READ_POOL, scope=ROW, from_nodes=True),
    routes.write("/v1/node/pool/{name}", node_pools.upsert, needs=WRITE_POOL, scope=BODY, from_nodes=True),
    routes.delete("/v1/node/pool/{name}", node_pools.delete, needs=DELETE_POOL, scope=ROW, from_nodes=True),
    routes.get("/v1/node/pool/{name}/nodes", node_pools.nodes, needs=READ_POOL_NODES, scope=ROW, from_nodes=True),
    routes.get("/v1/node/pool/{name}/jobs", node_pools.jobs, needs=READ_POOL_JOBS, scope=ROW, from_nodes=True),
    routes.get("/v1/nodes", nodes.list_nodes, needs=needs.NODE_READ, from_nodes=True),
    routes.get("/v1/node/{id}", nodes.read, needs=needs.NODE_READ, from_nodes=True),
    routes.get("/v1/node/{id}/allocations", nodes.allocations, needs=READ_NODE_ALLOCATIONS, scope=ROW, from_nodes=True),
    routes.write("/v1/node/{id}/evaluate", nodes.evaluate, needs=needs.NODE_WRITE, from_nodes=True),
    routes.write("/v1/node/{id}/eligibility", nodes.set_eligibility, needs=needs.NODE_WRITE, from_nodes=True),
    routes.write("/v1/yurt/node/{id}/device", nodes.set_device_eligibility, needs=needs.NODE_WRITE, from_nodes=True),
    routes.write(
        "/v1/node/{id}/drain",
        nodes.drain,
        needs=needs.any_of(needs.NODE_WRITE, needs.OWN_NODE),
        scope=ROW,
        from_nodes=True,
    ),
    routes.write("/v1/node/{id}/purge", nodes.purge, needs=needs.NODE_WRITE, from_nodes=True),
    routes.get("/v1/quotas", quotas.list_quotas, needs=needs.QUOTA_READ, from_nodes=True),
    routes.get("/v1/quota-usages", quotas.list_usages, needs=needs.QUOTA_READ, from_nodes=True),
    routes.write("/v1/quota", quotas.upsert, needs=needs.QUOTA_WRITE, from_nodes=True),
    routes.get("/v1/quota/usage/{name}", quotas.read_usage, needs=needs.QUOTA_READ, from_nodes=True),
    routes.get("/v1/quota/{name}", quotas.read, needs=needs.QUOTA_READ, from_nodes=True),
    routes.write("/v1/quota/{name}", quotas.upsert, needs=needs.QUOTA_WRITE, from_nodes=True),
    routes.delete("/v1/quota/{name}", quotas.delete, needs=needs.QUOTA_WRITE, from_nodes=True),
    routes.write("/v1/search", search.search, needs=SEARCH, scope=ROW, from_nodes=True),
    routes.write("/v1/search/fuzzy", search.fuzzy, needs=SEARCH, scope=ROW, from_nodes=True),
    routes.get("/v1/services", services.list_services, needs=READ_SERVICES, scope=QUERY, from_nodes=True),
    routes.get("/v1/service/{name}", services.read, needs=READ_SERVICES, scope=QUERY, from_nodes=True),
    routes.delete(
        "/v1/service/{name}/{id}", services.delete, needs=DELETE_SERVICE_REGISTRATION, scope=QUERY, from_nodes=True
    ),
    routes.get("/v1/allocation/{id}/services", services.of_alloc, needs=READ_JOB, scope=ROW, from_nodes=True),
    routes.get("/v1/vars", variables.list_variables, needs=LIST_VARIABLES, scope=ROW, from_nodes=True, cors=True),
    routes.get(
        "/v1/var/{path:.*}",
        variables.read,
        needs=READ_VARIABLE,
        scope=QUERY,
        from_nodes=True,
        wrong_method=400,
        cors=True,
    ),
    routes.write(
        "/v1/var/{path:.*}",
        variables.write,
        needs=WRITE_VARIABLE,
        scope=BODY,
        from_nodes=True,
        wrong_method=400,
        cors=True,
    ),
    routes.delete(
        "/v1/var/{path:.*}",
        variables.delete,
        needs=DESTROY_VARIABLE,
        scope=QUERY,
        from_nodes=True,
        wrong_method=400,
        cors=True,
    ),
    routes.get("/v1/volumes", volumes.list_volumes, needs=LIST_VOLUMES, scope=QUERY, from_nodes=True),
    routes.write("/v1/volumes", csi_volumes.register, needs=WRITE_CSI_VOLUME, scope=BODY, from_nodes=True),
    routes.get("/v1/volumes/claims", volumes.list_claims, needs=LIST_CLAIMS, scope=QUERY, from_nodes=True),
    routes.delete("/v1/volumes/claim/{id}", volumes.delete_claim, needs=DELETE_CLAIM, scope=ROW, from_nodes=True),
    # Before the routes by id: `create` and `register` must not be taken for ids.
    routes.write("/v1/volume/host/create", volumes.create, needs=CREATE_HOST_VOLUME, scope=BODY, from_nodes=True),
    routes.write("/v1/volume/host/register", volumes.register, needs=REGISTER_HOST_VOLUME, scope=BODY, from_nodes=True),
    routes.get("/v1/volume/host/{id}", volumes.read, needs=READ_HOST_VOLUME, scope=ROW, from_nodes=True),
    routes.delete("/v1/volume/host/{id}", volumes.delete, needs=DELETE_HOST_VOLUME, scope=ROW, from_nodes=True),
    routes.delete("/v1/volume/host/{id}/delete", volumes.delete, needs=DELETE_HOST_VOLUME, scope=ROW, from_nodes=True),
)
