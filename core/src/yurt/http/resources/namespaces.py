"""Namespaces."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from yurt.api.decode import decode_value
from yurt.api.idle_block import space_problems, with_idle_block
from yurt.api.row_texts import row_form
from yurt.api.stubs import namespace_wire
from yurt.http.answers import list_rows, need_complete, one_row
from yurt.http.call import Call, empty_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.forwarding.regions import need_authority
from yurt.rules.namespaces import configuration_problems
from yurt.rules.problems import multi_error
from yurt.rules.validation.job import NAMESPACE as NAME
from yurt.server.views.cluster import NamespaceRows
from yurt.structs.cluster import Namespace

DESCRIPTION_MAX = 256


async def list_namespaces(call: Call) -> web.Response:
    """GET /v1/namespaces."""
    need_complete(call)
    prefix = call.options.prefix
    return await list_rows(
        call, (NamespaceRows,),
        lambda view: view.of(NamespaceRows).all().where(lambda row: row.name.startswith(prefix)),
        render=row_form(namespace_wire), key=lambda row: (row.name, ""),
    )  # fmt: skip


async def read(call: Call) -> web.Response:
    """GET /v1/namespace/:name."""
    name = call.part("name")
    return await one_row(call, NamespaceRows, name, render=row_form(namespace_wire), missing="Namespace not found")


async def upsert(call: Call) -> web.Response:
    """PUT /v1/namespace and /v1/namespace/:name."""
    need_authority(call)
    document = await call.document()
    if isinstance(document, Mapping):
        document = with_idle_block(document)
    namespace, _ = decode_value(document, Namespace, name="Namespace")
    call.access.name_object("namespace", namespace.name)
    in_path = call.request.match_info.get("name", namespace.name)
    if not namespace.name:
        raise Refused(400, "Missing Namespace Name")
    if namespace.name != in_path:
        raise Refused(400, "Namespace name does not match request path")
    if not NAME.match(namespace.name):
        raise Refused(500, f'invalid name "{namespace.name[:64]}". Must match regex ^[a-zA-Z0-9-]{{1,128}}$')
    if len(namespace.description) > DESCRIPTION_MAX:
        raise Refused(500, f"description longer than {DESCRIPTION_MAX}")
    if problems := (*configuration_problems(namespace), *space_problems(namespace.idle)):
        raise Refused(400, f'namespace "{namespace.name}" is invalid: {multi_error(problems)}')
    return empty_answer(index=await failed_call(call.operations.namespaces.upsert(namespace)))


async def delete(call: Call) -> web.Response:
    """DELETE /v1/namespace/:name: only an empty one."""
    need_authority(call)
    name = call.part("name")
    if name == "default":
        raise Refused(500, "can not delete default namespace")
    if name not in call.view().of(NamespaceRows):
        raise Refused(404, "Namespace not found")
    return empty_answer(index=await failed_call(call.operations.namespaces.delete(name)))
