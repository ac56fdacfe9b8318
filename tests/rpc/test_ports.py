"""The ports between servers and clients, as they travel: no call is forgotten, and a client works over the codec."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

from yurt.access.calls import CallerKind, ProvenCaller
from yurt.client.client import Client, Surroundings
from yurt.client.config import ClientConfig
from yurt.client.node_calls import NodeCalls
from yurt.client.ports import ServerPort
from yurt.client.servers.node_token import identified
from yurt.rpc.contract import contract_of
from yurt.rpc.peer import Peer, Served
from yurt.rpc.proxy import far_port
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import ExitResult
from yurt.server.clients.client_calls import ClientCalls
from yurt.server.clients.remote_clients import RemoteClient
from yurt.server.ports import NodePort
from yurt.storage.client_db import ClientDatabase
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING, JOB_BATCH
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.cluster_models.wires import joined_peers
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually


def parameters(owner: type, name: str) -> list[str]:
    return [each for each in inspect.signature(getattr(owner, name)).parameters if each != "self"]


def test_every_call_of_a_client_is_offered_to_clients_elsewhere() -> None:
    for name in contract_of(ServerPort):
        for owner in (RemoteClient, ClientCalls, FakeServerPort):
            assert parameters(owner, name) == parameters(ServerPort, name), f"{owner.__name__}.{name}"


def test_every_call_of_a_server_is_carried_out_by_a_client() -> None:
    for name in contract_of(NodePort):
        assert parameters(NodeCalls, name) == parameters(NodePort, name), name


def always(peer: Peer) -> Any:
    async def get() -> Peer:
        return peer

    return get


async def test_a_client_runs_an_allocation_over_the_codec_and_is_asked_back(tmp_path: Path) -> None:
    server, driver, database, env = FakeServerPort(), FakeDriver(), ClientDatabase(None), RealEnv()
    serves: dict[str, Served] = {}
    async with joined_peers(
        serves, {"server": Served(contract_of(ServerPort), server, ProvenCaller(kind=CallerKind.NODE))}
    ) as (near, far):
        client = Client(
            ClientConfig(state_dir=str(tmp_path / "state"), alloc_dir=str(tmp_path / "alloc"), dev=True),
            env,
            Surroundings(
                identity=await identified(database, env),
                server=far_port(contract_of(ServerPort), "server", always(near)),
                database=database,
                drivers={driver.name: driver},
            ),
        )
        serves["node"] = Served(contract_of(NodePort), client.calls, ProvenCaller(kind=CallerKind.SERVER))
        node: NodePort = far_port(contract_of(NodePort), "node", always(far))
        ready = asyncio.Event()
        running = asyncio.ensure_future(client.run(ready=ready))
        await asyncio.wait_for(ready.wait(), 20)

        alloc = placed(client.node_id, job=factories.job(type=JOB_BATCH))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        (Path(client.config.alloc_dir) / alloc.id / "alloc" / "data" / "word").write_text("written")
        assert [entry.name for entry in await node.list_files(alloc.id, "alloc/data")] == ["word"]
        pieces = [piece async for piece in node.read_file(alloc.id, "alloc/data/word", offset=2, limit=3)]
        assert b"".join(pieces) == b"itt"
        assert (await node.host_stats()).timestamp > 0
        driver.finish(f"{alloc.id}/web/0", ExitResult(exit_code=0))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)

        running.cancel()
        await asyncio.wait({running})
    await database.close()
