"""A fake OIDC provider on a loopback port whose answers, valid or not, a test chooses.

Real providers are in tests/http/login/test_providers.py and e2e/test_login.py: this one is for what they would not do.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@cache
def signing_key(key_id: str) -> rsa.RSAPrivateKey:
    """The private key of an id; the same for all tests of a process."""
    return rsa.generate_private_key(65537, 2048)


def encoded(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwk_of(key_id: str) -> Json:
    """The public half of a key."""
    numbers = signing_key(key_id).public_key().public_numbers()
    named = {"n": numbers.n, "e": numbers.e}
    octets = {name: encoded(value.to_bytes((value.bit_length() + 7) // 8, "big")) for name, value in named.items()}
    return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": key_id, **octets}


def signed(claims: Json, key_id: str = "k1", **header: Any) -> str:
    """A JWT signed by a key."""
    parts = {"alg": "RS256", "typ": "JWT", "kid": key_id, **header}, claims
    body = ".".join(encoded(json.dumps(part).encode()) for part in parts)
    return body + "." + encoded(signing_key(key_id).sign(body.encode(), padding.PKCS1v15(), hashes.SHA256()))


class FakeProvider:
    """The provider: its answers are attributes; `replaced` maps paths to handlers that replace its own."""

    def __init__(self) -> None:
        self.issuer = ""
        self.document: Json = {}
        self.key_ids = ["k1"]
        self.asked: list[str] = []
        self.forms: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.codes: dict[str, Json] = {}
        """Codes and the parameters of the authorization request for which they were given."""
        self.claims: Json = {"sub": "alice"}
        self.user_info: Json = {"sub": "alice"}
        self.replaced: dict[str, Handler] = {}
        self.keeps_codes = False
        """A lie: a code may be used again."""

    def authorize(self, query: Json) -> str:
        """An authorization code, as if the user had consented."""
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        return code

    def id_token(self, asked: Json, **changes: Any) -> str:
        """The ID token for an authorization request."""
        times = {"iat": 1_700_000_000, "exp": 4_000_000_000}
        fixed = {"iss": self.issuer, "aud": asked["client_id"], "nonce": asked["nonce"], **times}
        return signed({**fixed, **self.claims, **changes})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.asked.append(request.path)
        self.headers.append(dict(request.headers))
        if request.path in self.replaced:
            return await self.replaced[request.path](request)
        match request.path:
            case "/.well-known/openid-configuration":
                return web.json_response(self.document)
            case "/keys":
                return web.json_response({"keys": [jwk_of(key_id) for key_id in self.key_ids]})
            case "/token":
                return await self._token(request)
            case "/userinfo":
                return web.json_response(self.user_info)
        return web.Response(status=404)

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        asked = self.codes.get(form["code"]) if self.keeps_codes else self.codes.pop(form["code"], None)
        if asked is None or asked["redirect_uri"] != form["redirect_uri"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        challenge = encoded(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if asked.get("code_challenge", challenge) != challenge:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"id_token": self.id_token(asked), "access_token": "at", "token_type": "Bearer"})


async def hang(request: web.Request) -> web.StreamResponse:
    """A handler that never answers."""
    await asyncio.Event().wait()
    raise AssertionError


@asynccontextmanager
async def fake_provider() -> AsyncIterator[FakeProvider]:
    """A provider on a loopback port."""
    provider = FakeProvider()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", provider.answer)
    async with TestServer(app, shutdown_timeout=0.1) as server:
        issuer = provider.issuer = str(server.make_url("/")).rstrip("/")
        provider.document = {
            "issuer": issuer, "jwks_uri": f"{issuer}/keys", "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token", "userinfo_endpoint": f"{issuer}/userinfo",
        }  # fmt: skip
        yield provider
