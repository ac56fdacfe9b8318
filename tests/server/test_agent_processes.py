"""A second agent that runs as a node, on a copy of its data directory, is refused; no other agent ever is."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.client.ports import ServerPort
from yurt.rpc.contract import contract_of
from yurt.sdk.errors import PermissionDenied, Unavailable
from yurt.structs.rpc import HeldIdentity, RegisterNodeRequest
from yurt.testing import factories
from yurt.testing.cluster_models.servers import connected

NODE = factories.node(secret_id="secret", status="initializing")
FIRST, SECOND = "10.0.0.1:4000", "10.0.0.2:4000"
PULL = contract_of(ServerPort)["pull_allocs"]


class Agent:
    """The process of an agent, with its connection to a server; `answers` while it lives."""

    def __init__(self, bench: Any, process: str, address: str) -> None:
        self.process = process
        self.answers = True
        self._server = bench.server
        self.client = connected(bench.server, NODE.id, "secret", on_standing=self._stand, address=address)

    def _stand(self, is_of_node: bool) -> None:
        self._server.clients.node_ports.detach(NODE.id, self)
        if is_of_node:
            self._server.clients.node_ports.attach(NODE.id, self)

    def disconnect(self) -> None:
        """The connection ends."""
        self._server.clients.node_ports.detach(NODE.id, self)

    async def agent_process(self) -> str:
        """What the servers ask."""
        if not self.answers:
            raise Unavailable("no answer")
        return self.process

    async def register(self) -> None:
        identity = HeldIdentity(process=self.process)
        await self.client.register_node(RegisterNodeRequest(node=NODE, identity=identity))

    async def beat(self) -> None:
        await self.client.heartbeat(NODE.id, "ready", HeldIdentity(process=self.process))

    async def pull(self) -> None:
        """Ask for allocations as a connection does: the caller is admitted first."""
        await self.client.admit(PULL.needs, PULL.pack((NODE.id,), {"min_index": 0, "timeout_s": 0}))
        await self.client.pull_allocs(NODE.id, min_index=0, timeout_s=0)


@pytest.fixture
async def first(bench: Any) -> Agent:
    """The agent that runs as the node."""
    made = Agent(bench, "one", FIRST)
    await made.register()
    return made


async def test_a_second_agent_is_refused_with_both_addresses_and_gets_no_allocations(bench: Any, first: Agent) -> None:
    second = Agent(bench, "two", SECOND)
    for _ in range(3):
        with pytest.raises(PermissionDenied, match=rf"{FIRST} is active, the one at {SECOND} is refused"):
            await second.register()
    with pytest.raises(PermissionDenied, match="another agent runs as this node"):
        await second.pull()
    await first.beat()
    await first.pull()
    told = [event for event in bench.server.state.nodes[NODE.id].events if "Second agent" in event.message]
    assert [event.details for event in told] == [{"active_address": FIRST, "refused_address": SECOND}]


async def test_a_second_agent_is_refused_by_a_leader_that_has_just_begun(bench: Any, first: Agent) -> None:
    bench.server.clients.local_calls._registrations._agent_processes._processes.clear()
    with pytest.raises(PermissionDenied, match="another agent runs as this node"):
        await Agent(bench, "two", SECOND).register()
    await first.beat()


async def test_an_agent_that_was_restarted_is_taken_whether_its_connection_ended_or_hangs(
    bench: Any, first: Agent
) -> None:
    first.disconnect()
    second = Agent(bench, "two", FIRST)
    await second.register()
    second.answers = False
    third = Agent(bench, "three", FIRST)
    await third.register()
    await third.beat()


async def test_an_agent_that_connects_anew_or_elsewhere_is_the_same_one(bench: Any, first: Agent) -> None:
    again = Agent(bench, "one", "10.0.0.1:4001")
    await again.beat()
    await again.register()
    await first.beat()


async def test_an_agent_that_comes_back_after_another_took_its_place_is_the_second_one(
    bench: Any, first: Agent
) -> None:
    first.answers = False
    second = Agent(bench, "two", SECOND)
    await second.register()
    first.answers = True
    with pytest.raises(PermissionDenied, match=rf"{SECOND} is active, the one at {FIRST} is refused"):
        await first.beat()
    second.disconnect()
    await first.beat()
    await first.pull()


async def test_an_agent_that_does_not_name_its_process_is_taken(bench: Any, first: Agent) -> None:
    await first.client.register_node(RegisterNodeRequest(node=NODE))
    await first.client.heartbeat(NODE.id, "ready")
