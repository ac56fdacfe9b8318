"""Login methods and binding rules."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.http.answers import list_rows, one_row
from yurt.http.call import Call, empty_answer, json_answer
from yurt.http.errors import Refused
from yurt.http.forwarding.regions import need_authority
from yurt.http.resources.acl.wire import method_wire, refused
from yurt.sdk.value import Duration, Value, replace
from yurt.server.views.acl import AuthMethodRows, BindingRuleRows
from yurt.structs.acl import ACLAuthMethod, ACLAuthMethodConfig, ACLBindingRule


class AuthMethodBody(Value):
    """A login method that is to be stored."""

    name: str = ""
    type: str = ""
    token_locality: str = ""
    token_name_format: str = ""
    max_token_ttl: Duration = Duration(0)
    default: bool = False
    config: ACLAuthMethodConfig | None = None

    def method(self) -> ACLAuthMethod:
        """The method, without what the server decides."""
        return ACLAuthMethod(
            name=self.name,
            type=self.type,
            token_locality=self.token_locality,
            token_name_format=self.token_name_format,
            max_token_ttl=self.max_token_ttl,
            default=self.default,
            config=self.config,
        )


async def list_auth_methods(call: Call) -> web.Response:
    """GET /v1/acl/auth-methods: for everyone, so that users can choose a method before login."""
    call.need_acl()

    def stub(method: ACLAuthMethod) -> dict[str, Any]:
        return {
            "CreateIndex": method.create_index,
            "Default": method.default,
            "ModifyIndex": method.modify_index,
            "Name": method.name,
            "Type": method.type,
        }

    return await list_rows(
        call, (AuthMethodRows,), lambda view: view.of(AuthMethodRows).all(), render=lambda _: stub,
        key=lambda row: (row.name, ""),
    )  # fmt: skip


async def read_auth_method(call: Call) -> web.Response:
    """GET /v1/acl/auth-method/:name: without its secrets."""
    call.need_acl()
    return await one_row(
        call, AuthMethodRows, call.part("name"), missing="ACL auth-method not found",
        render=lambda row, _: method_wire(AuthMethodRows.shown(row)),
    )  # fmt: skip


async def create_auth_method(call: Call) -> web.Response:
    """PUT /v1/acl/auth-method."""
    call.need_acl()
    need_authority(call)
    return await _put_method(call, (await call.body(AuthMethodBody)).method())


async def update_auth_method(call: Call) -> web.Response:
    """PUT /v1/acl/auth-method/:name."""
    call.need_acl()
    need_authority(call)
    method = (await call.body(AuthMethodBody)).method()
    if method.name != call.part("name"):
        raise Refused(400, "ACL auth method name does not match request path")
    return await _put_method(call, method)


async def _put_method(call: Call, method: ACLAuthMethod) -> web.Response:
    stored, index = await refused(call.operations.acl_policies.put_auth_method(method))
    call.access.name_object("acl/auth-method", stored.name)
    return json_answer(call, method_wire(AuthMethodRows.shown(stored)), index=index)


async def delete_auth_method(call: Call) -> web.Response:
    """DELETE /v1/acl/auth-method/:name."""
    call.need_acl()
    need_authority(call)
    return empty_answer(index=await call.operations.acl_policies.delete_auth_method(call.part("name")))


async def list_binding_rules(call: Call) -> web.Response:
    """GET /v1/acl/binding-rules."""
    call.need_acl()

    def stub(rule: ACLBindingRule) -> dict[str, Any]:
        return {
            "AuthMethod": rule.auth_method,
            "CreateIndex": rule.create_index,
            "Description": rule.description,
            "ID": rule.id,
            "ModifyIndex": rule.modify_index,
        }

    return await list_rows(
        call, (BindingRuleRows,), lambda view: view.of(BindingRuleRows).all(), render=lambda _: stub
    )  # fmt: skip


async def read_binding_rule(call: Call) -> web.Response:
    """GET /v1/acl/binding-rule/:id."""
    call.need_acl()
    return await one_row(
        call, BindingRuleRows, call.part("id"), render=lambda row, _: row, missing="ACL binding rule not found"
    )


async def create_binding_rule(call: Call) -> web.Response:
    """PUT /v1/acl/binding-rule: a new rule; with an id in the body the rule of that id."""
    call.need_acl()
    need_authority(call)
    return await _put_rule(call, await call.body(ACLBindingRuleBody))


async def update_binding_rule(call: Call) -> web.Response:
    """PUT /v1/acl/binding-rule/:id."""
    call.need_acl()
    need_authority(call)
    rule = await call.body(ACLBindingRuleBody)
    if rule.id not in ("", call.part("id")):
        raise Refused(400, "ACL binding rule ID does not match request path")
    return await _put_rule(call, replace(rule, id=call.part("id")))


class ACLBindingRuleBody(Value):
    """A binding rule that is to be stored."""

    id: str = ""
    description: str = ""
    auth_method: str = ""
    selector: str = ""
    bind_type: str = ""
    bind_name: str = ""


async def _put_rule(call: Call, body: ACLBindingRuleBody) -> web.Response:
    rule = ACLBindingRule(
        id=body.id, description=body.description, auth_method=body.auth_method, selector=body.selector,
        bind_type=body.bind_type, bind_name=body.bind_name,
    )  # fmt: skip
    stored, index = await refused(call.operations.acl_policies.put_binding_rule(rule))
    call.access.name_object("acl/binding-rule", stored.id)
    return json_answer(call, to_wire(stored), index=index)


async def delete_binding_rule(call: Call) -> web.Response:
    """DELETE /v1/acl/binding-rule/:id."""
    call.need_acl()
    need_authority(call)
    return empty_answer(index=await call.operations.acl_policies.delete_binding_rule(call.part("id")))
