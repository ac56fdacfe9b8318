"""Services registered with Nomad's own provider: list them, find instances, and delete one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, TypeVar

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.api.page import Pager, by_index, make_page
from yurt.http.answers import answer_slot, changed_view, list_index
from yurt.http.call import Call, empty_answer, object_missing, read_answer, shows_only
from yurt.http.errors import Refused
from yurt.http.lists import check_uuid, list_answer, page_answer
from yurt.sdk.value import Value
from yurt.server.views import Rows, View
from yurt.server.views.jobs import JobRows
from yurt.server.views.scheduling import AllocationRows
from yurt.server.views.services import ServiceRows
from yurt.structs.service import ServiceRegistration

K = TypeVar("K")
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
    prefix = call.options.prefix
    options = call.options
    view, index = await changed_view(call, [ServiceRows.watched()], lambda view: view.of(ServiceRows).index)
    shows_only(call, (ServiceRows,))
    slot = answer_slot(call, view, (ServiceRows,), options.namespace)
    if slot is not None and (cached := slot.find()) is not None:
        return list_answer(call, cached.pieces, cached.at_index, cached.next_token)
    listing = view.of(ServiceRows).of_namespace(options.namespace)
    namespaces: dict[str, dict[str, set[str]]] = {}
    async for part in call.turns.slices(listing.rows):
        for service in listing.among(part):
            if service.service_name.startswith(prefix):
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
    pager = Pager(rows, to_wire, key=lambda row: (row.namespace, ""), options=options)
    return await page_answer(call, pager, index, slot=slot)


async def read(call: Call) -> web.Response:
    """GET /v1/service/:name: its instances, or those that `choose` picks for a key."""
    name, chosen = call.part("name"), _choice(call)
    key = (call.options.namespace, name)

    def instances(view: View) -> Iterable[ServiceRegistration]:
        rows = view.of(ServiceRows)
        if call.options.is_all_namespaces:
            return rows.all().where(lambda service: service.service_name == name)
        return rows.where("name", key)

    watched = ServiceRows.watched() if call.options.is_all_namespaces else ServiceRows.watched_where("name", key)
    view, index = await changed_view(call, [watched], lambda view: view.of(ServiceRows).index)
    shows_only(call, (ServiceRows,))
    if chosen is None:
        page = make_page(instances(view), to_wire, key=by_index, options=call.options)
        return read_answer(call, page.rows, index, next_token=page.next_token)
    count, requested = chosen
    return read_answer(call, choose(instances(view), count, requested), index)


def choose(services: Iterable[ServiceRegistration], count: int, key: str) -> list[ServiceRegistration]:
    """The instances with the highest hash combined with the key: few keys move when instances come and go."""

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
    index = await call.operations.services.delete(call.options.namespace, call.part("name"), call.part("id"))
    return empty_answer(index=index)


async def of_job(call: Call) -> web.Response:
    """GET /v1/job/:id/services."""
    key = (call.options.namespace, call.part("job_id"))
    return await _below(call, JobRows, key, "job", missing="job not found")


async def of_alloc(call: Call) -> web.Response:
    """GET /v1/allocation/:id/services."""
    alloc_id = check_uuid(call.part("id"), "alloc")
    return await _below(call, AllocationRows, alloc_id, "alloc", missing="allocation not found")


async def _below(call: Call, kind: type[Rows[K, Any]], key: K, column: str, *, missing: str) -> web.Response:
    """The registrations of a job or an allocation."""
    watched = [call.view().of(kind).watched_of(key), ServiceRows.watched_where(column, key)]
    view, index = await changed_view(call, watched, lambda view: list_index(view, (ServiceRows, kind)))
    if key not in view.of(kind):
        return object_missing(call, missing, index)
    page = make_page(view.of(ServiceRows).where(column, key), to_wire, key=by_index, options=call.options)
    return read_answer(call, page.rows, index, next_token=page.next_token)
