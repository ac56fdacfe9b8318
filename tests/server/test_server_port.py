"""What a client may rely on at its servers: held against the leader, a server that follows, and over the codec."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from yurt.client.ports import ServerPort
from yurt.rpc.contract import contract_of
from yurt.rpc.peer import Peer, Served
from yurt.rpc.proxy import far_port
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied, Unavailable, YurtError
from yurt.sdk.value import replace, seconds
from yurt.server.config import IntroductionConfig
from yurt.server.resources.disk_migration import SILENCE_LIMIT_S
from yurt.server.server import Server
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AllocUpdate
from yurt.structs.node import DrainSpec, Node, NodeEvent
from yurt.structs.queueing.gang import GangQuery
from yurt.structs.rpc import (
    HeldIdentity,
    IdentityQuery,
    NodeEventsRequest,
    RegisterNodeRequest,
    ShownCredential,
    TemplateQuery,
    UpdateAllocsRequest,
)
from yurt.structs.service import ServiceRegistration
from yurt.structs.volumes.csi import CSIClaimQuery
from yurt.testing import factories
from yurt.testing.cluster_models.servers import NAMES, ServerGroup, connected
from yurt.testing.cluster_models.wires import joined_peers
from yurt.testing.fakes import FakeEnv, eventually

LEADER, FOLLOWER, _ = NAMES
HOUR = DrainSpec(deadline=seconds(3600))
OTHER = "33333333-2222-4333-8444-555555555555"


class Place:
    """A node that is connected to one of three servers, and the allocation that it runs."""

    def __init__(self, group: ServerGroup, port: ServerPort, node: Node) -> None:
        self.group = group
        self.port = port
        self.node = node
        self.alloc: Allocation = factories.alloc()

    @property
    def leader(self) -> Server:
        """The server that leads."""
        return self.group[LEADER]

    async def run_job(self, **changes: Any) -> None:
        """A job with one allocation, which the servers all know."""
        await self.leader.resources.jobs.register(factories.job(**changes))
        await eventually(lambda: all(server.state.allocs for server in self.group.servers.values()))
        (self.alloc,) = self.leader.state.allocs.values()

    @property
    def eligibility(self) -> str:
        """The node's, at the leader."""
        return self.leader.state.nodes[self.node.id].scheduling_eligibility

    async def wait_drained(self) -> None:
        """Wait until the node's drain is complete."""

        def is_complete() -> bool:
            last = self.leader.state.nodes[self.node.id].last_drain
            return last is not None and last.status == "complete"

        await eventually(is_complete)

    async def told(self, status: str) -> int:
        """The node reports on its allocation."""
        update = AllocUpdate(id=self.alloc.id, node_id=self.node.id, client_status=status)
        return await self.port.update_allocs(UpdateAllocsRequest(node_id=self.node.id, updates=(update,)))


def always(peer: Peer) -> Any:
    async def get() -> Peer:
        return peer

    return get


@pytest.fixture(params=["leader", "follower"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A ready node; the calls go to the server that the test is run for."""
    async with ServerGroup(FakeEnv()).running() as group:
        await eventually(lambda: group[LEADER].is_leader)
        node = factories.node(status="initializing", secret_id="secret")
        server = group[LEADER if request.param == "leader" else FOLLOWER]
        client = connected(server, node.id, "secret")
        served = {"server": Served(contract_of(ServerPort), client, client)}
        async with joined_peers({}, served) as (near, _):
            port: Any = far_port(contract_of(ServerPort), "server", always(near))
            await port.register_node(RegisterNodeRequest(node=node))
            assert (await port.heartbeat(node.id, "ready")).node_status == "ready"
            yield Place(group, port, node)


async def test_registration_and_heartbeats_tell_of_the_servers_and_of_the_next_beat(place: Place) -> None:
    again = await place.port.register_node(RegisterNodeRequest(node=place.node))
    beat = await place.port.heartbeat(place.node.id, "ready")
    for reply in (again, beat):
        assert reply.servers == ("10.0.0.1:4647", "10.0.0.2:4647", "10.0.0.3:4647")
        assert 10 <= reply.heartbeat_ttl_s <= 20
    with pytest.raises(Invalid, match="invalid status"):
        await place.port.heartbeat(place.node.id, "happy")
    await place.leader.resources.nodes.purge(place.node.id)
    with pytest.raises(NotFound):
        await place.port.heartbeat(place.node.id, "ready")


async def test_identities_come_with_both(place: Place) -> None:
    await place.leader.keys.root_keys.active()
    registered = await place.port.register_node(RegisterNodeRequest(node=place.node, identity=HeldIdentity()))
    beaten = await place.port.heartbeat(place.node.id, "ready", HeldIdentity(must_renew=True))
    assert registered.identity and beaten.identity and registered.identity != beaten.identity


async def test_a_pull_waits_for_a_change_and_a_batch_brings_it(place: Place) -> None:
    first = await place.port.pull_allocs(place.node.id, min_index=0, timeout_s=1)
    assert first.allocs == {}
    async with asyncio.TaskGroup() as tasks:
        pulling = tasks.create_task(place.port.pull_allocs(place.node.id, min_index=first.index, timeout_s=20))
        await place.run_job()
    pulled = pulling.result()
    assert set(pulled.allocs) == {place.alloc.id} and pulled.index > first.index
    batch = await place.port.get_allocs(place.node.id, (place.alloc.id, OTHER))
    assert [(alloc.id, alloc.job.id if alloc.job else "") for alloc in batch.allocs] == [(place.alloc.id, "web")]


async def test_reports_are_stored_where_the_node_may_speak(place: Place) -> None:
    await place.run_job()
    index = await place.told("running")
    await eventually(lambda: place.group[FOLLOWER].state.index >= index)
    assert place.leader.state.allocs[place.alloc.id].client_status == "running"
    await place.leader.clients.node_service.missed(place.node.id)
    with pytest.raises(YurtError, match="not allowed to update allocs"):
        await place.told("complete")


async def test_services_come_and_go(place: Place) -> None:
    await place.run_job()
    service = factories.service(place.alloc)
    assert await place.port.register_services(place.node.id, (service,)) > 0
    assert service.id in place.leader.state.services
    for _ in range(2):
        await place.port.deregister_services(place.node.id, (service.id,))
    assert service.id not in place.leader.state.services


async def test_a_node_drains_itself_and_is_eligible_once_its_agent_is_back(place: Place) -> None:
    await place.port.drain_node(place.node.id, HOUR)
    await place.wait_drained()
    assert place.eligibility == "ineligible"

    await place.port.drain_node(place.node.id, None)
    assert place.eligibility == "eligible"


async def test_the_end_of_a_nodes_own_drain_undoes_nothing_of_an_operator(place: Place) -> None:
    await place.port.drain_node(place.node.id, HOUR)
    await place.wait_drained()
    await place.port.drain_node(place.node.id, None)

    await place.leader.resources.nodes.set_eligibility(place.node.id, "ineligible")
    await place.port.drain_node(place.node.id, None)
    assert place.eligibility == "ineligible"
    await place.port.drain_node(place.node.id, HOUR)
    await place.wait_drained()
    await place.port.drain_node(place.node.id, None)
    assert place.eligibility == "ineligible"


async def test_a_nodes_own_drain_changes_no_drain_of_an_operator(place: Place) -> None:
    await place.run_job()
    await place.told("running")
    forever = DrainSpec()
    await place.leader.resources.nodes.drain(place.node.id, forever, mark_eligible=False)

    await place.port.drain_node(place.node.id, HOUR)
    await place.port.drain_node(place.node.id, None)

    strategy = place.leader.state.nodes[place.node.id].drain_strategy
    assert strategy is not None and strategy.drain_spec == forever


async def test_events_are_the_nodes(place: Place) -> None:
    event = NodeEvent(message="said by the client", subsystem="Test")
    await place.port.emit_events(NodeEventsRequest(node_id=place.node.id, events=(event,)))
    assert place.leader.state.nodes[place.node.id].events[-1].message == "said by the client"


class Holder:
    """A node that has the data of an allocation."""

    async def pack_disk(self, alloc_id: str) -> AsyncGenerator[bytes]:
        yield b"data of "
        yield alloc_id.encode()


class HangingHolder:
    """A node whose agent hangs: its connection stays."""

    def __init__(self) -> None:
        self.is_asked = False

    async def pack_disk(self, alloc_id: str) -> AsyncGenerator[bytes]:
        self.is_asked = True
        await asyncio.Event().wait()
        yield b""


async def replaced_at(place: Place, holder: object) -> Allocation:
    """The replacement of an allocation that has ended on the node, whose data the holder has."""
    await place.run_job()
    before = place.alloc
    place.group[NAMES[2]].clients.node_ports.attach(place.node.id, holder)  # type: ignore[arg-type]
    await place.leader.resources.allocs.stop(before.id)
    await place.told("complete")
    await eventually(lambda: len(place.group[FOLLOWER].state.allocs) == 2)
    after = next(alloc for alloc in place.leader.state.allocs.values() if alloc.id != before.id)
    assert after.previous_allocation == before.id
    return after


async def test_the_disk_of_a_predecessor_is_fetched_from_its_node(place: Place) -> None:
    after = await replaced_at(place, Holder())
    pieces = [piece async for piece in place.port.fetch_disk(place.node.id, after.id)]
    assert b"".join(pieces) == f"data of {after.previous_allocation}".encode()


async def test_a_node_that_is_down_is_not_asked_for_the_disk_of_a_predecessor(place: Place) -> None:
    after = await replaced_at(place, HangingHolder())
    await place.leader.clients.node_service.missed(place.node.id)
    await eventually(lambda: place.group[FOLLOWER].state.nodes[place.node.id].status == "down")
    with pytest.raises(Unavailable, match="is down"):
        await anext(place.port.fetch_disk(place.node.id, after.id))


async def test_the_wait_for_a_predecessor_ends_with_its_node(place: Place) -> None:
    await place.run_job()
    await place.leader.resources.allocs.stop(place.alloc.id)
    await eventually(lambda: len(place.group[FOLLOWER].state.allocs) == 2)
    after = next(alloc for alloc in place.leader.state.allocs.values() if alloc.id != place.alloc.id)
    async with asyncio.TaskGroup() as tasks:
        fetching = tasks.create_task(refused(place.port.fetch_disk(place.node.id, after.id)))
        await place.leader.clients.node_service.missed(place.node.id)
    assert "is down" in fetching.result()


async def test_an_agent_that_hangs_is_not_waited_for(place: Place) -> None:
    after = await replaced_at(place, holder := HangingHolder())
    env: Any = place.group.env
    async with asyncio.TaskGroup() as tasks:
        fetching = tasks.create_task(refused(place.port.fetch_disk(place.node.id, after.id)))
        await eventually(lambda: holder.is_asked)
        await env.advance(SILENCE_LIMIT_S + 1)
    assert "sent nothing for 60 s" in fetching.result()


async def refused(pieces: AsyncGenerator[bytes]) -> str:
    """Why no piece comes."""
    with pytest.raises(Unavailable) as raised:
        await anext(pieces)
    return str(raised.value)


async def test_templates_see_services_and_wait_for_their_change(place: Place) -> None:
    await place.run_job()
    query = TemplateQuery(
        node_id=place.node.id, alloc_id=place.alloc.id, task="web", kind="service", name="web", timeout_s=20
    )
    first = await place.port.ask_for_template(query)
    assert first.data == []
    service = factories.service(place.alloc)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(place.port.ask_for_template(replace(query, min_index=first.index)))
        await place.leader.resources.services.register(place.node.id, (service,))
    assert [row["ID"] for row in asking.result().data] == [service.id]


async def test_claims_and_identities_are_for_allocations_of_the_node(place: Place) -> None:
    await place.run_job()
    query = IdentityQuery(node_id=place.node.id, alloc_id=place.alloc.id, task="web")
    assert (await place.port.sign_identity(query)).token.count(".") == 2
    with pytest.raises(NotFound):
        await place.port.sign_identity(replace(query, task="other"))
    claim = CSIClaimQuery(node_id=place.node.id, alloc_id=place.alloc.id, volume="none")
    with pytest.raises(YurtError):
        await place.port.claim_csi_volume(claim)


async def test_no_call_may_be_about_another_node(place: Place) -> None:
    """Every call of the port, so that a new one cannot be forgotten here."""
    service = ServiceRegistration(id="one", node_id=OTHER)
    asked: dict[str, Any] = {
        "register_node": (RegisterNodeRequest(node=replace(place.node, id=OTHER)),),
        "heartbeat": (OTHER, "ready"),
        "get_allocs": (OTHER, ()),
        "update_allocs": (UpdateAllocsRequest(node_id=OTHER, updates=()),),
        "register_services": (OTHER, (service,)),
        "deregister_services": (OTHER, ("one",)),
        "drain_node": (OTHER, None),
        "emit_events": (NodeEventsRequest(node_id=OTHER, events=()),),
        "ask_for_template": (TemplateQuery(node_id=OTHER, alloc_id="a", task="t", kind="services"),),
        "claim_csi_volume": (CSIClaimQuery(node_id=OTHER, alloc_id="a", volume="v"),),
        "follow_gang": (GangQuery(node_id=OTHER, alloc_id="a"),),
        "sign_identity": (IdentityQuery(node_id=OTHER, alloc_id="a", task="t"),),
        "caller_rights": (OTHER, ShownCredential()),
    }
    assert set(asked) | {"pull_allocs", "fetch_disk"} == set(contract_of(ServerPort))
    for name, arguments in asked.items():
        with pytest.raises(PermissionDenied):
            await getattr(place.port, name)(*arguments)
    with pytest.raises(PermissionDenied):
        await place.port.pull_allocs(OTHER, min_index=0, timeout_s=0)
    with pytest.raises(PermissionDenied):
        await anext(place.port.fetch_disk(OTHER, "a"))


async def test_a_server_that_is_behind_does_not_take_a_known_node_for_a_stranger() -> None:
    async with ServerGroup(FakeEnv()).running() as group:
        await eventually(lambda: group[LEADER].is_leader)
        strict = IntroductionConfig(enforcement="strict")
        group[FOLLOWER].clients.introductions._config = replace(group[FOLLOWER].config, introduction=strict)
        view, node = group.view(FOLLOWER), factories.node(status="initializing", secret_id="secret")
        view.delivers.clear()
        await connected(group[LEADER], node.id, "secret").register_node(RegisterNodeRequest(node=node))
        assert node.id not in group[FOLLOWER].state.nodes
        client = connected(group[FOLLOWER], node.id, "secret")
        async with asyncio.TaskGroup() as tasks:
            registering = tasks.create_task(client.register_node(RegisterNodeRequest(node=node)))
            await asyncio.sleep(0)
            view.delivers.set()
        assert registering.result().index
        with pytest.raises(PermissionDenied, match="is not introduced"):
            stranger = replace(node, id=OTHER)
            await connected(group[FOLLOWER], OTHER, "secret").register_node(RegisterNodeRequest(node=stranger))
