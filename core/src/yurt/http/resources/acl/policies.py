"""Policies and roles."""

from __future__ import annotations

from aiohttp import web

from yurt.access import ShownNode, needs
from yurt.api.encode import to_wire
from yurt.api.uuids import uuid_prefix
from yurt.http.answers import changed_view, list_rows, one_row
from yurt.http.call import Call, empty_answer, json_answer, object_missing, read_answer
from yurt.http.errors import Refused
from yurt.http.forwarding.regions import need_authority
from yurt.http.resources.acl.wire import refused
from yurt.sdk.errors import DENIED
from yurt.sdk.value import replace
from yurt.server.views.acl import PolicyRows, RoleRows
from yurt.structs.acl import ACLPolicy, ACLRole

POLICY_MISSING = "ACL policy not found"
ROLE_MISSING = "ACL role not found"


async def list_policies(call: Call) -> web.Response:
    """GET /v1/acl/policies: the caller's own; all of them for a management token."""
    call.need_acl()
    prefix = call.options.prefix

    def stub(policy: ACLPolicy) -> dict[str, object]:
        wire: dict[str, object] = to_wire(policy)
        del wire["Rules"]
        return wire

    return await list_rows(
        call, (PolicyRows,),
        lambda view: view.of(PolicyRows).all().where(lambda row: row.name.startswith(prefix)),
        render=lambda _: stub, key=lambda row: (row.name, ""),
    )  # fmt: skip


async def own_policies(call: Call) -> web.Response:
    """GET /v1/acl/policy/self: the policies behind the caller's rights; a node has none."""
    call.need_acl()
    if isinstance(call.actor.caller, ShownNode):
        raise Refused(403, DENIED)
    view, index = await changed_view(call, [PolicyRows.watched()], lambda view: view.of(PolicyRows).index)
    return read_answer(call, view.of(PolicyRows).own() or None, index)


async def read_policy(call: Call) -> web.Response:
    """GET /v1/acl/policy/:name."""
    call.need_acl()
    name = call.part("name")
    if name not in call.view().of(PolicyRows) and not _is_management(call):
        raise Refused(403, DENIED)
    return await one_row(call, PolicyRows, name, render=lambda row, _: row, missing=POLICY_MISSING)


def _is_management(call: Call) -> bool:
    return call.access.narrowed(needs.MANAGEMENT).sees_all


async def upsert_policy(call: Call) -> web.Response:
    """PUT /v1/acl/policy/:name."""
    call.need_acl()
    need_authority(call)
    policy = await call.body(ACLPolicy)
    if policy.name != call.part("name"):
        raise Refused(400, "ACL policy name does not match request path")
    return empty_answer(index=await refused(call.operations.acl_policies.put_policy(policy)))


async def delete_policy(call: Call) -> web.Response:
    """DELETE /v1/acl/policy/:name."""
    call.need_acl()
    need_authority(call)
    return empty_answer(index=await call.operations.acl_policies.delete_policy(call.part("name")))


async def list_roles(call: Call) -> web.Response:
    """GET /v1/acl/roles: those of the caller's token; all of them for a management token."""
    call.need_acl()
    prefix = uuid_prefix(call.options.prefix)
    return await list_rows(
        call, (RoleRows,),
        lambda view: view.of(RoleRows).all().where(lambda row: row.id.startswith(prefix)),
        render=lambda _: to_wire,
    )  # fmt: skip


async def read_role(call: Call) -> web.Response:
    """GET /v1/acl/role/:id."""
    call.need_acl()
    return await _role(call, call.part("id"))


async def read_role_by_name(call: Call) -> web.Response:
    """GET /v1/acl/role/name/:name."""
    call.need_acl()
    role = call.view().of(RoleRows).named(call.part("name"))
    return await _role(call, "" if role is None else role.id)


async def _role(call: Call, role_id: str) -> web.Response:
    watched = call.view().of(RoleRows).watched_of(role_id)
    view, index = await changed_view(call, [watched], lambda view: view.of(RoleRows).index_of(role_id))
    role = view.of(RoleRows).get(role_id)
    if role is not None:
        return read_answer(call, role, index)
    if not _is_management(call):
        raise Refused(403, DENIED)
    return object_missing(call, ROLE_MISSING, index)


async def create_role(call: Call) -> web.Response:
    """PUT /v1/acl/role: a new role; with an id in the body the role of that id."""
    call.need_acl()
    need_authority(call)
    return await _put_role(call, await call.body(ACLRole))


async def update_role(call: Call) -> web.Response:
    """PUT /v1/acl/role/:id."""
    call.need_acl()
    need_authority(call)
    role = await call.body(ACLRole)
    if role.id != call.part("id"):
        raise Refused(400, "ACL role ID does not match request path")
    return await _put_role(call, role)


async def _put_role(call: Call, role: ACLRole) -> web.Response:
    links = tuple(dict.fromkeys(role.policies))
    stored, index = await refused(call.operations.acl_policies.put_role(replace(role, policies=links)))
    call.access.name_object("acl/role", stored.id)
    return json_answer(call, stored, index=index)


async def delete_role(call: Call) -> web.Response:
    """DELETE /v1/acl/role/:id."""
    call.need_acl()
    need_authority(call)
    return empty_answer(index=await call.operations.acl_policies.delete_role(call.part("id")))
