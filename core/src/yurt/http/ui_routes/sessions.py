"""Sessions of browsers: sign in with a secret, a one-time token, a JWT or OIDC; describe the caller; sign out.

The session travels as a cookie that no script can read (`yurt.http.authentication`). What it may do is decided for each
request from the token behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from yurt.access import Access, Actor, ShownToken, needs
from yurt.http.authentication import CLIENT_HEADER, COOKIE, SECURE_COOKIE, is_secure, secret_text, session_text
from yurt.http.call import AUTHORITY, Call, json_answer, prepare_rights
from yurt.http.errors import Refused
from yurt.http.resources.acl.login import CompleteAuthBody, LoginBody, by_jwt, by_oidc
from yurt.http.ui_routes.abilities import Decider, abilities
from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS, Value, replace, spelled
from yurt.server.views.acl import RoleRows, TokenRows
from yurt.server.views.cluster import NamespaceRows, NodePoolRows
from yurt.structs.acl import SECRET, hash_of_secret

if TYPE_CHECKING:
    from yurt.server.keys.sessions import SealedSession, Session

WRONG_SECRET: Final = "no token has this secret, or the token has expired"
HEADERS: Final = {"Cache-Control": "no-store"}


class SessionBody(Value, rename=spelled(redirect_uri="RedirectURI")):
    """One way to sign in; empty to renew the session."""

    secret_id: str = ""
    one_time_secret_id: str = ""
    auth_method_name: str = ""
    login_token: str = ""
    redirect_uri: str = ""
    client_nonce: str = ""
    state: str = ""
    code: str = ""
    iss: str = ""

    @property
    def ways(self) -> tuple[str, ...]:
        """The sign-in methods for which the body has values."""
        credentials = {
            "SecretID": self.secret_id,
            "OneTimeSecretID": self.one_time_secret_id,
            "LoginToken": self.login_token,
            "Code": self.code,
        }
        return tuple(name for name, text in credentials.items() if text)


async def describe(call: Call) -> web.Response:
    """GET /v1/yurt/session: the caller and his permissions."""
    session = None
    if call.settings.acl.enabled and (text := session_text(call.request)):
        session = await _opened(call, text)
    return await _described(call, session)


async def sign_in(call: Call) -> web.Response:
    """PUT /v1/yurt/session: a session for a credential, or an extension of the present one."""
    call.need_acl()
    if CLIENT_HEADER not in call.request.headers:
        raise Refused(400, f"signing in needs the header {CLIENT_HEADER}, so that no form of another site can do it")
    body = await call.body(SessionBody, optional=True)
    ways = body.ways
    if len(ways) > 1:
        raise Refused(400, f"sign in with one of {', '.join(ways)}")
    made = await (_begin(call, body, ways[0]) if ways else _renew(call))
    signed = await _as_holder(call, made.session.secret_hash)
    call.access.name_object("acl/token", _accessor(signed))
    answer = await _described(signed, made.session)
    _set_cookie(call, answer, made)
    return answer


async def sign_out(call: Call) -> web.Response:
    """DELETE /v1/yurt/session: the session ends, for copies of its cookie too, and the browser forgets it."""
    text = session_text(call.request)
    if text and call.settings.acl.enabled and (session := await _opened(call, text)) is not None:
        await call.operations.sessions.end(session)
    answer = web.Response(status=204, headers=HEADERS)
    answer.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
    if is_secure(call.request):
        answer.del_cookie(SECURE_COOKIE, path="/", secure=True, httponly=True, samesite="Strict")
    return answer


async def _begin(call: Call, body: SessionBody, way: str) -> SealedSession:
    """A session of the credential's token; raises Refused (403) for an invalid credential."""
    match way:
        case "SecretID":
            secret_hash = hash_of_secret(body.secret_id) if SECRET.fullmatch(body.secret_id) else ""
        case "OneTimeSecretID":
            made = await call.operations.acl_tokens.exchange_one_time(body.one_time_secret_id)
            secret_hash = made.token.secret_hash
        case "LoginToken":
            login = LoginBody(auth_method_name=body.auth_method_name, login_token=body.login_token)
            secret_hash = (await by_jwt(call, login)).token.secret_hash
        case _:
            ended = CompleteAuthBody(
                auth_method_name=body.auth_method_name, client_nonce=body.client_nonce, state=body.state,
                code=body.code, redirect_uri=body.redirect_uri, iss=body.iss,
            )  # fmt: skip
            secret_hash = (await by_oidc(call, ended)).token.secret_hash
    if not secret_hash or _identity_problem(call, secret_hash):
        raise Refused(403, WRONG_SECRET)
    return await call.operations.sessions.begin(secret_hash)


async def _renew(call: Call) -> SealedSession:
    text = session_text(call.request)
    if not text:
        raise Refused(400, "Nothing to sign in with: send SecretID, OneTimeSecretID, or a login of an auth method")
    try:
        session = await call.operations.sessions.opened(text)
    except Invalid as error:
        raise Refused(403, str(error)) from None
    if _identity_problem(call, session.secret_hash):
        raise Refused(403, "the token of this session was deleted or has expired: sign in again")
    return await call.operations.sessions.renew(session)


async def _opened(call: Call, text: str) -> Session | None:
    try:
        return await call.operations.sessions.opened(text)
    except Invalid:
        return None


def _identity_problem(call: Call, secret_hash: str) -> str:
    """Why a token gives no rights; "" where it does."""
    return call.request.app[AUTHORITY].identify(_holder(call, secret_hash)).problem


def _holder(call: Call, secret_hash: str) -> Actor:
    return Actor(caller=ShownToken(secret_hash=secret_hash), origin=call.actor.origin)


async def _as_holder(call: Call, secret_hash: str) -> Call:
    """The call as one of the token's holder."""
    actor = _holder(call, secret_hash)
    await prepare_rights(call.request, actor)
    access = Access(actor, call.access.need, call.request.app[AUTHORITY])
    return replace(call, access=access)


def _accessor(call: Call) -> str:
    own = call.view().of(TokenRows).own()
    return "" if own is None else own.accessor_id


async def _described(call: Call, session: Session | None) -> web.Response:
    authority, view, has_acl = call.request.app[AUTHORITY], call.view(), call.settings.acl.enabled
    own = view.of(TokenRows).own() if has_acl else None
    identity = authority.identify(call.actor)
    seen = view.narrowed(needs.each_row(needs.ANY_CAPABILITY)).of(NamespaceRows).all()
    pools = view.narrowed(needs.each_row(needs.node_pool(needs.NodePoolCapability.READ))).of(NodePoolRows).all()
    can = await abilities(
        Decider(authority, call.actor), (row.name for row in seen), (row.name for row in pools), call.turns
    )
    token: dict[str, Any] | None = None
    if own is not None:
        roles = view.of(RoleRows)
        token = {
            "AccessorID": own.accessor_id, "Name": own.name, "Type": own.type, "Global": own.is_global,
            "Policies": list(own.policies), "Roles": [roles.name_of(link.id) for link in own.roles],
            "ExpirationTime": own.expiration_time,
        }  # fmt: skip
    shown = secret_text(call.request) or session_text(call.request) or session is not None
    body = {
        "ACL": has_acl,
        "SignedIn": own is not None and not identity.problem,
        "Session": None if session is None else {
            "StartedAt": session.started_at, "IdleAt": session.idle_at, "EndsAt": session.ends_at,
        },
        "IsSecure": is_secure(call.request),
        "Token": token,
        "Problem": identity.problem if has_acl and shown else "",
        "Can": can,
    }  # fmt: skip
    answer = json_answer(call, body)
    answer.headers.update(HEADERS)
    return answer


def _set_cookie(call: Call, answer: web.Response, made: SealedSession) -> None:
    is_tls = is_secure(call.request)
    remaining_s = max(1, (made.session.idle_at - call.context.env.now()) // NANOSECONDS)
    answer.set_cookie(
        SECURE_COOKIE if is_tls else COOKIE,
        made.text,
        max_age=remaining_s,
        path="/",
        secure=is_tls,
        httponly=True,
        samesite="Strict",
    )
