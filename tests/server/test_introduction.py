"""Introductions of clients: who may register for the first time, and with which token."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from yurt.sdk.errors import Invalid, PermissionDenied, Unavailable
from yurt.sdk.value import replace
from yurt.server.clients.introduction import Introductions
from yurt.server.config import IntroductionConfig, ServerConfig
from yurt.server.server import Server
from yurt.storage.memory import MemoryLog
from yurt.structs.rpc import RegisterNodeRequest
from yurt.testing import factories
from yurt.testing.cluster_models.servers import connected
from yurt.testing.fakes import FakeEnv


def enforce(bench: Any, enforcement: str) -> Introductions:
    settings = IntroductionConfig(enforcement=enforcement)
    bench.server.clients.introductions._config = replace(bench.server.config, introduction=settings)
    return bench.server.clients.introductions


async def register(bench: Any, token: str, **given: Any) -> None:
    """The first registration of a new node over its connection."""
    node = replace(factories.node(), id=bench.env.uuid(), secret_id="secret", **given)
    client = connected(bench.server, node.id, "secret", intro_token=token)
    await client.register_node(RegisterNodeRequest(node=node))
    assert node.id in bench.server.state.nodes


async def test_a_token_lets_a_new_node_in_where_one_is_demanded(bench: Any) -> None:
    introductions = enforce(bench, "strict")
    with pytest.raises(PermissionDenied, match=r"no introduction token; make one with `yurt node intro create`"):
        await register(bench, "")
    await register(bench, await introductions.make())


async def test_a_token_is_for_its_node_its_pool_and_its_time(bench: Any) -> None:
    introductions = enforce(bench, "strict")
    token = await introductions.make(node_name="one", node_pool="gpu", ttl_s=60)
    with pytest.raises(PermissionDenied, match="for the node 'one'"):
        await register(bench, token, name="two", node_pool="gpu")
    with pytest.raises(PermissionDenied, match="for the node pool 'gpu'"):
        await register(bench, token, name="one")
    await register(bench, token, name="one", node_pool="gpu")
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["exp"] - claims["iat"] == 60
    assert (claims["nomad_node_name"], claims["nomad_node_pool"]) == ("one", "gpu")


async def test_a_token_expires(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    introductions = enforce(bench, "strict")
    token = await introductions.make(ttl_s=5)
    later = bench.env.now() + 6_000_000_000
    monkeypatch.setattr(bench.env, "now", lambda: later)
    with pytest.raises(PermissionDenied, match="has expired"):
        await register(bench, token)


@pytest.mark.parametrize("spoil", ["cut", "claims", "none", "other region", "noise", "key"])
async def test_what_no_key_of_the_region_has_signed_is_no_token(bench: Any, spoil: str) -> None:
    introductions = enforce(bench, "strict")
    head, body, signature = (await introductions.make(node_name="one")).split(".")
    wider = (
        base64.urlsafe_b64encode(json.dumps({"sub": "node-introduction:global:default::default"}).encode())
        .decode()
        .rstrip("=")
    )
    none = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "x"}).encode()).decode().rstrip("=")
    spoilt = {
        "cut": f"{head}.{body}.{signature[:-8]}", "claims": f"{head}.{wider}.{signature}", "none": f"{none}.{body}.",
        "noise": "\0é." * 3000, "key": f"{head[:-6]}.{body}.{signature}", "other region": "",
    }  # fmt: skip
    if spoil == "other region":
        here = introductions._config
        introductions._config = replace(here, region="mars")
        spoilt["other region"] = await introductions.make()
        introductions._config = here
    with pytest.raises(PermissionDenied):
        await register(bench, spoilt[spoil])


async def test_without_enforcement_a_node_registers_and_a_warning_says_what_is_missing(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    enforce(bench, "warn")
    await register(bench, "", name="new-one")
    assert "node registers without an introduction: name=new-one" in caplog.text
    assert "it brings no introduction token" in caplog.text
    assert bench.server.metrics.counters["client.introduction.violation"] == 1
    enforce(bench, "none")
    caplog.clear()
    await register(bench, "", name="quiet-one")
    assert "quiet-one" not in caplog.text


async def test_a_token_that_does_not_count_is_refused_where_none_is_demanded(bench: Any) -> None:
    introductions = enforce(bench, "warn")
    token = await introductions.make(node_name="one")
    with pytest.raises(PermissionDenied, match="for the node 'one'"):
        await register(bench, token, name="two")
    with pytest.raises(PermissionDenied, match="for the node pool 'default'"):
        await register(bench, token, name="one", node_pool="gpu")
    with pytest.raises(PermissionDenied, match="does not count"):
        await register(bench, "noise", name="one")
    enforce(bench, "none")
    await register(bench, "noise", name="two")


async def test_a_node_that_is_known_needs_its_secret_only(bench: Any) -> None:
    introductions = enforce(bench, "strict")
    node = replace(factories.node(), id=bench.env.uuid(), secret_id="secret")
    first = connected(bench.server, node.id, "secret", intro_token=await introductions.make())
    await first.register_node(RegisterNodeRequest(node=node))
    await connected(bench.server, node.id, "secret").register_node(RegisterNodeRequest(node=node))
    with pytest.raises(PermissionDenied, match="secret"):
        connected(bench.server, node.id, "guessed", intro_token=await introductions.make())


@pytest.mark.parametrize("ttl_s", [0.5, -1.0, 1801.0])
async def test_a_token_cannot_last_longer_than_the_servers_allow(bench: Any, ttl_s: float) -> None:
    with pytest.raises(Invalid, match="is not between 1s and 30m0s"):
        await enforce(bench, "warn").make(ttl_s=ttl_s)


def test_a_client_is_told_what_a_server_without_a_state_waits_for() -> None:
    server = Server(ServerConfig(name="s1"), env=FakeEnv(), log=MemoryLog())
    with pytest.raises(Unavailable, match="this server still reads its state; try again"):
        connected(server, "node", "secret")
    server.log.loader.awaits = "waits for its cluster to form"
    with pytest.raises(Unavailable, match="this server waits for its cluster to form; try again"):
        connected(server, "node", "secret")
