"""Identities of nodes: when the servers hand one out, what it says, and what it is good for."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from yurt.sdk.errors import PermissionDenied
from yurt.sdk.value import Duration, replace, seconds
from yurt.server.clients.node_identities import SIGNING_MAX
from yurt.server.config import IntroductionConfig
from yurt.structs.cluster import NodePool
from yurt.structs.commands import UpsertNodePools
from yurt.structs.node import Node
from yurt.structs.rpc import HeldIdentity, NodeReply, RegisterNodeRequest
from yurt.testing import factories
from yurt.testing.cluster_models.servers import connected

DAY_S = 24 * 3600
NONE = HeldIdentity()


def claims_of(token: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    return found


def held_of(token: str, **changes: Any) -> HeldIdentity:
    """What a node says that holds the token."""
    head, _, _ = token.partition(".")
    header, claims = json.loads(base64.urlsafe_b64decode(head + "==")), claims_of(token)
    return HeldIdentity(**{"key_id": header["kid"], "issued_at": claims["iat"], "expires_at": claims["exp"]} | changes)


def new_node(bench: Any, **given: Any) -> Node:
    return replace(factories.node(status="initializing"), id=bench.env.uuid(), secret_id="secret", **given)


async def register(bench: Any, node: Node, identity: HeldIdentity | None = NONE, token: str = "") -> NodeReply:
    """A registration over the node's connection, on a server that has a key."""
    await bench.server.keys.root_keys.active()
    client = connected(bench.server, node.id, "secret")
    return await client.register_node(RegisterNodeRequest(node=node, identity=identity, token=token))


async def test_a_node_gets_its_identity_when_it_registers(bench: Any) -> None:
    node = new_node(bench, node_class="big", datacenter="dc2")
    reply = await register(bench, node)
    claims = claims_of(reply.identity)
    now = bench.env.now() // 1_000_000_000
    assert claims.pop("jti")
    assert claims == {
        "aud": "nomadproject.io", "exp": now + DAY_S, "iat": now, "nbf": now, "nomad_node_class": "big",
        "nomad_node_datacenter": "dc2", "nomad_node_id": node.id, "nomad_node_pool": "default",
        "sub": f"node:global:default:{node.id}:default",
    }  # fmt: skip


async def test_the_pool_says_how_long_an_identity_lasts(bench: Any) -> None:
    await bench.server.replica.propose(UpsertNodePools(pools=(NodePool(name="gpu", node_identity_ttl=seconds(3600)),)))
    claims = claims_of((await register(bench, new_node(bench, node_pool="gpu"))).identity)
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["sub"].startswith("node:global:gpu:")


async def test_an_agent_that_knows_no_identities_is_served_by_its_secret(bench: Any) -> None:
    node = new_node(bench)
    assert (await register(bench, node, identity=None)).identity == ""
    client = connected(bench.server, node.id, "secret")
    assert (await client.heartbeat(node.id, "ready")).identity == ""
    with pytest.raises(PermissionDenied, match="secret"):
        connected(bench.server, node.id, "guessed")


@pytest.mark.parametrize(("passed_s", "is_new"), [(0, False), (0.66 * DAY_S, False), (0.68 * DAY_S, True)])
async def test_an_identity_is_replaced_after_two_thirds_of_its_time(
    bench: Any, monkeypatch: pytest.MonkeyPatch, passed_s: float, is_new: bool
) -> None:
    node = new_node(bench)
    token = (await register(bench, node)).identity
    later = bench.env.now() + round(passed_s * 1e9)
    monkeypatch.setattr(bench.env, "now", lambda: later)
    reply = await bench.server.clients.calls.heartbeat(node.id, "ready", held_of(token))
    assert bool(reply.identity) is is_new


async def test_an_identity_is_replaced_when_the_node_asks_and_when_its_key_is_gone(bench: Any) -> None:
    node = new_node(bench)
    token = (await register(bench, node)).identity
    asked = await bench.server.clients.calls.heartbeat(node.id, "ready", held_of(token, must_renew=True))
    assert claims_of(asked.identity)["jti"] != claims_of(token)["jti"]
    await bench.server.keys.root_keys.rotate(is_full=True)
    assert not (await bench.server.clients.calls.heartbeat(node.id, "ready", held_of(token))).identity
    await bench.server.keys.root_keys.remove(held_of(token).key_id, is_forced=True)
    again = await bench.server.clients.calls.heartbeat(node.id, "ready", held_of(token))
    assert held_of(again.identity).key_id != held_of(token).key_id


async def test_many_nodes_at_once_do_not_wait_for_signatures(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [new_node(bench) for _ in range(SIGNING_MAX + 3)]
    for node in nodes:
        await register(bench, node, identity=None)
    gate = asyncio.Event()
    active = bench.server.keys.root_keys.active

    async def slow() -> Any:
        await gate.wait()
        return await active()

    monkeypatch.setattr(bench.server.keys.root_keys, "active", slow)
    async with asyncio.TaskGroup() as tasks:
        beats = [tasks.create_task(bench.server.clients.calls.heartbeat(node.id, "ready", NONE)) for node in nodes]
        await bench.until(lambda: sum(beat.done() for beat in beats) == 3)
        assert all(not beat.result().identity for beat in beats if beat.done())
        gate.set()
    assert sum(bool(beat.result().identity) for beat in beats) == SIGNING_MAX


@pytest.mark.parametrize("spoil", ["", "none", "pool", "other node", "expired"])
async def test_a_node_that_was_forgotten_comes_back_with_its_identity(
    bench: Any, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    node = new_node(bench)
    token = (await register(bench, node)).identity
    strict = IntroductionConfig(enforcement="strict")
    bench.server.clients.introductions._config = replace(bench.server.config, introduction=strict)
    await bench.server.resources.nodes.purge(node.id)
    if spoil == "none":
        token = ""
    elif spoil == "pool":
        node = replace(node, node_pool="gpu")
    elif spoil == "other node":
        node = new_node(bench)
    elif spoil == "expired":
        later = bench.env.now() + round((DAY_S + 1) * 1e9)
        monkeypatch.setattr(bench.env, "now", lambda: later)
    if spoil:
        with pytest.raises(PermissionDenied, match="is not introduced"):
            await register(bench, node, token=token)
    else:
        await register(bench, node, token=token)
        assert node.id in bench.server.state.nodes


async def test_a_ttl_below_a_second_counts_as_one(bench: Any) -> None:
    await bench.server.replica.propose(UpsertNodePools(pools=(NodePool(name="gpu", node_identity_ttl=Duration(5)),)))
    claims = claims_of((await register(bench, new_node(bench, node_pool="gpu"))).identity)
    assert claims["exp"] - claims["iat"] == 1
