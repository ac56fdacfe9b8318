"""Node pools, and the nodes and jobs in them. `default` and `all` always exist and never change."""

from __future__ import annotations

from aiohttp import web

from yurt.api.page import by_name
from yurt.api.row_texts import row_form
from yurt.api.stubs import job_stub, pool_wire
from yurt.http.answers import FormBeside, list_rows, need_complete, one_row
from yurt.http.call import Call, empty_answer, shows_only
from yurt.http.errors import Refused, failed_call
from yurt.http.forwarding.regions import need_authority
from yurt.http.query import flag
from yurt.http.resources.jobs import with_summaries
from yurt.http.resources.nodes import list_some
from yurt.rules.problems import multi_error
from yurt.server.views import Listing, View
from yurt.server.views.cluster import NodePoolRows, NodeRows
from yurt.server.views.jobs import JobRows, JobSummaryRows
from yurt.structs.cluster import NodePool
from yurt.structs.job import Job

BUILT_IN = ("all", "default")


async def list_pools(call: Call) -> web.Response:
    """GET /v1/node/pools."""
    need_complete(call)
    prefix = call.options.prefix
    return await list_rows(
        call, (NodePoolRows,), lambda view: view.of(NodePoolRows).all().where(lambda row: row.name.startswith(prefix)),
        render=row_form(pool_wire), key=lambda row: (row.name, ""),
    )  # fmt: skip


async def read(call: Call) -> web.Response:
    """GET /v1/node/pool/:name."""
    name = call.part("name")
    return await one_row(call, NodePoolRows, name, render=row_form(pool_wire), missing="node pool not found")


async def upsert(call: Call) -> web.Response:
    """PUT /v1/node/pools and /v1/node/pool/:name."""
    need_authority(call)
    from yurt.api.node_pools import pool_name_problem

    pool = await _pool_of_body(call)
    call.access.name_object("node/pool", pool.name)
    if pool.name != call.request.match_info.get("name", pool.name):
        raise Refused(400, "Node pool name does not match request path")
    problem = pool_name_problem(pool.name)
    if problem:
        raise Refused(400, problem)
    return empty_answer(index=await failed_call(call.operations.node_pools.upsert(pool)))


async def _pool_of_body(call: Call) -> NodePool:
    """The pool of a body; its queue in any of the published spellings."""
    from yurt.api.decode import need_object
    from yurt.api.node_pools import decode_node_pool

    pool, problems = decode_node_pool(need_object(await call.document(), "NodePool"))
    if problems:
        raise Refused(400, multi_error(problems))
    return pool


async def delete(call: Call) -> web.Response:
    """DELETE /v1/node/pool/:name: only one without nodes and jobs."""
    need_authority(call)
    name = call.part("name")
    if name in BUILT_IN:
        raise Refused(400, f'deleting node pool "{name}" is not allowed')
    if name not in call.view().of(NodePoolRows):
        raise Refused(404, "node pool not found")
    return empty_answer(index=await failed_call(call.operations.node_pools.delete(name)))


async def nodes(call: Call) -> web.Response:
    """GET /v1/node/pool/:name/nodes."""
    name = _required_pool(call)
    answer = await list_some(call, lambda node: name in ("all", node.node_pool))
    shows_only(call, (NodeRows, NodePoolRows))  # it ends with its pool
    return answer


async def jobs(call: Call) -> web.Response:
    """GET /v1/node/pool/:name/jobs."""
    name, options, meta = _required_pool(call), call.options, flag(call.query, "meta")

    def listing(view: View) -> Listing[Job]:
        return view.of(JobRows).of_namespace(options.namespace).where(lambda job: job.node_pool == name)

    answer = await list_rows(
        call, (JobRows, JobSummaryRows), listing, key=by_name,
        render=FormBeside(row_form(job_stub, meta), with_summaries), namespace=options.namespace,
    )  # fmt: skip
    shows_only(call, (JobRows, JobSummaryRows, NodePoolRows))  # it ends with its pool
    return answer


def _required_pool(call: Call) -> str:
    if call.options.prefix:
        raise Refused(400, "prefix argument not allowed")
    name = call.part("name")
    if name not in call.view().of(NodePoolRows) and name not in BUILT_IN:
        raise Refused(404, "node pool not found")
    return name
