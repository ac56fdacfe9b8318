"""The list of a node's allocations, pulled from one server and fetched from another that knows less."""

from __future__ import annotations

import asyncio

import pytest
from yurt.client.allocations.alloc_watch import AllocWatch
from yurt.lifecycle.alloc_list import AllocList, Changes
from yurt.sdk.value import replace
from yurt.storage.client_db import CLUSTER_ID, NEW_LOG_INDEX, AllocRecord, ClientDatabase
from yurt.structs.rpc import AllocBatch, AllocPull
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeEnv, FakeServerPort, eventually


class Lags(FakeServerPort):
    """Lists what it has, and gives what another server has that is behind."""

    lag = 1

    async def get_allocs(self, node_id: str, alloc_ids: tuple[str, ...]) -> AllocBatch:
        """An older state of the allocations, or nothing of them."""
        batch = await super().get_allocs(node_id, alloc_ids)
        older = (replace(each, alloc_modify_index=each.alloc_modify_index - self.lag) for each in batch.allocs)
        return AllocBatch(allocs=tuple(older) if self.lag < 2 else ())


def listed(index: int, **allocs: int) -> AllocPull:
    return AllocPull(index=index, allocs=allocs)


def after(index: int, cluster_id: str = "", **allocs: int) -> AllocList:
    """A client that has adopted a list."""
    known = AllocList()
    known.cluster_id = cluster_id
    known.restore(allocs)
    known.expect(index)
    return known


def test_the_list_of_a_snapshot_in_a_new_log_is_adopted_with_all_of_its_allocations() -> None:
    known = after(210, a=150, b=200)
    known.note_registration(6, seen_before=210)
    assert not known.is_of_new_log(listed(7)), "nothing is restored yet: its empty list would stop all tasks"
    assert not known.is_of_new_log(listed(5, a=5)), "from before the registration, by a server that lags"

    restored = listed(21, a=15, c=20)
    assert known.is_older(restored) and known.is_of_new_log(restored)
    known.begin_anew(restored)
    assert not known.is_older(restored)
    assert set(known.moved(restored)) == {"a", "c"}, "what changed since the snapshot is not known"
    fetched = (placed("node"), placed("node"))
    found = known.changes(
        restored, [replace(each, id=name, alloc_modify_index=20) for each, name in zip(fetched, "ac", strict=True)]
    )
    assert found.gone == ("b",)
    assert known.take_over(restored, found) and known.seen_index == 21
    assert not known.is_of_new_log(listed(20, a=15)), "from then on older lists are ignored again"


@pytest.mark.parametrize("registered", [None, 211])
def test_an_older_list_of_the_same_log_is_never_adopted(registered: int | None) -> None:
    known = after(210, a=150)
    if registered is not None:
        known.note_registration(registered, seen_before=210)
    assert not known.is_of_new_log(listed(205, a=150))


def test_a_newer_list_with_known_allocations_ends_what_a_registration_elsewhere_told() -> None:
    known = after(210, a=150)
    known.note_registration(6, seen_before=210)
    known.begin_anew(listed(220, a=150))
    assert not known.is_of_new_log(listed(215, a=150))


def test_an_empty_list_of_a_new_log_is_not_adopted_once_that_log_is_longer() -> None:
    known = after(210, a=150)
    known.note_registration(6, seen_before=210)
    known.note_registration(230, seen_before=210)
    assert known.is_unusable(listed(231)) and not known.is_of_new_log(listed(231))
    restored = listed(240, a=150)
    assert known.is_unusable(restored) and known.is_of_new_log(restored)
    known.begin_anew(restored)
    assert known.moved(restored) == ("a",), "its state is that of the snapshot"
    assert not known.is_unusable(listed(250)), "from then on the lists follow each other"


def of_cluster(cluster_id: str, index: int, **allocs: int) -> AllocPull:
    return AllocPull(index=index, allocs=allocs, cluster_id=cluster_id)


def test_a_list_of_another_cluster_is_not_adopted_however_long_its_log_is() -> None:
    known = after(210, "cluster-a", a=150)
    assert known.is_unusable(of_cluster("cluster-b", 500)), "nothing is restored yet: it would stop all tasks"
    assert not known.is_of_new_log(of_cluster("cluster-b", 500, c=400))
    assert not known.is_unusable(of_cluster("cluster-a", 211)), "the same cluster goes on"


def test_a_list_of_another_cluster_with_a_known_allocation_is_adopted_with_all_of_them() -> None:
    known = after(210, "cluster-a", a=150, b=200)
    restored = of_cluster("cluster-b", 500, a=150, c=480)
    assert known.is_unusable(restored) and known.is_of_new_log(restored)
    assert known.missing_count(restored) == 1
    known.begin_anew(restored)
    assert not known.is_unusable(restored) and set(known.moved(restored)) == {"a", "c"}
    assert known.is_unusable(of_cluster("cluster-a", 600, a=150)), "from then on the cluster before is another one"


def test_a_list_of_another_cluster_from_before_the_registration_there_is_not_adopted() -> None:
    known = after(210, "cluster-a", a=150)
    known.note_registration(500, seen_before=210, cluster_id="cluster-b")
    assert not known.is_of_new_log(of_cluster("cluster-b", 499, a=150)), "its server lags"
    assert known.is_of_new_log(of_cluster("cluster-b", 500, a=150))


def test_a_registration_in_another_cluster_says_nothing_of_the_lists_of_the_first() -> None:
    known = after(210, "cluster-a", a=150)
    known.note_registration(6, seen_before=210, cluster_id="cluster-b")
    assert not known.is_unusable(of_cluster("cluster-a", 211))


def test_a_server_that_is_left_of_the_cluster_before_is_not_followed_back() -> None:
    known = after(210, "cluster-a", a=150)
    known.note_registration(200, seen_before=190, cluster_id="cluster-a")
    restored = of_cluster("cluster-b", 500, a=150, c=480)
    assert not known.is_of_new_log(restored), "the client is still registered in the cluster before"
    known.note_registration(490, seen_before=210, cluster_id="cluster-b")
    known.begin_anew(restored)
    left = of_cluster("cluster-a", 600, a=150)
    assert known.is_unusable(left) and not known.is_of_new_log(left), "it lacks c"


def test_a_client_without_allocations_adopts_any_cluster() -> None:
    known = after(210, "cluster-a")
    assert known.is_of_new_log(of_cluster("cluster-b", 5))


@pytest.mark.parametrize(("known_id", "listed_id"), [("", "cluster-a"), ("cluster-a", ""), ("", "")])
def test_a_list_without_an_id_or_for_a_client_without_one_follows_by_its_index(known_id: str, listed_id: str) -> None:
    known = after(210, known_id, a=150)
    newer = of_cluster(listed_id, 211, a=150)
    assert not known.is_unusable(newer) and known.is_unusable(of_cluster(listed_id, 209, a=150))
    known.take_over(newer, known.changes(newer, ()))
    assert known.cluster_id == (known_id or listed_id), "the first one that it sees"


async def test_a_client_of_another_cluster_stops_nothing_over_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    env, server, database = FakeEnv(), FakeServerPort(), ClientDatabase(None)
    await database.put_seen_index(210)
    await database.put_text(CLUSTER_ID, "cluster-a")
    server.index, server.cluster_id = 500, "cluster-b"
    alloc, taken = placed("node"), list[Changes]()
    running: asyncio.Future[None] | None = None

    async def apply(changes: Changes) -> None:
        taken.append(changes)

    for _ in range(2):
        watch = AllocWatch(server, env, database, node_id="node")
        watch.restore([AllocRecord(id=alloc.id, alloc=replace(alloc, alloc_modify_index=150))])
        watch.note_registration(500, watch.seen_index, "cluster-b")
        running = asyncio.ensure_future(watch.run(least_index=500, apply=apply))
        for _ in range(3):
            await env.advance(1.0)
        assert not taken and await database.text(CLUSTER_ID) == "cluster-a"
        running.cancel()
        await asyncio.wait({running})
    assert "cluster_id=cluster-b previous_cluster_id=cluster-a" in caplog.text

    running = asyncio.ensure_future(watch.run(least_index=500, apply=apply))
    server.put_alloc(alloc)
    for _ in range(3):
        await env.advance(1.0)
    await eventually(lambda: taken)
    assert [each.id for each in taken[0].fetched] == [alloc.id] and not taken[0].gone
    running.cancel()
    await asyncio.wait({running})
    assert await database.text(CLUSTER_ID) == "cluster-b"
    await database.close()


async def test_a_client_of_another_cluster_says_once_a_minute_what_it_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env, server, database = FakeEnv(), FakeServerPort(), ClientDatabase(None)
    await database.put_text(CLUSTER_ID, "cluster-a")
    server.index, server.cluster_id = 500, "cluster-b"

    async def apply(_: Changes) -> None:
        pass

    watch = AllocWatch(server, env, database, node_id="node")
    watch.restore([AllocRecord(id="a", alloc=placed("node"))])
    running = asyncio.ensure_future(watch.run(least_index=0, apply=apply))
    for _ in range(90):
        await env.advance(1.0)
    running.cancel()
    await asyncio.wait({running})
    await database.close()

    assert server.calls.count("pull_allocs") > 60 and caplog.text.count("ignoring a list of a new log") == 2


async def test_a_client_stores_the_first_id_that_it_sees() -> None:
    env, server, database = FakeEnv(), FakeServerPort(), ClientDatabase(None)
    taken = list[Changes]()

    async def apply(changes: Changes) -> None:
        taken.append(changes)

    watch = AllocWatch(server, env, database, node_id="node")
    running = asyncio.ensure_future(watch.run(least_index=0, apply=apply))
    await env.advance(1.0)
    await eventually(lambda: taken)
    assert not await database.text(CLUSTER_ID), "a server of an earlier version names none"
    server.cluster_id = "cluster-a"
    server.put_alloc(placed("node"))
    await env.advance(1.0)
    await eventually(lambda: watch.cluster_id)
    await env.advance(1.0)
    assert await database.text(CLUSTER_ID) == "cluster-a"
    running.cancel()
    await asyncio.wait({running})
    await database.close()


async def test_a_client_stops_nothing_while_a_new_log_outgrows_the_one_before() -> None:
    env, server, database = FakeEnv(), FakeServerPort(), ClientDatabase(None)
    await database.put_seen_index(210)
    alloc, registered, taken = placed("node"), list[int](), list[Changes]()

    def register_again() -> None:
        registered.append(watch.seen_index)
        server.index += 1
        watch.note_registration(server.index, watch.seen_index)

    watch = AllocWatch(server, env, database, node_id="node", register_again=register_again)
    watch.restore([AllocRecord(id=alloc.id, alloc=replace(alloc, alloc_modify_index=150))])

    async def apply(changes: Changes) -> None:
        taken.append(changes)

    running = asyncio.ensure_future(watch.run(least_index=0, apply=apply))
    for _ in range(40):
        await env.advance(1.0)
    server.index = 300
    for _ in range(40):
        await env.advance(1.0)
    running.cancel()
    await asyncio.wait({running})
    watch = AllocWatch(server, env, database, node_id="node")  # the agent is started again
    watch.restore([AllocRecord(id=alloc.id, alloc=replace(alloc, alloc_modify_index=150))])
    watch.note_registration(301, watch.seen_index)
    running = asyncio.ensure_future(watch.run(least_index=301, apply=apply))
    server.index = 302
    for _ in range(3):
        await env.advance(1.0)
    assert not taken, "the new cluster knows no allocation"
    assert registered == [210], "each registration makes the new log longer"
    server.put_alloc(alloc)
    for _ in range(3):
        await env.advance(1.0)
    await eventually(lambda: taken)
    assert [each.id for each in taken[0].fetched] == [alloc.id] and not taken[0].gone
    assert await database.seen_index(NEW_LOG_INDEX) == 0
    running.cancel()
    await asyncio.wait({running})
    await database.close()


async def test_a_client_that_sees_older_lists_only_registers_again() -> None:
    env, server, database = FakeEnv(), FakeServerPort(), ClientDatabase(None)
    await database.put_seen_index(210)
    alloc, registered, taken = placed("node"), list[int](), list[Changes]()
    server.put_alloc(alloc)

    def register_again() -> None:
        seen_before = watch.seen_index
        registered.append(seen_before)
        watch.note_registration(server.index, seen_before)

    watch = AllocWatch(server, env, database, node_id="node", register_again=register_again)
    watch.restore([AllocRecord(id=alloc.id, alloc=replace(alloc, alloc_modify_index=150))])

    async def apply(changes: Changes) -> None:
        taken.append(changes)

    running = asyncio.ensure_future(watch.run(least_index=0, apply=apply))
    for _ in range(8):
        await env.advance(1.0)
    assert not registered and not taken
    for _ in range(3):
        await env.advance(1.0)
    await eventually(lambda: taken)
    assert registered == [210] and [each.id for each in taken[0].fetched] == [alloc.id]
    await eventually(lambda: watch.seen_index == server.index)
    running.cancel()
    await asyncio.wait({running})
    assert await database.seen_index() == server.index
    await database.close()


async def test_what_a_server_that_lags_gives_is_not_taken_for_what_was_listed() -> None:
    env, server, taken = FakeEnv(), Lags(), list[Changes]()
    database = ClientDatabase(None)
    alloc = placed("node")
    server.put_alloc(alloc)
    watch = AllocWatch(server, env, database, node_id="node", is_dev=False)

    async def apply(changes: Changes) -> None:
        taken.append(changes)

    running = asyncio.ensure_future(watch.run(least_index=0, apply=apply))
    for server.lag in (1, 2):
        await env.advance(1.5)
        assert not taken
    server.lag = 0
    await env.advance(1.5)
    await eventually(lambda: taken)
    assert [each.id for each in taken[0].fetched] == [alloc.id]
    running.cancel()
    await asyncio.wait({running})
    await database.close()
