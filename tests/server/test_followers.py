"""Three servers on one log: they have the same state, any of them takes over, none does what only a leader does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from tempfile import TemporaryFile
from typing import Any

import pytest
from yurt.fsm import snapshot as snapshots
from yurt.fsm.snapshot import digest
from yurt.sdk.errors import Conflict, NotFound, Unavailable
from yurt.server.log.catch_up import fetch_snapshot, send_snapshot
from yurt.server.operations.operator import SnapshotOperations
from yurt.server.peers import SnapshotPart
from yurt.server.server import Server
from yurt.state import Snapshot
from yurt.storage.archive import unpack
from yurt.structs.commands import AllocUpdate, KeepAlive, RegisterJob
from yurt.structs.node import Node
from yurt.structs.rpc import RegisterNodeRequest, UpdateAllocsRequest
from yurt.testing import factories
from yurt.testing.cluster_models.servers import NAMES, LocalPeers, ServerGroup
from yurt.testing.cluster_models.shared_log import AppendOutcome
from yurt.testing.fakes import FakeEnv, eventually, settle

FIRST, SECOND, THIRD = NAMES


@pytest.fixture
async def group() -> AsyncIterator[ServerGroup]:
    """Three servers of which the first leads."""
    async with ServerGroup(FakeEnv(), trailing_entries=5).running() as made:
        await eventually(lambda: made[FIRST].is_leader)
        yield made


async def add_node(server: Server) -> Node:
    """A client that registers and becomes ready through a server."""
    node = factories.node(status="initializing")
    await server.clients.calls.register_node(RegisterNodeRequest(node=node))
    await server.clients.calls.heartbeat(node.id, "ready")
    return node


async def agree(group: ServerGroup) -> None:
    """Wait until all servers have applied all there is, and hold them against each other."""
    await eventually(lambda: {server.state.index for server in group.servers.values()} == {group.log.last_index})
    assert len({digest(server.state) for server in group.servers.values()}) == 1


async def elect(group: ServerGroup, name: str) -> Server:
    """Have a server lead."""
    group.log.elect(name)
    await eventually(lambda: group[name].is_leader)
    return group[name]


async def test_what_one_server_stores_all_of_them_have_and_those_who_wait_are_woken(group: ServerGroup) -> None:
    follower = group[SECOND]
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(
            follower.replica.wait_past([("jobs",)], lambda state: state.jobs.index, min_index=0, timeout_s=5)
        )
        await add_node(group[FIRST])
        await group[FIRST].resources.jobs.register(factories.job())
    assert ("default", "web") in waiting.result().jobs
    await eventually(lambda: len(follower.state.allocs) == 1)
    await agree(group)
    assert [server.is_leader for server in group.servers.values()] == [True, False, False]
    assert {server.leader_name for server in group.servers.values()} == {FIRST}


async def test_another_server_takes_over_what_the_dead_leader_left(group: ServerGroup) -> None:
    await group[FIRST].resources.jobs.register(factories.job())
    await agree(group)
    await group.kill(FIRST)
    leader = await elect(group, SECOND)
    await add_node(leader)
    await eventually(lambda: len(leader.state.allocs) == 1)
    group.start(FIRST)
    await agree(group)


async def test_calls_of_clients_are_carried_out_by_the_leader_whichever_server_they_reach(group: ServerGroup) -> None:
    node = await add_node(group[SECOND])
    await group[FIRST].resources.jobs.register(factories.job())
    await eventually(lambda: len(group[THIRD].state.allocs) == 1)
    (alloc,) = group[THIRD].state.allocs.values()
    pull = await group[THIRD].clients.calls.pull_allocs(node.id, min_index=0, timeout_s=1)
    assert set(pull.allocs) == {alloc.id}
    update = AllocUpdate(id=alloc.id, node_id=node.id, client_status="running")
    index = await group[THIRD].clients.calls.update_allocs(UpdateAllocsRequest(node_id=node.id, updates=(update,)))
    assert group[FIRST].state.allocs[alloc.id].modify_index == index
    reply = await group[THIRD].clients.calls.heartbeat(node.id, "ready")
    assert reply.servers == ("10.0.0.1:4647", "10.0.0.2:4647", "10.0.0.3:4647")


async def test_a_call_waits_for_the_next_leader_and_not_for_ever(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await add_node(group[FIRST])
    await agree(group)
    await group.kill(FIRST)
    async with asyncio.TaskGroup() as tasks:
        beat = tasks.create_task(group[SECOND].clients.calls.heartbeat(node.id, "ready"))
        await settle()
        assert not beat.done()
        await elect(group, THIRD)
    assert beat.result().node_status == "ready"
    group.log.elect("")
    await eventually(lambda: not group[THIRD].is_leader)
    monkeypatch.setattr("yurt.server.clients.leader_calls.LEADER_WAIT_S", 0.05)
    with pytest.raises(Unavailable, match="No cluster leader"):
        await group[SECOND].clients.calls.heartbeat(node.id, "ready")


async def test_a_clients_call_whose_outcome_is_unknown_is_made_again(group: ServerGroup) -> None:
    group.view(FIRST).outcomes.append(AppendOutcome.STORED)
    async with asyncio.TaskGroup() as tasks:
        adding = tasks.create_task(add_node(group[SECOND]))
        await eventually(lambda: not group.log.leader)
        await elect(group, THIRD)
    assert group[THIRD].state.nodes[adding.result().id].status == "ready"


async def test_a_call_that_a_hanging_leader_does_not_answer_is_made_at_the_next_one(group: ServerGroup) -> None:
    node = await add_node(group[FIRST])
    await agree(group)
    hangs: Any = Hangs()
    group.hanging_leaders[FIRST] = hangs
    async with asyncio.TaskGroup() as tasks:
        beat = tasks.create_task(group[SECOND].clients.calls.heartbeat(node.id, "ready"))
        await eventually(lambda: hangs.is_asked)
        await elect(group, THIRD)
    assert beat.result().node_status == "ready"


class Hangs:
    """A leader that answers nothing."""

    is_asked = False

    async def heartbeat(self, node_id: str, status: str, identity: object = None) -> None:
        self.is_asked = True
        await asyncio.Event().wait()


async def test_an_unknown_node_is_told_so_by_the_leader_only(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.server.clients.node_service.NODE_LOOKUP_LIMIT_S", 0.02)
    stranger = factories.new_id()
    with pytest.raises(NotFound):
        await group[FIRST].clients.calls.pull_allocs(stranger, min_index=0, timeout_s=1)
    with pytest.raises(Unavailable, match="does not know"):
        await group[SECOND].clients.calls.pull_allocs(stranger, min_index=0, timeout_s=1)
    with pytest.raises(NotFound):
        await group[SECOND].clients.calls.heartbeat(stranger, "ready")


async def test_a_follower_answers_a_pull_once_it_knows_as_much_as_the_client(group: ServerGroup) -> None:
    node = await add_node(group[FIRST])
    await agree(group)
    group.view(SECOND).delivers.clear()
    await group[FIRST].resources.jobs.register(factories.job())
    await eventually(lambda: len(group[FIRST].state.allocs) == 1)
    seen = group[FIRST].state.index
    with pytest.raises(Unavailable, match="has not reached"):
        await group[SECOND].clients.calls.pull_allocs(node.id, min_index=seen, timeout_s=0.02)
    async with asyncio.TaskGroup() as tasks:
        pulling = tasks.create_task(group[SECOND].clients.calls.pull_allocs(node.id, min_index=seen - 1, timeout_s=5))
        await settle()
        assert not pulling.done()
        group.view(SECOND).delivers.set()
    assert pulling.result().index >= seen
    assert len(pulling.result().allocs) == 1


@pytest.mark.parametrize("outcome", [AppendOutcome.STORED, AppendOutcome.LOST])
async def test_an_append_of_unknown_outcome_is_told_as_such_and_read_again(
    group: ServerGroup, outcome: AppendOutcome
) -> None:
    before = group.log.last_index
    group.view(FIRST).outcomes.append(outcome)
    with pytest.raises(Unavailable, match="may or may not be stored"):
        await group[FIRST].replica.propose(RegisterJob(job=factories.job()))
    await eventually(lambda: not group[FIRST].is_leader)
    leader = await elect(group, FIRST)
    await leader.replica.propose(KeepAlive())
    await agree(group)
    stored = [command for command in group.log.commands()[before:] if isinstance(command, RegisterJob)]
    assert len(stored) == (1 if outcome is AppendOutcome.STORED else 0)


async def test_an_append_that_is_under_way_when_leadership_goes_ends_before_the_log_is_followed(
    group: ServerGroup,
) -> None:
    view = group.view(FIRST)
    view.go.clear()
    async with asyncio.TaskGroup() as tasks:
        waits = tasks.create_task(refused(group[FIRST].replica.propose(KeepAlive())))
        await settle()
        behind = tasks.create_task(refused(group[FIRST].replica.propose(KeepAlive())))
        await settle()
        leader = await elect(group, SECOND)
        assert str(await behind) == "No cluster leader"
        await leader.replica.propose(RegisterJob(job=factories.job()))
        assert not waits.done()
        view.go.set()
    assert str(waits.result()) == "No cluster leader"
    await agree(group)


async def refused(proposal: Any) -> Exception:
    """What a proposal is refused with."""
    with pytest.raises(Unavailable) as caught:
        await proposal
    return caught.value


async def test_a_server_cut_off_neither_leads_nor_confirms_and_comes_back(group: ServerGroup) -> None:
    group.cut(FIRST)
    await eventually(lambda: not group[FIRST].is_leader)
    leader = await elect(group, SECOND)
    with pytest.raises(Unavailable):
        await group[FIRST].leader.confirm()
    await leader.resources.jobs.register(factories.job())
    assert ("default", "web") not in group[FIRST].state.jobs
    group.mend(FIRST)
    await agree(group)


async def test_a_server_that_leads_again_confirms_nothing_before_it_has_the_state(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, lead_again = group.view(FIRST), asyncio.Event()
    confirm, entries = view.confirm, view.entries

    async def slow_confirm() -> None:
        await lead_again.wait()
        await confirm()

    async def slow_entries(after: int) -> AsyncGenerator[Any]:
        await asyncio.Event().wait()
        async for entry in entries(after):
            yield entry

    monkeypatch.setattr(view, "confirm", slow_confirm)
    asked = asyncio.create_task(group[FIRST].leader.confirm())
    await settle()
    monkeypatch.setattr(view, "entries", slow_entries)
    await (await elect(group, SECOND)).resources.jobs.register(factories.job())
    group.log.elect(FIRST)
    await settle()
    lead_again.set()
    assert str(await refused(asked)) == "No cluster leader"
    assert ("default", "web") not in group[FIRST].state.jobs


async def test_a_server_behind_the_trimmed_log_fetches_a_state_and_follows_on(group: ServerGroup) -> None:
    stream = group[SECOND].log.events.subscribe(0)
    stored = await group[FIRST].replica.propose(KeepAlive())
    while (await anext(stream)).index < stored.index:
        pass
    await agree(group)
    group.cut(SECOND)
    for name in ("one", "two"):
        await group[FIRST].resources.jobs.register(factories.job(name))
    group.log.trim(group.log.last_index)
    group.mend(SECOND)
    await agree(group)
    assert group.view(SECOND).snapshot is not None
    with pytest.raises(Conflict, match="events are missing"):
        await anext(stream)


async def test_a_server_that_wins_but_is_too_far_behind_lets_another_one_lead(group: ServerGroup) -> None:
    group.cut(SECOND)
    for name in ("one", "two"):
        await group[FIRST].resources.jobs.register(factories.job(name))
    group.log.trim(group.log.last_index)
    group.log.elect(SECOND)
    group.mend(SECOND)
    await eventually(lambda: group[FIRST].is_leader or group[THIRD].is_leader)
    await agree(group)
    assert ("default", "two") in group[SECOND].state.jobs and not group[SECOND].is_leader


async def test_a_state_comes_whole_in_pieces_or_not_at_all(group: ServerGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.server.log.catch_up.PIECE_BYTES", 100)
    for name in ("one", "two"):
        await group[FIRST].resources.jobs.register(factories.job(name))
    await eventually(lambda: not group[FIRST].state.evals.where("status", "pending"))
    await agree(group)
    group.cut_off.add(THIRD)
    fetched = await fetch_snapshot(group[SECOND].leader.peers, group.view(SECOND), after=0)
    assert digest(fetched) == digest(group[FIRST].state)
    found = await group.view(SECOND).load_snapshot()
    assert found is not None and digest(snapshots.decode(found[1])) == digest(fetched)
    group[FIRST].rpc.peer_calls.snapshot = short  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="not whole"):
        await fetch_snapshot(group[SECOND].leader.peers, group.view(SECOND), after=0)


async def short(after: int) -> AsyncGenerator[SnapshotPart]:
    """A state that lacks its end."""
    async for part in send_snapshot(Snapshot.empty(), after=-1):
        if not part.digest:
            yield part


async def test_a_leader_that_stops_gives_leadership_away_at_once(group: ServerGroup) -> None:
    await group.stop(FIRST)
    await eventually(lambda: group[SECOND].is_leader)
    await group[SECOND].replica.propose(KeepAlive())


async def test_a_server_without_a_snapshot_never_starts_empty_where_the_log_begins_later(group: ServerGroup) -> None:
    for name in ("one", "two"):
        await group[FIRST].resources.jobs.register(factories.job(name))
    await agree(group)
    await group.kill(THIRD)
    group.view(THIRD).snapshot = None
    group.log.trim(group.log.last_index)
    group.cut_off.add(THIRD)
    ready = group.start(THIRD)
    await settle()
    assert not ready.is_set()
    assert not group[THIRD].log.loader.is_restored
    group.cut_off.discard(THIRD)
    await group.env.advance(2)
    await agree(group)
    await group.kill(THIRD)
    group.start(THIRD)
    await agree(group)


class EchoNode:
    """A client of which only files are asked."""

    async def list_files(self, alloc_id: str, path: str) -> tuple[Any, ...]:
        return (alloc_id, path)

    async def read_file(self, alloc_id: str, path: str, *, offset: int, limit: int) -> AsyncGenerator[bytes]:
        yield path.encode()


async def test_a_node_is_reached_through_the_server_that_it_is_connected_to(group: ServerGroup) -> None:
    node = await add_node(group[FIRST])
    await agree(group)
    client: Any = EchoNode()
    group[THIRD].clients.node_ports.attach(node.id, client)
    port = group[SECOND].clients.node_ports.find(node.id)
    assert await port.list_files("a", "/x") == ("a", "/x")
    assert [piece async for piece in port.read_file("a", "/y", offset=0, limit=0)] == [b"/y"]
    group[THIRD].clients.node_ports.detach(node.id, client)
    group[FIRST].clients.node_ports.attach(node.id, client)
    assert await port.list_files("b", "/") == ("b", "/")
    group[FIRST].clients.node_ports.detach(node.id, client)
    with pytest.raises(Unavailable, match="No path to node"):
        await port.list_files("c", "/")
    with pytest.raises(NotFound):
        group[SECOND].clients.node_ports.find(factories.new_id())


async def test_every_server_holds_every_root_key_before_anything_is_sealed_with_it(group: ServerGroup) -> None:
    made = await group[FIRST].keys.root_keys.rotate(is_full=False)
    assert all(made.key_id in server.keys.keyring for server in group.servers.values())
    await agree(group)
    await group.kill(FIRST)
    leader = await elect(group, SECOND)
    assert (await leader.keys.root_keys.active()).key_id == made.key_id


async def test_a_server_that_was_away_fetches_the_keys_that_it_lacks_and_drops_those_removed(
    group: ServerGroup,
) -> None:
    old = await group[FIRST].keys.root_keys.rotate(is_full=False)
    group.cut(THIRD)
    made = await group[FIRST].keys.root_keys.rotate(is_full=False)
    await group[FIRST].keys.root_keys.remove(old.key_id, is_forced=True)
    assert made.key_id not in group[THIRD].keys.keyring
    group.mend(THIRD)
    await eventually(lambda: made.key_id in group[THIRD].keys.keyring)
    await eventually(lambda: all(old.key_id not in server.keys.keyring for server in group.servers.values()))


async def test_a_key_that_no_majority_holds_is_not_used(group: ServerGroup) -> None:
    group.cut_off.update((SECOND, THIRD))
    with pytest.raises(Unavailable, match="reached 1 of 3 servers"):
        await group[FIRST].keys.root_keys.rotate(is_full=False)
    assert not group[FIRST].keys.root_keys.listed()


async def test_only_the_leader_makes_a_first_key_for_readers_and_only_one(group: ServerGroup) -> None:
    for name in (SECOND, THIRD):
        await group[name].keys.root_keys.first.make()
        assert not group[name].keys.root_keys.listed() and not group[name].keys.keyring._keys
    await asyncio.gather(*(group[FIRST].keys.root_keys.first.make() for _ in range(8)))
    (made,) = group[FIRST].keys.root_keys.listed()
    await agree(group)
    assert all(set(server.keys.keyring._keys) == {made.key_id} for server in group.servers.values())


async def test_a_first_key_for_readers_that_fails_is_not_tried_again(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = group[FIRST].keys.root_keys.first
    monkeypatch.setattr(LocalPeers, "voters", property(lambda _: 7))
    await asyncio.gather(*(first.make() for _ in range(8)))
    monkeypatch.undo()
    await first.make()
    assert not group[FIRST].keys.root_keys.listed() and not group[FIRST].keys.keyring._keys
    assert caplog.text.count("a new root key reached 3 of 7 servers") == 1
    assert (await group[FIRST].keys.root_keys.active()).key_id in group[FIRST].keys.keyring, "who needs a key gets one"


async def test_a_key_that_missed_its_majority_is_taken_back(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = await group[FIRST].keys.root_keys.rotate(is_full=False)
    await agree(group)
    monkeypatch.setattr(LocalPeers, "voters", property(lambda _: 7))
    with pytest.raises(Unavailable, match="reached 3 of 7 servers"):
        await group[FIRST].keys.root_keys.rotate(is_full=False)
    assert [len(server.keys.keyring._keys) for server in group.servers.values()] == [1, 1, 1]
    await group[SECOND].rpc.peer_calls.drop_root_key(used.key_id)
    assert used.key_id in group[SECOND].keys.keyring, "a key that the cluster knows stays"


async def test_a_snapshot_names_the_term_of_the_leader(group: ServerGroup) -> None:
    leader = await elect(group, SECOND)
    with TemporaryFile() as out, TemporaryFile() as state:
        await SnapshotOperations(leader.replica, leader.leader).save(out, version="1")
        assert unpack(out, state).term == leader.leader.leadership.epoch > 1
