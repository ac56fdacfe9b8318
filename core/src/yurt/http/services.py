"""Services that jobs register with Nomad's own provider: which there are, where they run, and forgetting one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from aiohttp import web

from yurt.access import needs
from yurt.access.needs import Capability
from yurt.api.encode import to_wire
from yurt.api.page import Pager, by_index, make_page
from yurt.http import routes
from yurt.http.call import Call, changed_state, empty_answer, object_missing, read_answer
from yurt.http.errors import Refused
from yurt.http.lists import check_uuid, page_answer
from yurt.http.routes import QUERY, ROW
from yurt.sdk.value import Value
from yurt.state.store import Snapshot
from yurt.structs.service import ServiceRegistration

CHOOSE_FORM = "Parameter for choose must be in form '<number>|<key>'"


class ServiceStub(Value):
    """A service in a list: its name and all tags of its instances."""

    service_name: str
    tags: tuple[str, ...]


class NamespaceServices(Value):
    """The services of one namespace."""

    namespace: str
    services: tuple[ServiceStub, ...]


async def list_services(call: Call) -> web.Response:
    """GET /v1/services: names and tags by namespace."""
    state, index = await changed_state(call, [("services",)], lambda s: s.services.index)
    namespaces: dict[str, dict[str, set[str]]] = {}
    async for part in call.server.writer.turns.slices(state.services.values()):
        for service in part:
            if call.options.sees(service.namespace) and service.service_name.startswith(call.options.prefix):
                names = namespaces.setdefault(service.namespace, {})
                names.setdefault(service.service_name, set()).update(service.tags)
    rows = [
        NamespaceServices(
            namespace=namespace,
            services=tuple(
                ServiceStub(service_name=name, tags=tuple(sorted(tags))) for name, tags in sorted(names.items())
            ),
        )
        for namespace, names in namespaces.items()
    ]
    pager = Pager(rows, to_wire, key=lambda row: (row.namespace, ""), options=call.options)
    return await page_answer(call, pager, index)


async def read(call: Call) -> web.Response:
    """GET /v1/service/:name: its instances, or those that `choose` picks for a key."""
    name, chosen = call.part("name"), _choice(call)
    key = (call.options.namespace, name)

    def rows(state: Snapshot) -> Iterable[ServiceRegistration]:
        if call.options.is_all_namespaces:
            return [service for service in state.services.values() if service.service_name == name]
        return state.services.where("name", key)

    watched = ("services",) if call.options.is_all_namespaces else ("services", "name", key)
    state, index = await changed_state(call, [watched], lambda s: s.services.index)
    if chosen is None:
        page = make_page(rows(state), to_wire, key=by_index, options=call.options)
        return read_answer(call, page.rows, index, next_token=page.next_token)
    count, wanted = chosen
    return read_answer(call, choose(rows(state), count, wanted), index)


def choose(services: Iterable[ServiceRegistration], count: int, key: str) -> list[ServiceRegistration]:
    """The instances with the highest hash together with the key: few keys move when instances come and go."""

    def weight(service: ServiceRegistration) -> bytes:
        return hashlib.blake2b(f"{key}\0{service.alloc_id}\0{service.id}".encode(), digest_size=16).digest()

    return sorted(services, key=weight, reverse=True)[:count]


def _choice(call: Call) -> tuple[int, str] | None:
    text = call.query.get("choose", "")
    if not text:
        return None
    count, bar, key = text.partition("|")
    if not bar or not key or not (count.isascii() and count.isdigit()) or not 0 < len(count) < 10 or int(count) < 1:
        raise Refused(400, CHOOSE_FORM)
    return int(count), key


async def delete(call: Call) -> web.Response:
    """DELETE /v1/service/:name/:id."""
    index = await call.server.services.delete(call.options.namespace, call.part("name"), call.part("id"))
    return empty_answer(index=index)


async def of_job(call: Call) -> web.Response:
    """GET /v1/job/:id/services."""
    key = (call.options.namespace, call.part("job_id"))
    return await _below(call, "jobs", key, "job", missing="job not found")


async def of_alloc(call: Call) -> web.Response:
    """GET /v1/allocation/:id/services."""
    alloc_id = check_uuid(call.part("id"), "alloc")
    return await _below(call, "allocs", alloc_id, "alloc", missing="allocation not found")


async def _below(call: Call, table: str, key: str | tuple[str, str], column: str, *, missing: str) -> web.Response:
    """The registrations of a job or an allocation."""
    watched = [(table, key), ("services", column, key)]
    state, index = await changed_state(call, watched, lambda s: max(s.services.index, s.table(table).index))
    if key not in state.table(table):
        return object_missing(call, missing, index)
    page = make_page(state.services.where(column, key), to_wire, key=by_index, options=call.options)
    return read_answer(call, page.rows, index, next_token=page.next_token)


READ_JOB = needs.namespace(Capability.READ_JOB)
DELETE_SERVICE_REGISTRATION = needs.namespace(Capability.SUBMIT_JOB, Capability.DELETE_SERVICE_REGISTRATION)

ROUTES = (
    routes.get("/v1/services", list_services, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/service/{name}", read, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.delete("/v1/service/{name}/{id}", delete, needs=DELETE_SERVICE_REGISTRATION, scope=QUERY, from_nodes=True),
    routes.get("/v1/allocation/{id}/services", of_alloc, needs=READ_JOB, scope=ROW, from_nodes=True),
)
