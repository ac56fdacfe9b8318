"""A client whose servers lost sight of it: it fetches, takes up and reports once more, and only then is ready again."""

from __future__ import annotations

from yurt.sdk.errors import Invalid, Unavailable
from yurt.sdk.value import replace, seconds
from yurt.structs.alloc import Allocation
from yurt.structs.policies import DisconnectStrategy
from yurt.structs.rpc import HeldIdentity, NodeReply
from yurt.structs.status import CLIENT_FAILED, CLIENT_RUNNING, CLIENT_UNKNOWN, NODE_INIT, NODE_READY
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeEnv, FakeServerPort, eventually


async def runs(server: FakeServerPort, alloc: Allocation) -> None:
    """Place it and wait until it runs."""
    server.put_alloc(alloc)
    await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)


async def test_a_node_that_was_lost_fetches_and_reports_before_it_says_ready_again(run_client, server, monkeypatch):
    env = FakeEnv()
    beat = server.heartbeat

    async def refuse_once(*told: object) -> NodeReply:
        reply = await beat(*told)
        server.keep_initializing = False
        return reply

    async with run_client(env=env, wait_ready=False) as client:
        await eventually(server.is_ready)
        alloc = placed(client.node_id)
        await runs(server, alloc)
        monkeypatch.setattr(server, "heartbeat", refuse_once)
        server.keep_initializing = True
        server.calls.clear()

        await env.advance(server.ttl_s + 1)

        assert server.statuses[-2:] == [NODE_INIT, NODE_READY]
        refused, accepted = [at for at, call in enumerate(server.calls) if call == "heartbeat"]
        assert {"pull_allocs", "update_allocs"} <= set(server.calls[refused:accepted])


async def test_a_node_says_of_which_loss_it_has_heard(run_client, server: FakeServerPort, monkeypatch):
    env = FakeEnv()
    beat, lost_at = server.heartbeat, 7
    known: list[int | None] = []

    async def with_loss(node_id: str, status: str, identity: HeldIdentity) -> NodeReply:
        reply = await beat(node_id, status, identity)
        known.append(identity.known_loss)
        if len(known) == 1:
            raise Unavailable("the answer that tells of the loss does not arrive")
        return replace(reply, lost_at=lost_at, node_status=status if known[-1] == lost_at else NODE_INIT)

    async with run_client(env=env, wait_ready=False):
        await eventually(server.is_ready)
        monkeypatch.setattr(server, "heartbeat", with_loss)

        await env.advance(server.ttl_s * 3 + 1)

        assert known[:3] == [0, 0, lost_at], "an answer that is lost changes nothing"


async def test_a_node_that_is_lost_again_before_it_is_ready_asks_at_once_when_it_hears_of_that(
    run_client, server: FakeServerPort, monkeypatch
):
    env = FakeEnv()
    beat, losses = server.heartbeat, [7, 9]
    known: list[int | None] = []

    async def with_losses(node_id: str, status: str, identity: HeldIdentity) -> NodeReply:
        reply = await beat(node_id, status, identity)
        lost_at = losses[min(len(known), 1)]
        known.append(identity.known_loss)
        return replace(reply, lost_at=lost_at, node_status=status if known[-1] == lost_at else NODE_INIT)

    async with run_client(env=env, wait_ready=False):
        await eventually(server.is_ready)
        monkeypatch.setattr(server, "heartbeat", with_losses)

        await env.advance(server.ttl_s + 1)

        assert known == [0, 7, 9], "only a repeated refusal waits for the next heartbeat"


async def test_a_node_that_is_refused_again_waits_for_its_next_heartbeat(run_client, server: FakeServerPort):
    env = FakeEnv()
    async with run_client(env=env, wait_ready=False):
        await eventually(server.is_ready)
        server.keep_initializing = True
        server.statuses.clear()

        await env.advance(server.ttl_s * 3 + 2)

        assert server.statuses == [NODE_INIT] * 4, "the second refusal is not answered at once any more"


async def test_an_allocation_that_the_servers_call_unknown_is_reported_again(run_client, server: FakeServerPort):
    async with run_client() as client:
        alloc = placed(client.node_id)
        await runs(server, alloc)
        server.updates.clear()

        server.put_alloc(replace(alloc, client_status=CLIENT_UNKNOWN))

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)


async def test_reports_that_were_refused_leave_again_as_soon_as_the_node_is_heard_of(run_client, server, monkeypatch):
    env = FakeEnv()
    is_lost = True
    take = server.update_allocs

    async def refuse(request):
        if is_lost:
            raise Invalid("node is not allowed to update allocs while in status disconnected")
        return await take(request)

    async with run_client(env=env, wait_ready=False, dev=False) as client:
        await eventually(server.is_ready)
        monkeypatch.setattr(server, "update_allocs", refuse)
        alloc = placed(client.node_id)
        server.put_alloc(alloc)
        await env.advance(1)
        is_lost = False
        client.alloc_service.readiness.lose(0)

        await env.advance(0.5)

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)


async def test_what_its_client_ends_without_contact_counts_as_failed(run_client, server, driver: FakeDriver):
    env = FakeEnv()
    wants = factories.group(disconnect=DisconnectStrategy(stop_on_client_after=seconds(30)))
    async with run_client(env=env, wait_ready=False) as client:
        await eventually(server.is_ready)
        alloc = placed(client.node_id, job=factories.job("b", task_groups=(wants,)))
        await runs(server, alloc)
        server.failure = Unavailable("No cluster leader")
        await env.advance(35)
        server.failure = None

        await env.advance(server.ttl_s)

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        events = [event.display_message for event in server.last_update(alloc.id).task_states["web"].events]
        assert "No contact to the servers for 30s (stop_on_client_after)" in events


async def test_a_node_registers_again_in_another_cluster_and_is_not_ready_without_its_allocations(
    run_client, server: FakeServerPort
):
    env = FakeEnv()
    server.cluster_id = "cluster-a"
    async with run_client(env=env, wait_ready=False) as client:
        await eventually(server.is_ready)
        alloc = placed(client.node_id)
        await runs(server, alloc)
        server.cluster_id, server.index = "cluster-b", server.index + 100
        server.drop_alloc(alloc.id)
        registrations = len(server.registrations)

        await env.advance(server.ttl_s * 2 + 1)

        assert len(server.registrations) == registrations + 1
        assert server.statuses[-1] == NODE_INIT, "it knows the node, and not what runs there"
        assert list(client.allocs.live) == [alloc.id] and server.status_of(alloc.id) == CLIENT_RUNNING
        assert client.facts()["cluster_id"] == "cluster-a"

        server.put_alloc(alloc)
        await env.advance(server.ttl_s * 2 + 1)

        assert server.statuses[-1] == NODE_READY
        assert client.facts()["cluster_id"] == "cluster-b"
        assert list(client.allocs.live) == [alloc.id] and server.status_of(alloc.id) == CLIENT_RUNNING


async def test_a_node_whose_servers_name_their_cluster_for_the_first_time_goes_on(run_client, server: FakeServerPort):
    env = FakeEnv()
    async with run_client(env=env, wait_ready=False):
        await eventually(server.is_ready)
        registrations, server.cluster_id = len(server.registrations), "cluster-a"

        await env.advance(server.ttl_s * 2 + 1)

        assert len(server.registrations) == registrations and server.statuses[-1] == NODE_READY

        server.cluster_id = "cluster-b"
        await env.advance(server.ttl_s + 1)

        assert len(server.registrations) == registrations + 1, "from then on it tells another one"
