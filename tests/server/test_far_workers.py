"""Workers of servers that follow: they take what the leader has to spare, and what they lose is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from unittest import mock

import pytest
from yurt.broker import Delivery
from yurt.fsm.snapshot import digest
from yurt.sdk.errors import Conflict, Unavailable
from yurt.server.server import Server
from yurt.server.work import LeaderWork
from yurt.structs.plan import Outcome, Plan
from yurt.structs.rpc import RegisterNodeRequest
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv, eventually, settle
from yurt.testing.servers import NAMES, ServerGroup

FIRST, SECOND, THIRD = NAMES


async def never(_: LeaderWork) -> list[Delivery]:
    """The leader's own workers do nothing."""
    await asyncio.Event().wait()
    return []


@pytest.fixture
def idle_leader() -> Iterator[None]:
    """No server works on its own queues."""
    with mock.patch.object(LeaderWork, "take", never):
        yield


@pytest.fixture
async def group(idle_leader: None) -> AsyncIterator[ServerGroup]:
    """Three servers with a node; the first leads and spares nothing yet."""
    async with ServerGroup(FakeEnv()).running() as made:
        await eventually(lambda: made[FIRST].is_leader)
        node = factories.node(status="initializing")
        await made[FIRST].register_node(RegisterNodeRequest(node=node))
        await made[FIRST].heartbeat(node.id, "ready")
        yield made


def spare_all(group: ServerGroup) -> None:
    """Let the leader give away what is ready."""
    work_of(group[FIRST]).spare = 0


def work_of(server: Server) -> LeaderWork:
    """What workers do at the leader."""
    assert server.term is not None
    return server.term.work


async def pass_time(group: ServerGroup, seconds: int) -> None:
    """Let time pass while the node goes on heartbeating."""
    (node,) = group[FIRST].state.nodes.values()
    for _ in range(0, seconds, 5):
        await group.env.advance(5)
        await group[FIRST].heartbeat(node.id, "ready")


async def placed(group: ServerGroup, count: int) -> None:
    """Wait until so many allocations are placed, and every server has them."""
    await eventually(lambda: all(len(server.state.allocs) == count for server in group.servers.values()))
    await eventually(lambda: len({digest(server.state) for server in group.servers.values()}) == 1)


async def test_other_servers_take_over_when_more_is_ready_than_the_leader_will_soon_take(group: ServerGroup) -> None:
    for number in range(5):
        await group[FIRST].jobs.register(factories.job(f"job-{number}"))
    await settle()
    assert not group[FIRST].state.allocs
    spare_all(group)
    await group[FIRST].jobs.register(factories.job("one-more"))
    await placed(group, 6)
    await eventually(lambda: not group[FIRST].state.evals.where("status", "pending"))
    assert sum(group[name].metrics.counters["worker.evaluations"] for name in (SECOND, THIRD)) == 6
    assert group[FIRST].metrics.counters["worker.evaluations"] == 0
    assert work_of(group[FIRST])._queue.broker.stats().outstanding == 0


async def test_what_a_worker_takes_along_when_it_is_lost_is_given_to_another(group: ServerGroup) -> None:
    await group[FIRST].jobs.register(factories.job())
    spare_all(group)
    (taken,) = await group[FIRST].peer_calls.take_work(timeout_s=1)
    await pass_time(group, 50)
    assert not group[FIRST].state.allocs
    await pass_time(group, 20)
    await placed(group, 1)
    assert taken.evaluation.job_id == "web"


async def test_a_worker_whose_time_was_over_stores_nothing(group: ServerGroup) -> None:
    work_of(group[FIRST]).spare = 0
    group.cut_off.update((SECOND, THIRD))
    await group[FIRST].jobs.register(factories.job())
    calls = group[FIRST].peer_calls
    (taken,) = await calls.take_work(timeout_s=1)
    await calls.finish_work(taken, is_done=False)
    plan = Plan(eval_id=taken.evaluation.id, namespace="default", job_id="web")
    with pytest.raises(Conflict, match="no longer"):
        await calls.submit_plan(taken, plan, Outcome(evaluation=taken.evaluation))
    with pytest.raises(Conflict, match="no longer"):
        await calls.store_evaluations(taken, (taken.evaluation,))
    assert group[FIRST].state.evals[taken.evaluation.id].status == "pending"


async def test_a_server_that_is_behind_gives_back_and_stays_away_until_it_has_caught_up(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.server.worker.INDEX_WAIT_S", 0.02)
    group.cut_off.add(THIRD)
    group.view(SECOND).news.clear()
    spare_all(group)
    await group[FIRST].jobs.register(factories.job())
    broker = work_of(group[FIRST])._queue.broker
    await eventually(lambda: broker.stats().delayed == 1)
    await pass_time(group, 5)
    assert broker.stats().ready == 1
    group.view(SECOND).news.set()
    await placed(group, 1)


async def test_nobody_else_gives_work_away(group: ServerGroup) -> None:
    with pytest.raises(Unavailable, match="No cluster leader"):
        await group[SECOND].peer_calls.take_work(timeout_s=0.01)
