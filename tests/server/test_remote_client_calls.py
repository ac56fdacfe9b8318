"""A client that is connected from elsewhere may ask all that the port of a client offers, for its own node."""

from __future__ import annotations

from typing import Any, cast

import pytest
from yurt.client.ports import ServerPort
from yurt.rpc.contract import contract_of
from yurt.sdk.errors import PermissionDenied, Unavailable
from yurt.server.clients.remote_clients import RemoteClient
from yurt.server.config import ServerConfig
from yurt.server.server import Server
from yurt.storage.memory import MemoryLog
from yurt.testing import factories
from yurt.testing.cluster_models.servers import connected
from yurt.testing.fakes import FakeEnv

PULL = contract_of(ServerPort)["pull_allocs"]


def test_every_call_of_the_port_is_served() -> None:
    calls = {name for name in vars(ServerPort) if not name.startswith("_")}
    assert calls
    assert not {name for name in calls if not callable(getattr(RemoteClient, name, None))}


async def test_nobody_connects_before_the_server_knows_its_nodes_and_their_secrets() -> None:
    server = Server(ServerConfig(name="s1"), env=FakeEnv(), log=MemoryLog())
    with pytest.raises(Unavailable, match="still reads its state"):
        connected(server, factories.node().id, "a guess")


async def test_a_connection_made_before_its_node_registered_must_know_the_nodes_secret_too(bench: Any) -> None:
    node = factories.node(secret_id="s\u00e9cret")
    early = connected(bench.server, node.id, "a gu\u00e9ss")
    own = connected(bench.server, node.id, node.secret_id)
    await bench.add_node(id=node.id, secret_id=node.secret_id)
    with pytest.raises(PermissionDenied, match="secret"):
        await early.admit(PULL.needs, PULL.pack((node.id,), {"min_index": 0, "timeout_s": 0}))
    with pytest.raises(PermissionDenied, match="secret"):
        connected(bench.server, node.id, "a guess")
    assert (await own.pull_allocs(node.id, min_index=0, timeout_s=0)).allocs == {}


async def test_a_node_whose_newest_connection_ended_is_reached_over_the_one_that_still_stands(bench: Any) -> None:
    node = await bench.add_node()
    older, newer = cast(Any, object()), cast(Any, object())
    bench.server.clients.node_ports.attach(node.id, older)
    bench.server.clients.node_ports.attach(node.id, newer)
    assert bench.server.clients.node_ports.find(node.id) is newer
    bench.server.clients.node_ports.detach(node.id, newer)
    assert bench.server.clients.node_ports.find(node.id) is older
    bench.server.clients.node_ports.detach(node.id, older)
    with pytest.raises(Unavailable, match="No path to node"):
        bench.server.clients.node_ports.find(node.id)
