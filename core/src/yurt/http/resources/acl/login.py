"""Logins: a JWT, or an OIDC login in a browser, becomes a token. These routes need no token."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from yurt.http.call import Call, json_answer
from yurt.http.errors import Refused
from yurt.http.forwarding.regions import need_authority
from yurt.http.resources.acl.wire import made_wire
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value, spelled
from yurt.server.resources.acl_tokens import MadeToken
from yurt.server.views.acl import AuthMethodRows
from yurt.structs.acl import GLOBAL

TEXT_MAX = 4096
"""Characters of a name, nonce, address, state or code of a request."""


class LoginBody(Value):
    """A login by JWT."""

    auth_method_name: str = ""
    login_token: str = ""


class AuthURLBody(Value, rename=spelled(redirect_uri="RedirectURI")):
    """The beginning of a login by OIDC."""

    auth_method_name: str = ""
    redirect_uri: str = ""
    client_nonce: str = ""


class CompleteAuthBody(Value, rename=spelled(redirect_uri="RedirectURI")):
    """The parameters of the provider's callback."""

    auth_method_name: str = ""
    client_nonce: str = ""
    state: str = ""
    code: str = ""
    redirect_uri: str = ""
    iss: str = ""


async def log_in(call: Call) -> web.Response:
    """PUT /v1/acl/login: a token for a JWT."""
    call.need_acl()
    return _made(call, await by_jwt(call, await call.body(LoginBody)))


async def by_jwt(call: Call, body: LoginBody) -> MadeToken:
    """The token that a JWT gives; raises Invalid or PermissionDenied."""
    _need("login", {"auth method name": body.auth_method_name, "login token": body.login_token}, bounded=False)
    _need_authority(call, body.auth_method_name)
    return await call.operations.logins.by_jwt(body.auth_method_name, body.login_token)


async def auth_url(call: Call) -> web.Response:
    """PUT /v1/acl/oidc/auth-url: the URL that the browser opens."""
    from yurt.server.login.requests import Parties

    call.need_acl()
    body = await call.body(AuthURLBody)
    fields = {
        "auth method name": body.auth_method_name,
        "client nonce": body.client_nonce,
        "redirect URI": body.redirect_uri,
    }
    _need("OIDC auth-url", fields)
    _need_authority(call, body.auth_method_name)
    parties = Parties(body.auth_method_name, body.client_nonce, body.redirect_uri)
    return json_answer(call, {"AuthURL": await call.operations.logins.auth_url(parties)})


async def complete_auth(call: Call) -> web.Response:
    """PUT /v1/acl/oidc/complete-auth: a token for the callback's code."""
    call.need_acl()
    return _made(call, await by_oidc(call, await call.body(CompleteAuthBody)))


async def by_oidc(call: Call, body: CompleteAuthBody) -> MadeToken:
    """The token that a login by OIDC gives; raises Invalid or PermissionDenied."""
    from yurt.server.login.requests import Parties
    from yurt.server.login.service import CompleteAuth

    fields = {
        "auth method name": body.auth_method_name,
        "client nonce": body.client_nonce,
        "state": body.state,
        "code": body.code,
        "redirect URI": body.redirect_uri,
    }
    _need("OIDC complete-auth", fields)
    _need_authority(call, body.auth_method_name)
    parties = Parties(body.auth_method_name, body.client_nonce, body.redirect_uri)
    complete = CompleteAuth(parties, body.state, body.code, body.iss)
    return await call.operations.logins.by_oidc(complete)


def _need(request: str, fields: Mapping[str, str], *, bounded: bool = True) -> None:
    """Raises Invalid with all that is missing or too long."""
    problems = [f"missing {name}" for name, text in fields.items() if not text]
    problems += [f"{name} too long" for name, text in fields.items() if bounded and len(text) > TEXT_MAX]
    if problems:
        raise Invalid(f"invalid {request} request: {', '.join(problems)}")


def _need_authority(call: Call, name: str) -> None:
    """Leave a login to the authoritative region where its token is valid in all of them."""
    method = call.view().of(AuthMethodRows).get(name)
    if method is None:
        raise Refused(400, f'auth-method "{name[:140]}" not found')
    if method.token_locality == GLOBAL:
        need_authority(call)


def _made(call: Call, made: MadeToken) -> web.Response:
    wire = made_wire(made)
    return json_answer(call, wire, index=made.log_index)
