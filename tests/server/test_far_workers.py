"""Workers of servers that follow: they take what the leader has to spare, and what they lose is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from unittest import mock

import pytest
from yurt import scheduler
from yurt.broker import Delivery
from yurt.fsm.snapshot import digest
from yurt.rpc.peer import ConnectionLost
from yurt.sdk.errors import Conflict, Reason, Unavailable, YurtError
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.peers import PeerPort, PlanReply
from yurt.server.scheduling.scheduling import SCHEDULERS
from yurt.server.scheduling.work_sources import SCHEDULER_VERSION, FarWork, LeaderWork
from yurt.server.server import Server
from yurt.state import Snapshot
from yurt.structs.plan import Outcome, Plan
from yurt.structs.rpc import RegisterNodeRequest
from yurt.testing import factories
from yurt.testing.cluster_models.servers import NAMES, ServerGroup
from yurt.testing.fakes import FakeEnv, eventually, settle

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
        await made[FIRST].clients.calls.register_node(RegisterNodeRequest(node=node))
        await made[FIRST].clients.calls.heartbeat(node.id, "ready")
        yield made


def spare_all(group: ServerGroup) -> None:
    """Let the leader give away what is ready."""
    group[FIRST].scheduling.workers.change(0, SCHEDULERS)


def work_of(server: Server) -> LeaderWork:
    """What workers do at the leader."""
    assert server.term is not None
    return server.term.work


async def pass_time(group: ServerGroup, seconds: int) -> None:
    """Let time pass while the node goes on heartbeating."""
    (node,) = group[FIRST].state.nodes.values()
    for _ in range(0, seconds, 5):
        await group.env.advance(5)
        await group[FIRST].clients.calls.heartbeat(node.id, "ready")


async def placed(group: ServerGroup, count: int) -> None:
    """Wait until so many allocations are placed, and every server has them."""
    await eventually(lambda: all(len(server.state.allocs) == count for server in group.servers.values()))
    await eventually(lambda: len({digest(server.state) for server in group.servers.values()}) == 1)


async def test_other_servers_take_over_when_more_is_ready_than_the_leader_will_soon_take(group: ServerGroup) -> None:
    for number in range(5):
        await group[FIRST].resources.jobs.register(factories.job(f"job-{number}"))
    await settle()
    assert not group[FIRST].state.allocs
    spare_all(group)
    await group[FIRST].resources.jobs.register(factories.job("one-more"))
    await pass_time(group, 30)  # those who asked before wait that long at most
    await placed(group, 6)
    await eventually(lambda: not group[FIRST].state.evals.where("status", "pending"))
    await eventually(lambda: sum(group[name].metrics.counters["worker.evaluations"] for name in (SECOND, THIRD)) == 6)
    assert group[FIRST].metrics.counters["worker.evaluations"] == 0
    await eventually(lambda: work_of(group[FIRST])._queue.broker.stats().outstanding == 0)


async def test_what_a_worker_takes_along_when_it_is_lost_is_given_to_another(group: ServerGroup) -> None:
    await group[FIRST].resources.jobs.register(factories.job())
    spare_all(group)
    (taken,) = await group[FIRST].rpc.peer_calls.take_work(timeout_s=1, scheduler=SCHEDULER_VERSION)
    await pass_time(group, 50)
    assert not group[FIRST].state.allocs
    await pass_time(group, 20)
    await placed(group, 1)
    assert taken.evaluation.job_id == "web"


async def test_a_worker_whose_time_was_over_stores_nothing(group: ServerGroup) -> None:
    group[FIRST].scheduling.workers.change(0, SCHEDULERS)
    group.cut_off.update((SECOND, THIRD))
    await group[FIRST].resources.jobs.register(factories.job())
    calls = group[FIRST].rpc.peer_calls
    (taken,) = await calls.take_work(timeout_s=1, scheduler=SCHEDULER_VERSION)
    await calls.finish_work(taken, is_done=False)
    plan = Plan(eval_id=taken.evaluation.id, namespace="default", job_id="web")
    with pytest.raises(Conflict, match="any more"):
        await calls.submit_plan(taken, plan, Outcome(evaluation=taken.evaluation))
    with pytest.raises(Conflict, match="any more"):
        await calls.store_evaluations(taken, (taken.evaluation,))
    assert group[FIRST].state.evals[taken.evaluation.id].status == "pending"


async def test_a_server_that_is_behind_gives_back_and_stays_away_until_it_has_caught_up(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.server.scheduling.worker.INDEX_WAIT_S", 0.02)
    group.cut_off.add(THIRD)
    group.view(SECOND).delivers.clear()
    spare_all(group)
    await group[FIRST].resources.jobs.register(factories.job())
    broker = work_of(group[FIRST])._queue.broker
    for _ in range(60):  # who asked before the work was spared asks again when its wait is over
        if broker.stats().delayed == 1:
            break
        await group.env.advance(1)
    assert broker.stats().delayed == 1
    await pass_time(group, 5)
    assert broker.stats().ready == 1
    group.view(SECOND).delivers.set()
    await placed(group, 1)


async def test_a_server_that_lacks_the_plan_of_a_job_does_not_place_the_job_again(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's second evaluation is older than the plan of its first one, which the server has not applied."""
    monkeypatch.setattr("yurt.server.scheduling.worker.INDEX_WAIT_S", 0.02)
    leader, calls, job = group[FIRST], group[FIRST].rpc.peer_calls, factories.job()
    # given a server that has the two evaluations of a job, and not the plan of the first
    await leader.resources.jobs.register(job)
    spare_all(group)
    (taken,) = await calls.take_work(timeout_s=1, scheduler=SCHEDULER_VERSION)
    group.cut_off.add(THIRD)
    await leader.resources.jobs.register(job)
    await eventually(lambda: group[SECOND].state.index == leader.state.index)
    group.view(SECOND).delivers.clear()
    made = scheduler.attempt(leader.state, taken.evaluation, now=group.env.now(), seed=1)
    assert (await calls.submit_plan(taken, made.plan, made.outcome)).is_full
    # when it is offered the second one
    await calls.finish_work(taken, is_done=True)
    for _ in range(10):
        await group.env.advance(1)
    # then it attempts that once it has the plan
    group.view(SECOND).delivers.set()
    await pass_time(group, 30)
    await eventually(lambda: not leader.state.evals.where("status", "pending"))
    assert len(leader.state.allocs) == 1


async def test_a_plan_is_not_made_again_without_the_accepted_part_of_the_refused_one(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.server.scheduling.worker.INDEX_WAIT_S", 0.02)
    submitted: list[Plan] = []

    async def accepted_in_part(_: FarWork, __: Delivery, plan: Plan, ___: Outcome) -> PlanReply:
        submitted.append(plan)
        return PlanReply(is_full=False, refresh_index=1_000_000)

    monkeypatch.setattr(FarWork, "submit", accepted_in_part)
    group.cut_off.add(THIRD)
    spare_all(group)
    await group[FIRST].resources.jobs.register(factories.job())
    broker = work_of(group[FIRST])._queue.broker
    for _ in range(60):  # who asked before the work was spared asks again when its wait is over
        if submitted:
            break
        await group.env.advance(1)
    await eventually(lambda: broker.stats().delayed == 1)
    assert len(submitted) == 1


async def test_nobody_else_gives_work_away(group: ServerGroup) -> None:
    with pytest.raises(Unavailable, match="No cluster leader"):
        await group[SECOND].rpc.peer_calls.take_work(timeout_s=0.01, scheduler=SCHEDULER_VERSION)


class Meets:
    """A leader whose calls fail in some ways before they are carried out."""

    def __init__(self, *failures: YurtError) -> None:
        self.failures = list(failures)
        self.calls = 0

    async def submit_plan(self, delivery: Delivery, plan: Plan, outcome: Outcome) -> PlanReply:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return PlanReply(is_full=True)

    async def finish_work(self, delivery: Delivery, *, is_done: bool) -> None:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)


def handed_in(leader: Meets, env: FakeEnv) -> FarWork:
    return FarWork(lambda: leader, Snapshot.empty, env=env)  # type: ignore[arg-type,return-value]


NO = Unavailable("No cluster leader", reason=Reason.NO_LEADER)


async def submit(leader: Meets, env: FakeEnv) -> PlanReply:
    evaluation = factories.evaluation()
    plan = Plan(eval_id=evaluation.id, namespace="default", job_id="web")
    delivery = Delivery(evaluation, "token")
    return await handed_in(leader, env).submit(delivery, plan, Outcome(evaluation=evaluation))


async def test_a_plan_is_submitted_again_while_nobody_leads_with_growing_pauses() -> None:
    env, leader = FakeEnv(), Meets(NO, NO, NO)
    async with asyncio.TaskGroup() as tasks:
        submitting = tasks.create_task(submit(leader, env))
        for passed_s, calls in ((0.4, 1), (0.2, 2), (0.8, 2), (0.3, 3), (2.1, 4)):
            await env.advance(passed_s)
            assert leader.calls == calls
    assert submitting.result().is_full


async def test_a_plan_is_not_submitted_again_for_ever_and_not_when_it_may_have_been_stored() -> None:
    env, leader = FakeEnv(), Meets(*[NO] * 99)
    async with asyncio.TaskGroup() as tasks:
        submitting = tasks.create_task(refused(leader, env))
        await env.advance(70)
        assert submitting.done()
    assert leader.calls == 10
    for error in (ConnectionLost("it broke"), Unavailable("the outcome is not known"), Conflict("not yours")):
        leader = Meets(error)
        with pytest.raises(type(error)):
            await submit(leader, env)
        assert leader.calls == 1


async def refused(leader: Meets, env: FakeEnv) -> None:
    with pytest.raises(Unavailable, match="No cluster leader"):
        await submit(leader, env)


async def test_the_end_of_an_evaluation_is_told_again_over_a_lost_connection() -> None:
    env, leader = FakeEnv(), Meets(ConnectionLost("it broke"), NO)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(handed_in(leader, env).ack(Delivery(factories.evaluation(), "token")))
        await env.advance(2)
    assert leader.calls == 3


async def test_workers_stay_away_from_a_leader_that_schedules_otherwise(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("yurt.server.leadership.peer_calls.SCHEDULER_VERSION", SCHEDULER_VERSION + 1)
    await pass_time(group, 10)
    await eventually(lambda: "scheduler version mismatch" in caplog.text)
    spare_all(group)
    await group[FIRST].resources.jobs.register(factories.job())
    monkeypatch.undo()
    await pass_time(group, 15)
    assert not group[FIRST].state.allocs, "they look again after 30 s"
    await pass_time(group, 30)
    await placed(group, 1)


async def test_the_leader_of_the_moment_may_be_unknown_while_a_worker_hands_in_its_plan(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of a server that does not know for a moment who leads keeps its delivery and its plan."""
    spare_all(group)
    group.cut_off.add(THIRD)
    asked: list[str] = []
    real = CurrentLeader.peer

    def first_nobody(leader: CurrentLeader) -> PeerPort:
        asked.append(leader.own_name)
        if len(asked) == 2:
            raise NO
        return real(leader)

    monkeypatch.setattr(CurrentLeader, "peer", first_nobody)
    await group[FIRST].resources.jobs.register(factories.job())
    await pass_time(group, 10)
    await eventually(lambda: len(group[FIRST].state.allocs) == 1)
