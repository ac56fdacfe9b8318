"""Node pools, and the nodes and jobs in them. `default` and `all` always exist and never change."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from yurt.access import needs
from yurt.access.needs import Capability, NodePoolCapability
from yurt.api.encode import to_wire
from yurt.api.page import by_name
from yurt.api.stubs import job_stub
from yurt.http import routes
from yurt.http.call import Call, empty_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.lists import list_answer, object_answer
from yurt.http.nodes import list_some
from yurt.http.query import flag
from yurt.http.regions import need_authority
from yurt.http.routes import BODY, ROW
from yurt.rules.validation.job import NODE_POOL
from yurt.sdk.value import replace
from yurt.state.store import Snapshot
from yurt.structs.cluster import NodePool
from yurt.structs.commands import DeleteNodePools, UpsertNodePools
from yurt.structs.status import JOB_DEAD

BUILT_IN = ("all", "default")


async def list_pools(call: Call) -> web.Response:
    """GET /v1/node/pools."""
    prefix = call.options.prefix

    def rows(state: Snapshot) -> Iterable[NodePool]:
        return (row for row in state.node_pools.values() if row.name.startswith(prefix))

    return await list_answer(call, ("node_pools",), rows, render=lambda _: to_wire, key=lambda row: (row.name, ""))


async def read(call: Call) -> web.Response:
    """GET /v1/node/pool/:name."""
    name = call.part("name")
    return await object_answer(call, "node_pools", name, render=lambda row, _: row, missing="node pool not found")


async def upsert(call: Call) -> web.Response:
    """PUT /v1/node/pools and /v1/node/pool/:name."""
    need_authority(call)
    pool = await call.body(NodePool)
    if pool.name != call.request.match_info.get("name", pool.name):
        raise Refused(400, "Node pool name does not match request path")
    if pool.name in BUILT_IN:
        raise Refused(400, f'modifying node pool "{pool.name}" is not allowed')
    if not NODE_POOL.match(pool.name):
        raise Refused(400, f'invalid name "{pool.name[:64]}", must match regex ^[a-zA-Z0-9-_]{{1,128}}$')
    clean = replace(pool, create_index=0, modify_index=0)
    done = await failed_call(call.server.propose(UpsertNodePools(pools=(clean,))))
    return empty_answer(index=done.index)


async def delete(call: Call) -> web.Response:
    """DELETE /v1/node/pool/:name: only one without nodes and jobs."""
    need_authority(call)
    name, state = call.part("name"), call.read_state()
    if name in BUILT_IN:
        raise Refused(400, f'deleting node pool "{name}" is not allowed')
    if name not in state.node_pools:
        raise Refused(404, "node pool not found")
    if any(node.node_pool == name for node in state.nodes.values()):
        raise Refused(500, f'node pool "{name}" has nodes in regions: [{call.agent.region}]')
    if any(job.node_pool == name and job.status != JOB_DEAD for job in state.jobs.values()):
        raise Refused(500, f'node pool "{name}" has non-terminal jobs in regions: [{call.agent.region}]')
    done = await failed_call(call.server.propose(DeleteNodePools(names=(name,))))
    return empty_answer(index=done.index)


async def nodes(call: Call) -> web.Response:
    """GET /v1/node/pool/:name/nodes."""
    name = _known_pool(call)
    return await list_some(call, lambda node: name in ("all", node.node_pool))


async def jobs(call: Call) -> web.Response:
    """GET /v1/node/pool/:name/jobs."""
    name, options, meta = _known_pool(call), call.options, flag(call.query, "meta")

    return await list_answer(
        call,
        ("jobs", "job_summaries"),
        lambda state: state.jobs.values(),
        key=by_name,
        wanted=lambda job: job.node_pool == name and options.sees(job.namespace),
        render=lambda state: lambda job: job_stub(job, state.job_summaries.get(job.key), meta=meta),
    )


def _known_pool(call: Call) -> str:
    if call.options.prefix:
        raise Refused(400, "prefix argument not allowed")
    name = call.part("name")
    if name not in call.read_state().node_pools and name not in BUILT_IN:
        raise Refused(404, "node pool not found")
    return name


LIST_POOLS = needs.each_row(needs.node_pool(NodePoolCapability.READ))
WRITE_POOL = needs.node_pool(NodePoolCapability.WRITE)
READ_POOL = needs.node_pool(NodePoolCapability.READ)
DELETE_POOL = needs.node_pool(NodePoolCapability.DELETE)
READ_POOL_NODES = needs.all_of(needs.NODE_READ, needs.node_pool(NodePoolCapability.READ))
READ_POOL_JOBS = needs.all_of(
    needs.node_pool(NodePoolCapability.READ), needs.each_row(needs.namespace(Capability.LIST_JOBS))
)

ROUTES = (
    routes.get("/v1/node/pools", list_pools, needs=LIST_POOLS, scope=ROW, from_nodes=True),
    routes.write("/v1/node/pools", upsert, needs=WRITE_POOL, scope=BODY, from_nodes=True),
    routes.get("/v1/node/pool/{name}", read, needs=READ_POOL, scope=ROW, from_nodes=True),
    routes.write("/v1/node/pool/{name}", upsert, needs=WRITE_POOL, scope=BODY, from_nodes=True),
    routes.delete("/v1/node/pool/{name}", delete, needs=DELETE_POOL, scope=ROW, from_nodes=True),
    routes.get("/v1/node/pool/{name}/nodes", nodes, needs=READ_POOL_NODES, scope=ROW, from_nodes=True),
    routes.get("/v1/node/pool/{name}/jobs", jobs, needs=READ_POOL_JOBS, scope=ROW, from_nodes=True),
)
