"""Logins by a provider that is not ours: `oidc-provider-mock`, which is built on Authlib, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

import aiohttp
from yurt.testing.login.site import REDIRECT, Site

ALICE = {"sub": "alice", "email": "alice@example.com", "groups": ["ops", "users"], "team": "web"}
START_S = 60.0


@asynccontextmanager
async def provider() -> AsyncIterator[str]:
    """The issuer's address."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "oidc_provider_mock", "-p", str(port), "-H", "127.0.0.1", "-n",
        "--user-claims", json.dumps(ALICE),
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        issuer = f"http://localhost:{port}"
        async with asyncio.timeout(START_S):
            while not await _answers(issuer):
                assert process.returncode is None, process.stderr and await process.stderr.read()
                await asyncio.sleep(0.1)
        yield issuer
    finally:
        process.terminate()
        await process.communicate()


async def _answers(issuer: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(issuer) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def callback(url: str, user: str = "alice", action: str = "") -> dict[str, str]:
    """What the provider tells the browser of a user who agrees, or does what `action` says."""
    form = {"action": action} if action else {"sub": user}
    async with aiohttp.ClientSession() as session, session.post(url, data=form, allow_redirects=False) as answer:
        location = answer.headers["Location"]
    assert location.startswith(REDIRECT)
    return dict(parse_qsl(urlsplit(location).query))


async def test_a_user_of_a_real_provider_logs_in(site: Site) -> None:
    async with provider() as issuer:
        config = {
            "OIDCDiscoveryURL": issuer, "OIDCClientID": "yurt", "OIDCClientSecret": "hush", "OIDCEnablePKCE": True,
            "OIDCScopes": ["email", "profile"], "AllowedRedirectURIs": [REDIRECT],
            "ClaimMappings": {"email": "email", "sub": "sub", "team": "team"},
            "ListClaimMappings": {"groups": "groups"},
        }  # fmt: skip
        await site.method("sso", "OIDC", config, TokenNameFormat="${auth_method_name} ${value.email}")
        await site.rule("sso", Selector='"ops" in list.groups and value.team == "web"')
        body = {"AuthMethodName": "sso", "RedirectURI": REDIRECT, "ClientNonce": "n1"}
        url = (await site.put("/v1/acl/oidc/auth-url", body)).json["AuthURL"]
        back = await callback(url)
        assert back["state"].startswith("st_")
        complete = {**body, "State": back["state"], "Code": back["code"], "Iss": back.get("iss", "")}
        made = await site.put("/v1/acl/oidc/complete-auth", complete)
        assert made.status == 200, made.text
        assert (made.json["Name"], made.json["Policies"]) == ("sso alice@example.com", ["deploy"])
        again = await site.put("/v1/acl/oidc/complete-auth", complete)
        assert (again.status, again.text) == (500, "no OIDC request found for client nonce")
        # Somebody else of the same provider has no rights here.
        url = (await site.put("/v1/acl/oidc/auth-url", body)).json["AuthURL"]
        back = await callback(url, user="mallory")
        other = await site.put("/v1/acl/oidc/complete-auth", {**body, "State": back["state"], "Code": back["code"]})
        assert (other.status, other.text, site.tokens) == (400, "no role or policy bindings matched", 1)


async def test_a_user_who_does_not_agree_gets_no_code(site: Site) -> None:
    async with provider() as issuer:
        config = {"OIDCDiscoveryURL": issuer, "OIDCClientID": "yurt", "OIDCClientSecret": "hush"}
        await site.method("sso", "OIDC", config)
        body = {"AuthMethodName": "sso", "RedirectURI": REDIRECT, "ClientNonce": "n1"}
        url = (await site.put("/v1/acl/oidc/auth-url", body)).json["AuthURL"]
        back = await callback(url, action="deny")
        assert back["error"] == "access_denied" and "code" not in back
        complete = {**body, "State": back.get("state", ""), "Code": ""}
        assert (await site.put("/v1/acl/oidc/complete-auth", complete)).status == 400
