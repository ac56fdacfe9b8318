"""The actor of a request: its token, and where it came from.

Where it came from is its address and certificate, or what the agent that passed it on says of them.

An agent puts a request that another agent passes on to its own HTTP address. What the frame between the agents says of
the request's origin goes with it in a header that is sealed: it counts only with a secret that this process made for
itself, so nobody else can set it. The header never leaves the process.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from typing import Final

import msgspec
from aiohttp import web
from multidict import istr

from yurt.access import Actor, Caller, InvalidToken, NoToken, Origin, ShownToken, Through
from yurt.http.edge.protocol import ApiProtocol
from yurt.http.forwarding_headers import ORIGIN
from yurt.sdk.value import replace
from yurt.structs.acl import SECRET, hash_of_secret

NO_TOKEN: Final = "the token is not the secret of an ACL token"

_SEAL: Final = secrets.token_urlsafe(32)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Origin).decode
TOKEN_HEADER: Final = istr("X-Nomad-Token")
SESSION_PREFIX: Final = "ys_"
"""How the text of a session begins (`yurt.server.keys.sessions`)."""
SECURE_COOKIE: Final = "__Host-yurt"
COOKIE: Final = "yurt"
"""The cookie of a session, with TLS and without."""
CLIENT_HEADER: Final = "X-Yurt-Client"
"""Pages of other sites cannot send it, as they would have to be allowed to first."""
ADDRESS_MAX: Final = 64
"""Letters of the address that a node may tell of its caller."""


def actor_of(request: web.Request) -> Actor:
    """The actor of a request: the token shown by the caller, and where the request came from."""
    return Actor(caller=caller_of(token_text(request)), origin=origin_of(request))


def token_text(request: web.Request) -> str:
    """A request's credential: the secret of X-Nomad-Token, else of `Authorization: Bearer`, else a browser's session;
    "" for none."""
    return secret_text(request) or session_text(request)


def shown_secret(request: web.Request) -> str:
    """What `token_text` is for a request that no browser sends, at half the cost where the token is in its header."""
    return request.headers.get(TOKEN_HEADER) or token_text(request)


def secret_text(request: web.Request) -> str:
    """The secret or identity in the headers of a request; "" for none."""
    shown = request.headers.get(TOKEN_HEADER, "").strip()
    if shown:
        return "" if shown.startswith(SESSION_PREFIX) else shown
    words = request.headers.get("Authorization", "").split()
    return words[1] if len(words) > 1 and words[0].lower() == "bearer" else ""


def session_text(request: web.Request) -> str:
    """The browser session of a request, from its cookie or as another agent forwards it; "" for none.

    A request that shows a secret has no session. With TLS the cookie without the prefix `__Host-` counts for nothing:
    a page of another port or over plain HTTP could have set it, and signed its reader in as somebody else.
    """
    headers = request.headers
    shown = headers.get(TOKEN_HEADER, "").strip()
    if shown or "Authorization" in headers:
        return shown if shown.startswith(SESSION_PREFIX) else ""
    if "Cookie" not in headers:
        return ""
    cookies = request.cookies
    cookie = cookies.get(SECURE_COOKIE, "")
    return cookie if cookie or is_secure(request) else cookies.get(COOKIE, "")


def session_problem(request: web.Request) -> str:
    """Why a session in a cookie is not accepted for a request; "" when it is.

    Browsers add cookies to what pages of other ports of the same host send, and forms and websockets ask nobody first.
    """
    if "Cookie" not in request.headers or not session_text(request):
        return ""
    if request.headers.get("Upgrade", "").lower() == "websocket":
        return "" if "Origin" in request.headers else "a websocket with the session of a browser needs Origin"
    if request.method in ("GET", "HEAD") or CLIENT_HEADER in request.headers:
        return ""
    return f"with the session of a browser, a request that changes something needs the header {CLIENT_HEADER}"


def is_secure(request: web.Request) -> bool:
    """Whether the caller's connection is encrypted, as far as this agent or a proxy in front of it knows."""
    return request.secure or request.headers.get("X-Forwarded-Proto", "").strip().lower() == "https"


def is_encodable(text: str) -> bool:
    """Whether a text was valid UTF-8; other bytes become surrogates, which frames between agents cannot carry."""
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def caller_of(text: str) -> Caller:
    """The caller of this text; an invalid token has no rights, not even those of anonymous callers."""
    if not text:
        return NoToken()
    return ShownToken(secret_hash=hash_of_secret(text)) if SECRET.fullmatch(text) else InvalidToken(problem=NO_TOKEN)


def origin_of(request: web.Request) -> Origin:
    """Where a request came from; facts about its connection are determined once."""
    return origin_over(connection_of(request), request)


def connection_of(request: web.Request) -> ApiProtocol | None:
    """The connection of a request, where facts about it can be kept; None for another server's, as in some tests."""
    protocol = request.protocol
    return protocol if isinstance(protocol, ApiProtocol) else None


def origin_over(connection: ApiProtocol | None, request: web.Request) -> Origin:
    """As `origin_of` for a request of this connection."""
    sealed = request.headers.get(ORIGIN)
    if sealed is not None and (origin := _opened(sealed)) is not None:
        return origin
    if connection is None:
        return _origin_of_connection(request)
    if connection.origin is None:
        connection.origin = _origin_of_connection(request)
    return connection.origin


def _origin_of_connection(request: web.Request) -> Origin:
    return Origin(address=request.remote or "", certificate_name=_certificate_name(request))


def sealed_origin(origin: Origin) -> str:
    """An origin for this agent's own HTTP API to believe."""
    return f"{_SEAL} {base64.urlsafe_b64encode(_encode(origin)).decode()}"


def _opened(sealed: str) -> Origin | None:
    """The origin; None for a header that this process has not made."""
    seal, _, text = sealed.partition(" ")
    if not hmac.compare_digest(seal.encode(errors="replace"), _SEAL.encode()):
        return None
    return _decode(base64.urlsafe_b64decode(text))


def through_server(origin: Origin, through: Through, name: str) -> Origin:
    """The origin of a request that a server forwards, which vouches for its account of earlier agents."""
    return origin if origin.through is not Through.NOBODY else replace(origin, through=through, relay=name)


def through_node(origin: Origin, node_id: str) -> Origin:
    """The origin of a request that a node passes on: only which node that is has been proven."""
    return Origin(address=origin.address[:ADDRESS_MAX], through=Through.NODE, relay=node_id)


def _certificate_name(request: web.Request) -> str:
    """The common name of the certificate that TLS has verified."""
    certificate = request.get_extra_info("peercert")
    if not certificate:
        return ""
    parts = (pair for part in certificate.get("subject", ()) for pair in part)
    return next((value for name, value in parts if name == "commonName"), "")
