"""An API with access control and a login provider that it trusts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from yurt.server.config import AclConfig
from yurt.testing.http_api import Api, HttpAnswer, serving
from yurt.testing.login.provider import FakeProvider, fake_provider, signed

WRITE_PROD = 'namespace "prod" { policy = "write" }'
REDIRECT = "http://localhost:4649/oidc/callback"


class Site:
    """An API, its management token, and the provider."""

    def __init__(self, api: Api, secret: str, provider: FakeProvider) -> None:
        self.api = api
        self.secret = secret
        self.provider = provider

    async def put(self, path: str, body: Any = None, *, token: str = "") -> HttpAnswer:
        """Send a PUT with a token or without."""
        headers = {"X-Nomad-Token": token} if token else {}
        return await self.api.call("PUT", path, body, headers=headers)

    async def manage(self, path: str, body: Any) -> Any:
        """Send a PUT with the management token; it must succeed."""
        answer = await self.put(path, body, token=self.secret)
        assert answer.status == 200, answer.text
        return answer.json if answer.text else None

    async def method(self, name: str, kind: str, config: Any, **others: Any) -> None:
        """Store a login method."""
        method = {"Name": name, "Type": kind, "TokenLocality": "local", "MaxTokenTTL": "10m", "Config": config}
        await self.manage("/v1/acl/auth-method", {**method, **others})

    async def jwt_method(self, name: str = "ci", **config: Any) -> None:
        """Store a method for JWTs of the provider."""
        source = {} if {"JWTValidationPubKeys", "OIDCDiscoveryURL"} & set(config) else {"JWKSURL": self.keys_url}
        await self.method(name, "JWT", {**source, "ClaimMappings": {"team": "team"}, **config})

    async def oidc_method(self, name: str = "sso", **config: Any) -> None:
        """Store a method for logins through the provider."""
        fixed = {"OIDCDiscoveryURL": self.provider.issuer, "OIDCClientID": "yurt", "OIDCClientSecret": "hush",
                 "ClaimMappings": {"team": "team"}, "ListClaimMappings": {"groups": "groups"}}  # fmt: skip
        await self.method(name, "OIDC", {**fixed, **config})

    async def rule(self, method: str, **others: Any) -> None:
        """Store a binding rule, by default one that grants the policy `deploy`."""
        fixed = {"AuthMethod": method, "BindType": "policy", "BindName": "deploy"}
        await self.manage("/v1/acl/binding-rule", {**fixed, **others})

    @property
    def keys_url(self) -> str:
        """The URL of the provider's keys."""
        return f"{self.provider.issuer}/keys"

    async def log_in(self, token: str, method: str = "ci") -> HttpAnswer:
        """Log in by JWT."""
        return await self.put("/v1/acl/login", {"AuthMethodName": method, "LoginToken": token})

    async def begin(self, method: str = "sso", nonce: str = "n1", redirect: str = REDIRECT) -> dict[str, str]:
        """Begin a login by OIDC; returns the parameters of the redirect to the provider."""
        body = {"AuthMethodName": method, "RedirectURI": redirect, "ClientNonce": nonce}
        answer = await self.put("/v1/acl/oidc/auth-url", body)
        assert answer.status == 200, answer.text
        url = urlsplit(answer.json["AuthURL"])
        assert f"{url.scheme}://{url.netloc}{url.path}" == f"{self.provider.issuer}/authorize"
        return dict(parse_qsl(url.query, strict_parsing=True))

    async def complete(self, query: dict[str, str], code: str | None = None, **changes: str) -> HttpAnswer:
        """Complete a login by OIDC with a code; by default a user has consented."""
        code = self.provider.authorize(query) if code is None else code
        body = {"AuthMethodName": "sso", "ClientNonce": "n1", "State": query["state"], "Code": code,
                "RedirectURI": query["redirect_uri"]}  # fmt: skip
        return await self.put("/v1/acl/oidc/complete-auth", {**body, **changes})

    @property
    def tokens(self) -> int:
        """The number of tokens, the management token excluded."""
        return len(self.api.server.state.acl_tokens) - 1


@asynccontextmanager
async def login_site(folder: Path) -> AsyncIterator[Site]:
    """An API with access control and a policy `deploy`."""
    async with fake_provider() as provider, serving(acl=AclConfig(enabled=True), data_dir=str(folder)) as api:
        answer = await api.call("POST", "/v1/acl/bootstrap")
        made = Site(api, answer.json["SecretID"], provider)
        await made.manage("/v1/acl/policy/deploy", {"Name": "deploy", "Rules": WRITE_PROD})
        yield made


def now_s() -> int:
    """The time in seconds."""
    return int(time.time())


def jwt(**claims: Any) -> str:
    """A JWT that a login method accepts."""
    times = {"iat": now_s(), "exp": now_s() + 300}
    return signed({"iss": "https://ci.example.com", "sub": "job", "team": "web", **times, **claims})
