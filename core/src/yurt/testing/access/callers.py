"""The HTTP application with access control, and requests with the tokens of several callers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from yurt.server.config import AclConfig
from yurt.testing.http_api import Api, HttpAnswer, serving

READ_PROD = 'namespace "prod" { policy = "read" }'


class Callers:
    """Sends requests with a chosen token: the management token by default, none for ""."""

    def __init__(self, api: Api, root: dict[str, Any]) -> None:
        self.api = api
        self.root = root
        """The token of the bootstrap."""

    async def call(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> HttpAnswer:
        """Send one request."""
        secret = self.root["SecretID"] if token is None else token
        headers = {"X-Nomad-Token": secret} if secret else {}
        return await self.api.call(method, path, body, headers=headers)

    async def get(self, path: str, *, token: str | None = None) -> HttpAnswer:
        """Send a GET."""
        return await self.call("GET", path, token=token)

    async def put(self, path: str, body: Any = None, *, token: str | None = None) -> HttpAnswer:
        """Send a PUT."""
        return await self.call("PUT", path, body, token=token)

    async def policy(self, name: str, rules: str = READ_PROD, **others: Any) -> None:
        """Store a policy."""
        answer = await self.put(f"/v1/acl/policy/{name}", {"Name": name, "Rules": rules, **others})
        assert answer.status == 200, answer.text

    async def token(self, *policies: str, **others: Any) -> dict[str, Any]:
        """Make a token with these policies."""
        answer = await self.put("/v1/acl/token", {"Type": "client", "Policies": list(policies), **others})
        assert answer.status == 200, answer.text
        made: dict[str, Any] = answer.json
        return made

    async def secret_for(self, rules: str) -> str:
        """The secret of a new token that may do what the rules say."""
        name = f"rules-{len((await self.get('/v1/acl/policies')).json)}"
        await self.policy(name, rules)
        secret: str = (await self.token(name))["SecretID"]
        return secret


@contextlib.asynccontextmanager
async def bootstrapped(**options: Any) -> AsyncIterator[Callers]:
    """Start an API with access control and bootstrap it; `options` are those of `serving`."""
    async with serving(acl=AclConfig(enabled=True), **options) as api:
        answer = await api.call("POST", "/v1/acl/bootstrap")
        assert answer.status == 200, answer.text
        yield Callers(api, answer.json)
