"""The ID of the cluster: made once, kept by the log, and named in answers to clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from yurt.server.log.cluster_identity import cluster_id_of
from yurt.server.peers import NoPeers
from yurt.storage.memory import MemoryLog
from yurt.structs.commands import SetClusterID
from yurt.structs.commands.versions import RegionRules
from yurt.structs.rpc import RegisterNodeRequest
from yurt.structs.rules import CLUSTER_ID_RULES
from yurt.testing import factories

OLDER = RegionRules(version=CLUSTER_ID_RULES - 1, behind=("srv2.global",))


async def ids_in(log: MemoryLog) -> list[str]:
    """The IDs that the log's commands bring."""
    commands = [command async for entry in log.entries(0) for command in entry.commands]
    return [each.cluster_id for each in commands if isinstance(each, SetClusterID)]


async def test_a_new_cluster_has_an_id_before_its_first_client_and_keeps_it(run_server: Any) -> None:
    log = MemoryLog()
    async with run_server(log) as bench:
        made = cluster_id_of(bench.server.state)
        assert made and await ids_in(log) == [made]
    async with run_server(log) as bench:
        assert cluster_id_of(bench.server.state) == made and await ids_in(log) == [made]


async def test_answers_to_clients_name_the_cluster(run_server: Any) -> None:
    async with run_server() as bench:
        calls, node = bench.server.clients.calls, factories.node()
        registered = await calls.register_node(RegisterNodeRequest(node=node))
        beat = await calls.heartbeat(node.id, "initializing")
        listed = await calls.pull_allocs(node.id, min_index=0, timeout_s=0.0)
        assert {each.cluster_id for each in (registered, beat, listed)} == {cluster_id_of(bench.server.state)}


@pytest.mark.parametrize("call", ["register", "heartbeat"])
async def test_an_older_cluster_gets_an_id_from_its_clients_once_all_servers_know_of_it(
    run_server: Any, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(NoPeers, "rules", OLDER)
    log = MemoryLog()
    async with run_server(log) as bench:
        node = await bench.add_node()
        assert not cluster_id_of(bench.server.state) and not await ids_in(log)

        monkeypatch.setattr(NoPeers, "rules", RegionRules())
        calls = bench.server.clients.calls
        replies = await asyncio.gather(
            *(
                calls.heartbeat(node.id, "ready")
                if call == "heartbeat"
                else calls.register_node(RegisterNodeRequest(node=node))
                for _ in range(3)
            )
        )

        assert {each.cluster_id for each in replies} == {cluster_id_of(bench.server.state)}
        assert await ids_in(log) == [cluster_id_of(bench.server.state)]
