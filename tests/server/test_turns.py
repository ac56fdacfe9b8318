"""Answers come between slices of long work: the writer's among themselves, and those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from yurt.duties.gc import BATCH
from yurt.fsm import apply
from yurt.runtime.turns import TURNS_BETWEEN, Turns
from yurt.sdk.value import replace
from yurt.server.clients.heartbeats import NODES_A_SLICE, Heartbeats
from yurt.server.config import ServerConfig
from yurt.server.log.log_writer import TURN_BYTES, LogWriter
from yurt.server.resources.jobs import MARKED_TOGETHER
from yurt.server.resources.system import STEPS_A_SLICE
from yurt.server.scheduling.eval_queue import UNBLOCK_BATCH, EvalQueue
from yurt.server.server import Server
from yurt.state import Change, Snapshot
from yurt.storage.memory import MemoryLog
from yurt.structs.commands import (
    AllocUpdate,
    ApplyPlan,
    EvaluateJob,
    RegisterJob,
    RegisterNode,
    SetDesiredTransitions,
    UpdateAllocsFromClient,
    UpsertEvaluations,
)
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import JobSubmission
from yurt.structs.plan import Plan
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv, eventually

SLICES = 12


async def most_slices_in_an_answer(work: Awaitable[object], done: Callable[[], int]) -> int:
    """How many slices were done at most while something waited for its turns, one after another."""
    most, working = 0, asyncio.ensure_future(work)
    while not working.done():
        before = done()
        for _ in range(TURNS_BETWEEN):
            await asyncio.sleep(0)
        most = max(most, done() - before)
    await working
    return most


async def test_an_answer_waits_for_one_slice_of_all_who_share_the_turns() -> None:
    turns, slices = Turns(), 0

    async def run() -> None:
        nonlocal slices
        for _ in range(SLICES):
            await turns.next()
            slices += 1

    assert await most_slices_in_an_answer(asyncio.gather(run(), run(), run()), lambda: slices) == 1
    assert slices == 3 * SLICES


async def test_an_answer_waits_for_one_slice_of_what_the_writer_applies() -> None:
    writer = LogWriter(MemoryLog(), on_applied=lambda *_: None, on_batch=lambda _: None, on_failed=lambda: None)
    writer.open()
    large = JobSubmission(source="x" * TURN_BYTES)
    written = writer.enqueue([RegisterJob(job=factories.job(), submission=large)] * SLICES)
    run = asyncio.create_task(writer.run())
    assert await most_slices_in_an_answer(written, lambda: writer.state.index) == 1
    assert writer.state.index == SLICES
    run.cancel()


async def test_small_commands_are_applied_together() -> None:
    writer = LogWriter(MemoryLog(), on_applied=lambda *_: None, on_batch=lambda _: None, on_failed=lambda: None)
    writer.open()
    small = RegisterJob(job=factories.job())
    written = writer.enqueue([small] * SLICES)
    run = asyncio.create_task(writer.run())
    assert await most_slices_in_an_answer(written, lambda: writer.state.index) == SLICES
    run.cancel()


async def test_slices_hold_no_more_than_was_asked_for_and_an_answer_waits_for_one() -> None:
    turns, looked_at = Turns(), 0

    def rows() -> Iterator[int]:
        nonlocal looked_at
        for row in range(10 * SLICES):
            looked_at += 1
            yield row

    seen: list[list[int]] = []

    async def walk() -> None:
        async for part in turns.slices(rows(), 10):
            seen.append(part)

    assert await most_slices_in_an_answer(walk(), lambda: looked_at) == 10
    assert [row for part in seen for row in part] == list(range(10 * SLICES))
    assert max(map(len, seen)) == 10


async def test_garbage_is_looked_for_in_slices_and_deleted_in_small_commands() -> None:
    env = FakeEnv()
    server = Server(ServerConfig(name="s1"), env=env, log=MemoryLog(keep=None))
    evals = (Evaluation(id=f"e{i:04}", job_id="gone", status="canceled") for i in range(5 * STEPS_A_SLICE))
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run(ready=ready))
        await ready.wait()
        await server.replica.propose(UpsertEvaluations(evaluations=tuple(evals)))
        collecting = server.resources.system.collect_garbage()
        most = await most_slices_in_an_answer(collecting, lambda: 5 * STEPS_A_SLICE - len(server.state.evals))
        assert len(server.state.evals) == 0
        assert 0 < most <= BATCH
        await server.stop()


async def test_lost_nodes_are_looked_at_a_few_in_a_turn() -> None:
    missed: list[str] = []

    async def on_missed(node_id: str) -> None:
        missed.append(node_id)

    env = FakeEnv()
    heartbeats = Heartbeats(env=env, config=ServerConfig(name="s1"), on_missed=on_missed, turns=Turns())
    nodes = [replace(factories.node(), id=factories.number_id(number)) for number in range(10 * NODES_A_SLICE)]
    state = Snapshot.empty()
    for node in nodes:
        state = apply(state, RegisterNode(node=node), index=state.index + 1).state
    heartbeats.restore(state)
    running = asyncio.create_task(heartbeats.run())
    await asyncio.sleep(0)
    await env.advance(ServerConfig(name="s1").failover_heartbeat_ttl_s - 0.5)
    assert not missed

    async def miss_all() -> None:
        await env.advance(1.0)
        await eventually(lambda: len(missed) == len(nodes))

    assert await most_slices_in_an_answer(miss_all(), lambda: len(missed)) <= 2 * NODES_A_SLICE
    running.cancel()


async def test_evaluations_that_one_event_unblocks_go_to_the_queue_in_slices() -> None:
    node, count = factories.node(), 5 * UNBLOCK_BATCH
    log = LogWriter(MemoryLog(), on_applied=lambda *_: None, on_batch=lambda _: None, on_failed=lambda: None)
    state = apply(Snapshot.empty(), RegisterNode(node=node), index=1).state
    queue = EvalQueue(env=FakeEnv(), writer=log, current=lambda: state, turns=log.turns)
    waiting = (Evaluation(id=f"e{i}", job_id=f"job-{i}", type="service", status="blocked") for i in range(count))
    queue.observe(tuple(Change("evals", one.id, None, one) for one in waiting), index=1)
    assert len(queue.blocked) == count
    running = asyncio.create_task(queue.run_unblocking())

    async def free_room() -> None:
        queue.observe((Change("nodes", node.id, None, state.nodes[node.id]),), index=2)
        assert 0 < queue.broker.ready <= UNBLOCK_BATCH
        await eventually(lambda: queue.broker.ready == count)

    assert await most_slices_in_an_answer(free_room(), lambda: queue.broker.ready) <= 2 * UNBLOCK_BATCH
    assert len(queue.blocked) == 0
    running.cancel()


async def fail_large_job(server: Server, count: int) -> None:
    """A job with so many allocations, all of which fail."""
    node, job = factories.node(), factories.job()
    placed = [factories.placement(job, on=node, id=factories.number_id(number)) for number in range(count)]
    plan = Plan(eval_id="e", namespace="default", job_id=job.id, placements=tuple(placed), now=factories.NOW)
    await server.log.writer.propose_all([RegisterNode(node=node), RegisterJob(job=job), ApplyPlan(plan=plan)])
    failed = tuple(AllocUpdate(id=each.id, node_id=node.id, client_status="failed") for each in placed)
    await server.replica.propose(UpdateAllocsFromClient(updates=failed, now=factories.NOW))


async def test_marks_on_the_allocations_of_a_large_job_go_into_small_commands() -> None:
    log, count = MemoryLog(keep=None), 2 * MARKED_TOGETHER + 50
    server = Server(ServerConfig(name="s1", num_schedulers=0), env=FakeEnv(), log=log)
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run(ready=ready))
        await ready.wait()
        await fail_large_job(server, count)
        done = await server.resources.jobs.evaluate("default", "web", force_reschedule=True)
        stored = [one async for entry in log.entries(0) for one in entry.commands]
        marks = [one for one in stored if isinstance(one, SetDesiredTransitions)]
        assert [len(one.transitions) for one in marks] == [MARKED_TOGETHER, MARKED_TOGETHER, 50]
        assert isinstance(stored[-1], EvaluateJob)
        assert done.eval_id == stored[-1].evaluation.id
        await server.stop()
