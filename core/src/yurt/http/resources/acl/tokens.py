"""Tokens: bootstrap, the tokens themselves, and one-time tokens.

The secret of a token is shown to its maker and to its holder only, because only its hash is
stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.http.answers import changed_view, list_rows
from yurt.http.authentication import secret_text, token_text
from yurt.http.call import Call, empty_answer, json_answer, object_missing, read_answer
from yurt.http.errors import Refused
from yurt.http.forwarding.regions import need_authority
from yurt.http.lists import check_prefix, check_uuid
from yurt.http.resources.acl.wire import (
    ANONYMOUS_TOKEN,
    made_wire,
    refused,
    stub_wire,
    time_of,
    token_wire,
)
from yurt.sdk.errors import DENIED, NotFound
from yurt.sdk.value import Duration, Value, spelled
from yurt.server.resources.acl_tokens import MadeToken
from yurt.server.views import View
from yurt.server.views.acl import RoleRows, TokenRows, is_management
from yurt.structs.acl import ACLToken, ACLTokenRoleLink

MISSING = "ACL token not found"


class BootstrapBody(Value):
    """The first token's secret, if the operator chooses it."""

    bootstrap_secret: str = ""


class TokenBody(Value, rename=spelled(is_global="Global")):
    """A token that is to be made or changed."""

    accessor_id: str = ""
    secret_id: str = ""
    name: str = ""
    type: str = ""
    policies: tuple[str, ...] = ()
    roles: tuple[ACLTokenRoleLink, ...] = ()
    is_global: bool = False
    expiration_time: str | None = None
    expiration_ttl: Duration = Duration(0)
    modify_index: int = 0
    """The index of the token as the caller has read it; 0 where it was not read."""

    def token(self) -> ACLToken:
        """The token, without what the server decides."""
        return ACLToken(
            accessor_id=self.accessor_id.lower(),
            name=self.name,
            type=self.type,
            policies=tuple(dict.fromkeys(self.policies)),
            roles=tuple(dict.fromkeys(self.roles)),
            is_global=self.is_global,
            expiration_time=time_of(self.expiration_time, "ExpirationTime"),
            expiration_ttl=self.expiration_ttl,
        )


class ExchangeBody(Value):
    """The secret of a one-time token."""

    one_time_secret_id: str = ""


async def bootstrap(call: Call) -> web.Response:
    """PUT /v1/acl/bootstrap: the first management token."""
    call.need_acl()
    need_authority(call)
    body = await call.body(BootstrapBody, optional=True)
    return _made(call, await refused(call.operations.acl_tokens.bootstrap(body.bootstrap_secret)))


def _made(call: Call, made: MadeToken) -> web.Response:
    """A token with its secret: the only answer that shows it to anyone but its holder."""
    call.access.name_object("acl/token", made.token.accessor_id)
    wire = made_wire(made)
    return json_answer(call, wire, index=made.log_index)


async def list_tokens(call: Call) -> web.Response:
    """GET /v1/acl/tokens."""
    call.need_acl()
    prefix = check_prefix(call.options.prefix, "acl token")

    def render(view: View) -> Callable[[ACLToken], dict[str, Any]]:
        roles = view.of(RoleRows)
        return lambda row: stub_wire(row, roles.name_of)

    return await list_rows(
        call, (TokenRows, RoleRows),
        lambda view: view.of(TokenRows).all().where(lambda row: row.accessor_id.startswith(prefix)),
        render=render, key=lambda row: (row.create_index, row.accessor_id),
    )  # fmt: skip


async def own_token(call: Call) -> web.Response:
    """GET /v1/acl/token/self: the caller's token; the anonymous one for a caller without."""
    call.need_acl()
    view, index = await changed_view(call, [TokenRows.watched()], lambda view: view.of(TokenRows).index)
    token = view.of(TokenRows).own() if token_text(call.request) else ANONYMOUS_TOKEN
    if token is None:
        return object_missing(call, MISSING, index)
    return read_answer(call, token_wire(token, view.of(RoleRows).name_of, secret=secret_text(call.request)), index)


async def read_token(call: Call) -> web.Response:
    """GET /v1/acl/token/:accessor: with its secret for its holder."""
    call.need_acl()
    accessor_id = check_uuid(call.part("id"), "acl token")
    watched = call.view().of(TokenRows).watched_of(accessor_id)
    view, index = await changed_view(call, [watched], lambda view: view.of(TokenRows).index_of(accessor_id))
    token = view.of(TokenRows).get(accessor_id)
    if token is None:
        if is_management(call.access):
            return object_missing(call, MISSING, index)
        raise Refused(403, DENIED)
    own = view.of(TokenRows).own()
    secret = secret_text(call.request) if own is not None and own.accessor_id == accessor_id else ""
    return read_answer(call, token_wire(token, view.of(RoleRows).name_of, secret=secret), index)


async def create_token(call: Call) -> web.Response:
    """PUT /v1/acl/token: a new token, if the body has no accessor id; otherwise as `update_token`."""
    call.need_acl()
    arrived_at = call.view().index
    body = await call.body(TokenBody)
    if body.accessor_id:
        return await _write(call, body, arrived_at)
    token = body.token()
    if token.is_global:
        need_authority(call)
    return _made(call, await refused(call.operations.acl_tokens.create(token)))


async def update_token(call: Call) -> web.Response:
    """PUT /v1/acl/token/:accessor: a changed token, or a new one with given ids."""
    call.need_acl()
    arrived_at = call.view().index
    body = await call.body(TokenBody)
    if body.accessor_id.lower() != call.part("id").lower():
        raise Refused(400, "ACL token accessor does not match request path")
    return await _write(call, body, arrived_at)


async def _write(call: Call, body: TokenBody, arrived_at: int) -> web.Response:
    """Change the token of an accessor id; with an unknown one and a secret, create it under both.

    `arrived_at`: the index of the state before the body was read, which can take long. A token that was revoked later
    was revoked while its caller was changing it.
    """
    token = body.token()
    if token.is_global:
        need_authority(call)
    if not body.secret_id:
        return _made(call, await refused(call.operations.acl_tokens.update(token)))
    seen_index = min(arrived_at, body.modify_index or arrived_at)
    return _made(call, await refused(call.operations.acl_tokens.put(token, body.secret_id, seen_index=seen_index)))


async def delete_token(call: Call) -> web.Response:
    """DELETE /v1/acl/token/:accessor: revokes it."""
    call.need_acl()
    accessor_id = call.part("id").lower()
    row = call.view().of(TokenRows).get(accessor_id)
    # An unknown one may be a global token that has not been copied yet: its revocation must not fail for that.
    if row is None or row.is_global:
        need_authority(call)
    try:
        return empty_answer(index=await call.operations.acl_tokens.delete(accessor_id))
    except NotFound as error:
        raise Refused(400, str(error)) from error


async def make_one_time(call: Call) -> web.Response:
    """PUT /v1/acl/token/onetime: a one-time token for the caller's own."""
    call.need_acl()
    token = call.view().of(TokenRows).own()
    if token is None:
        raise Refused(403, DENIED)
    secret = secret_text(call.request)
    if not secret:
        raise Refused(400, "A session makes no one-time token, as nobody knows its secret: show the token itself")
    made = await call.operations.acl_tokens.make_one_time(token, secret)
    call.access.name_object("acl/token", token.accessor_id)
    wire = {**to_wire(made.token), "OneTimeSecretID": made.secret}
    return json_answer(call, {"OneTimeToken": wire}, index=made.log_index)


async def exchange_one_time(call: Call) -> web.Response:
    """PUT /v1/acl/token/onetime/exchange: the token behind a one-time token, once."""
    call.need_acl()
    body = await call.body(ExchangeBody)
    made = await call.operations.acl_tokens.exchange_one_time(body.one_time_secret_id)
    call.access.name_object("acl/token", made.token.accessor_id)
    wire = made_wire(made)
    return json_answer(call, {"Token": wire}, index=made.log_index)
