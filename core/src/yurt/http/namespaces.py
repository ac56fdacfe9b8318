"""Namespaces."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from yurt.access import needs
from yurt.api.encode import to_wire
from yurt.http import routes
from yurt.http.call import Call, empty_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.lists import list_answer, object_answer
from yurt.http.regions import need_authority
from yurt.http.routes import ROW
from yurt.rules.validation.job import NAMESPACE as NAME
from yurt.sdk.value import replace
from yurt.state.store import Snapshot
from yurt.structs.cluster import Namespace
from yurt.structs.commands import DeleteNamespaces, UpsertNamespaces
from yurt.structs.status import JOB_DEAD

DESCRIPTION_MAX = 256


async def list_namespaces(call: Call) -> web.Response:
    """GET /v1/namespaces."""
    prefix = call.options.prefix

    def rows(state: Snapshot) -> Iterable[Namespace]:
        return (row for row in state.namespaces.values() if row.name.startswith(prefix))

    return await list_answer(call, ("namespaces",), rows, render=lambda _: to_wire, key=lambda row: (row.name, ""))


async def read(call: Call) -> web.Response:
    """GET /v1/namespace/:name."""
    return await object_answer(
        call, "namespaces", call.part("name"), render=lambda row, _: row, missing="Namespace not found"
    )


async def upsert(call: Call) -> web.Response:
    """PUT /v1/namespace and /v1/namespace/:name."""
    need_authority(call)
    namespace = await call.body(Namespace)
    in_path = call.request.match_info.get("name", namespace.name)
    if not namespace.name:
        raise Refused(400, "Missing Namespace Name")
    if namespace.name != in_path:
        raise Refused(400, "Namespace name does not match request path")
    if not NAME.match(namespace.name):
        raise Refused(500, f'invalid name "{namespace.name[:64]}". Must match regex ^[a-zA-Z0-9-]{{1,128}}$')
    if len(namespace.description) > DESCRIPTION_MAX:
        raise Refused(500, f"description longer than {DESCRIPTION_MAX}")
    clean = replace(namespace, create_index=0, modify_index=0)
    done = await failed_call(call.server.propose(UpsertNamespaces(namespaces=(clean,))))
    return empty_answer(index=done.index)


async def delete(call: Call) -> web.Response:
    """DELETE /v1/namespace/:name: only an empty one."""
    need_authority(call)
    name, state = call.part("name"), call.read_state()
    if name == "default":
        raise Refused(500, "can not delete default namespace")
    if name not in state.namespaces:
        raise Refused(404, "Namespace not found")
    alive = sum(job.namespace == name and job.status != JOB_DEAD for job in state.jobs.values())
    if alive:
        raise Refused(500, f'namespace "{name}" has non-terminal jobs in regions: [{call.agent.region}]')
    done = await failed_call(call.server.propose(DeleteNamespaces(names=(name,))))
    return empty_answer(index=done.index)


LIST_NAMESPACES = needs.each_row(needs.ANY_CAPABILITY)

ROUTES = (
    routes.get("/v1/namespaces", list_namespaces, needs=LIST_NAMESPACES, scope=ROW, from_nodes=True),
    routes.write("/v1/namespace", upsert, needs=needs.MANAGEMENT, from_nodes=True),
    routes.get("/v1/namespace/{name}", read, needs=needs.ANY_CAPABILITY, scope=ROW, from_nodes=True),
    routes.write("/v1/namespace/{name}", upsert, needs=needs.MANAGEMENT, from_nodes=True),
    routes.delete("/v1/namespace/{name}", delete, needs=needs.MANAGEMENT, from_nodes=True),
)
