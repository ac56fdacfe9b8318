"""Logins on three servers: begun at one, completed at another after the leader was killed, once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from yurt.testing.agent import ApiFailure, wait_for
from yurt.testing.login.provider import FakeProvider, fake_provider, signed
from yurt.testing.real_cluster import LEADERLESS, ServerAgent, real_cluster

REDIRECT = "http://localhost:4649/oidc/callback"
START_S = 30.0


@contextmanager
def provider_in_thread() -> Iterator[FakeProvider]:
    """A provider on a loop of its own."""
    found: list[FakeProvider] = []
    is_up, loops = threading.Event(), []

    async def serve() -> None:
        is_over = asyncio.Event()
        loops.append((asyncio.get_running_loop(), is_over))
        async with fake_provider() as provider:
            found.append(provider)
            is_up.set()
            await is_over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert is_up.wait(START_S)
        yield found[0]
    finally:
        loop, is_over = loops[0]
        loop.call_soon_threadsafe(is_over.set)
        thread.join()


def eventually(server: ServerAgent, path: str, body: Any, token: str = "") -> Any:
    """The answer to a write, which is sent again while nobody leads."""

    def answer() -> tuple[Any] | None:
        try:
            return (server.call("PUT", path, body, token=token),)
        except ApiFailure as failure:
            if any(words in failure.text for words in LEADERLESS):
                return None
            raise

    return wait_for(path, answer)[0]


def test_a_login_outlives_its_leader_and_is_used_once(tmp_path: Path) -> None:
    with provider_in_thread() as provider, real_cluster(tmp_path, settings={"acl": {"enabled": True}}) as cluster:
        provider.keeps_codes = True
        leader = cluster.wait_leader()
        root = eventually(leader, "/v1/acl/bootstrap", {})["SecretID"]
        config = {"OIDCDiscoveryURL": provider.issuer, "OIDCClientID": "yurt", "OIDCClientSecret": "hush",
                  "OIDCEnablePKCE": True}  # fmt: skip
        fixed = {"TokenLocality": "local", "MaxTokenTTL": "10m"}
        leader.call("PUT", "/v1/acl/policy/web", {"Name": "web", "Rules": 'node { policy = "read" }'}, token=root)
        method = {"Name": "sso", "Type": "OIDC", "Config": config, **fixed}
        leader.call("PUT", "/v1/acl/auth-method", method, token=root)
        jwt_method = {"Name": "ci", "Type": "JWT", "Config": {"JWKSURL": f"{provider.issuer}/keys"}, **fixed}
        leader.call("PUT", "/v1/acl/auth-method", jwt_method, token=root)
        for name in ("sso", "ci"):
            rule = {"AuthMethod": name, "BindType": "policy", "BindName": "web"}
            leader.call("PUT", "/v1/acl/binding-rule", rule, token=root)
        first, second = cluster.followers()
        parties = {"AuthMethodName": "sso", "RedirectURI": REDIRECT, "ClientNonce": "n1"}
        url = eventually(first, "/v1/acl/oidc/auth-url", parties)["AuthURL"]
        query = dict(parse_qsl(urlsplit(url).query))
        code = provider.authorize(query)

        leader.kill()
        complete = {**parties, "State": query["state"], "Code": code}
        token = eventually(second, "/v1/acl/oidc/complete-auth", complete)
        assert token["Policies"] == ["web"] and second.get("/v1/nodes", token=token["SecretID"]) == []
        for server in (first, second):
            try:
                eventually(server, "/v1/acl/oidc/complete-auth", complete)
            except ApiFailure as failure:
                assert (failure.status, failure.text) == (500, "no OIDC request found for client nonce")
            else:
                raise AssertionError("a login was used twice")
        claims = {"sub": "job", "iat": int(time.time()), "exp": int(time.time()) + 300}
        made = eventually(first, "/v1/acl/login", {"AuthMethodName": "ci", "LoginToken": signed(claims)})
        assert made["Policies"] == ["web"]
        # The secret of the provider's client lies in no file of any server.
        for path in (each for each in tmp_path.rglob("*") if each.is_file()):
            assert b"hush" not in path.read_bytes(), path
