"""Many evaluations at once: plans on their way into the log count for those that follow, and entries stay bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Any

import msgspec
import pytest
from yurt import scheduler
from yurt.broker.plan_queue import PART_LIMIT
from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.sdk.value import Duration, UnixNano, replace
from yurt.server.config import RejectionConfig
from yurt.server.log.log_writer import ENTRY_BYTES, LogWriter, Prepared
from yurt.server.scheduling.plan_applier import EVALUATIONS_TOGETHER
from yurt.storage.memory import MemoryLog
from yurt.structs.alloc import AllocatedDeviceResource, TaskEvent, TaskState
from yurt.structs.commands import (
    AllocUpdate,
    AnyCommand,
    ApplyPlan,
    DeleteNodes,
    DeregisterJob,
    RegisterJob,
    RegisterNode,
    SetNodeDrain,
    SetNodeEligibility,
    SetNodeStatus,
    UpsertEvaluations,
)
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, JobSubmission
from yurt.structs.node import (
    DeviceHealth,
    DeviceTrial,
    DrainStrategy,
    Node,
    NodeDevice,
    NodeDeviceResource,
    NodeResources,
)
from yurt.structs.plan import Outcome, Plan, PlanResult
from yurt.structs.policies import Gang
from yurt.structs.resources import EphemeralDisk, RequestedDevice, Resources
from yurt.structs.rpc import UpdateAllocsRequest
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv, eventually, settle


class SlowLog(MemoryLog):
    """A log whose appends wait while the test holds them."""

    def __init__(self) -> None:
        super().__init__(keep=None)
        self.go = asyncio.Event()
        self.go.set()
        self.batches: list[tuple[AnyCommand, ...]] = []

    async def append(
        self, first_index: int, commands: Sequence[AnyCommand], encoded: Sequence[msgspec.Raw] = ()
    ) -> None:
        await self.go.wait()
        self.batches.append(tuple(commands))
        await super().append(first_index, commands, encoded)


class BoundedLog(SlowLog):
    """A log that refuses large entries, as the one on etcd does."""

    async def append(
        self, first_index: int, commands: Sequence[AnyCommand], encoded: Sequence[msgspec.Raw] = ()
    ) -> None:
        if (size := len(msgspec.msgpack.encode(commands))) > 1_048_576:
            raise Invalid(f"{size} bytes are too many")
        await super().append(first_index, commands, encoded)


def job_of(name: str, *, cpu: int, count: int = 1) -> Job:
    """A service job whose allocations ask so much of a node of 4,000 MHz."""
    task = factories.task(resources=Resources(cpu=cpu, memory_mb=10))
    return factories.job(name, task_groups=(factories.group(count=count, tasks=(task,), update=None),))


async def register_while_the_log_waits(bench: Any, log: SlowLog, jobs: Sequence[Job]) -> None:
    """Have the jobs stored in one batch, so that their evaluations are ready together."""
    log.go.clear()
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(bench.server.resources.jobs.register(job))
        await settle()
        log.go.set()


async def test_evaluations_that_are_ready_together_are_stored_together(run_server: Any) -> None:
    log = SlowLog()
    async with run_server(log) as bench:
        for _ in range(4):
            await bench.add_node()
        await register_while_the_log_waits(bench, log, [job_of(f"job-{n}", cpu=200) for n in range(40)])
        await eventually(lambda: len(bench.server.state.allocs) == 40)
        plans = [sum(isinstance(command, ApplyPlan) for command in batch) for batch in log.batches]
        assert sum(plans) == 40
        assert len([count for count in plans if count]) < 20


async def test_jobs_that_are_scheduled_together_share_out_what_there_is(run_server: Any) -> None:
    log = SlowLog()
    async with run_server(log) as bench:
        for _ in range(3):
            await bench.add_node()
        await register_while_the_log_waits(bench, log, [job_of(f"job-{n}", cpu=3000) for n in range(5)])
        await bench.idle()
        nodes = [alloc.node_id for alloc in bench.server.state.allocs.values()]
        assert len(nodes) == len(set(nodes)) == 3
        assert len(bench.server.state.evals.where("status", "blocked")) == 2
        assert bench.server.metrics.counters["plan.rejected_placements"] == 0


async def test_a_plan_is_checked_against_those_that_are_still_being_written(run_server: Any) -> None:
    log = SlowLog()
    async with run_server(log, num_schedulers=0) as bench:
        node = await bench.add_node()
        jobs = [job_of(name, cpu=3000) for name in ("first", "second")]
        for job in jobs:
            await bench.server.resources.jobs.register(job)
        log.go.clear()
        applier = bench.server.term.applier
        async with asyncio.TaskGroup() as group:
            submitted = [group.create_task(applier.submit(*plan_of(bench, job.id, node))) for job in jobs]
            await asyncio.wait([submitted[1]])
            assert not submitted[0].done()
            log.go.set()
        assert submitted[0].result().is_full
        assert submitted[1].result().rejected_nodes == {node.id: "cpu"}


async def test_a_node_that_refuses_plan_after_plan_takes_no_more(run_server: Any) -> None:
    async with run_server(num_schedulers=0, rejections=RejectionConfig(enabled=True, threshold=3)) as bench:
        node, other = await bench.add_node(), await bench.add_node()
        await bench.server.resources.jobs.register(job_of("web", cpu=9000))
        for number in range(3):
            assert bench.server.state.nodes[node.id].scheduling_eligibility == "eligible", number
            await bench.server.term.applier.submit(*plan_of(bench, "web", node))
        await bench.until(lambda: bench.server.state.nodes[node.id].scheduling_eligibility == "ineligible")
        told = bench.server.state.nodes[node.id].events[-1]
        assert (told.subsystem, told.details) == ("Scheduler", {"reason": "cpu"})
        assert bench.server.state.nodes[other.id].scheduling_eligibility == "eligible"


async def test_nodes_that_refuse_plans_stay_unless_that_is_asked_for(run_server: Any) -> None:
    async with run_server(num_schedulers=0, rejections=RejectionConfig(threshold=1)) as bench:
        node = await bench.add_node()
        await bench.server.resources.jobs.register(job_of("web", cpu=9000))
        assert not (await bench.server.term.applier.submit(*plan_of(bench, "web", node))).is_full
        assert bench.server.state.nodes[node.id].scheduling_eligibility == "eligible"


async def test_a_plan_for_a_job_that_was_stopped_places_nothing_and_counts_against_no_node(run_server: Any) -> None:
    async with run_server(num_schedulers=0, rejections=RejectionConfig(enabled=True, threshold=1)) as bench:
        node = await bench.add_node()
        await bench.server.resources.jobs.register(job_of("web", cpu=100))
        plan = plan_of(bench, "web", node)
        await bench.server.replica.propose(DeregisterJob(namespace="default", job_id="web"))
        result = await bench.server.term.applier.submit(*plan)
        assert result.accepted.is_empty and result.rejected_nodes == {node.id: "job is stopped"}
        assert bench.server.term.applier.rejection_scores() == {}


async def test_plans_that_wait_are_refused_when_the_server_stops(run_server: Any) -> None:
    log = SlowLog()
    async with run_server(log, num_schedulers=0) as bench:
        node = await bench.add_node()
        await bench.server.resources.jobs.register(job_of("web", cpu=100))
        log.go.clear()
        submitted = asyncio.ensure_future(bench.server.term.applier.submit(*plan_of(bench, "web", node)))
        await eventually(lambda: bench.server.log.writer._pending or bench.server.term.applier._in_flight)
    with pytest.raises(Unavailable):
        await submitted


async def test_an_attempt_that_fails_leaves_those_of_its_company_alone(
    run_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SlowLog()
    plain = scheduler.Series.attempt

    def attempt(series: scheduler.Series, evaluation: Evaluation, *, now: UnixNano) -> scheduler.Attempt:
        if evaluation.job_id == "bad":
            raise AssertionError("this one is broken")
        return plain(series, evaluation, now=now)

    monkeypatch.setattr(scheduler.Series, "attempt", attempt)
    async with run_server(log) as bench:
        await bench.add_node()
        await register_while_the_log_waits(bench, log, [job_of(name, cpu=100) for name in ("a", "bad", "c")])
        await eventually(lambda: len(bench.server.state.allocs) == 2)
        await eventually(lambda: bench.server.metrics.counters["worker.evaluations"] == 2)
        assert {alloc.job_id for alloc in bench.server.state.allocs.values()} == {"a", "c"}
        assert bench.server.metrics.counters["worker.failed"] == 1


@pytest.mark.parametrize(
    "command",
    [
        lambda node: SetNodeStatus(node_id=node.id, status="down", updated_at=1),
        lambda node: SetNodeEligibility(node_id=node.id, eligibility="ineligible"),
        lambda node: SetNodeDrain(node_id=node.id, strategy=DrainStrategy()),
        lambda node: DeleteNodes(node_ids=(node.id,)),
        lambda node: DeregisterJob(namespace="default", job_id="web"),
        lambda node: DeregisterJob(namespace="default", job_id="web", purge=True),
    ],
)
async def test_what_was_acknowledged_while_a_plan_was_written_has_the_worker_look_again(
    run_server: Any, command: Callable[[Node], AnyCommand]
) -> None:
    async with plan_behind(run_server, command) as made:
        bench, submitted = made
        result = await submitted
        assert result.accepted.is_empty and not result.is_full
        assert 0 < result.refresh_index <= bench.server.state.index
        assert not bench.server.state.allocs


async def test_what_counted_a_plan_that_was_rejected_hears_of_it_at_a_newer_index(run_server: Any) -> None:
    """Also where its state has a command that was stored behind the plan: the plan was in flight on that state too."""
    async with plan_behind(run_server, lambda node: DeleteNodes(node_ids=(node.id,))) as (bench, submitted):
        dropped: list[int] = []
        bench.server.term.applier._on_dropped = lambda plan, index: dropped.append(index)
        behind = await bench.server.replica.writer.enqueue((RegisterJob(job=factories.job("other")),))
        assert not (await submitted).is_full
        await eventually(lambda: dropped)
        assert dropped[0] > behind[0].index


async def handed_in_behind(
    written: Coroutine[Any, Any, Any], bench: Any, group: asyncio.TaskGroup, log: SlowLog, plan: Plan, outcome: Outcome
) -> PlanResult:
    """The result of a plan that is handed in while another command is being written, and stored behind it."""
    log.go.clear()
    group.create_task(written)
    await settle()
    submitted: asyncio.Future[PlanResult] = bench.server.term.applier.hand_in(plan, outcome)
    await settle()
    log.go.set()
    return await submitted


@pytest.mark.parametrize(
    "health",
    [DeviceHealth(state="failed"), DeviceHealth(state="suspect", trial=DeviceTrial(until=1, run_max=Duration(1)))],
    ids=["failed", "trial"],
)
async def test_a_plan_that_is_written_while_its_card_fails_or_goes_on_trial_goes_back_to_its_worker(
    run_server: Any, health: DeviceHealth
) -> None:
    """The plan check still sees a healthy card, since the report is being written before the plan."""
    log = SlowLog()
    async with run_server(log, num_schedulers=0) as bench, asyncio.TaskGroup() as group:
        node = await bench.add_node(node_resources=with_card(DeviceHealth()))
        asked = Resources(cpu=1, memory_mb=16, devices=(RequestedDevice(name="nvidia/gpu"),))
        job = factories.job(task_groups=(factories.group(tasks=(factories.task(resources=asked),)),))
        await bench.server.resources.jobs.register(job)
        plan, outcome = plan_of(bench, job.id, node)
        ((name, of_task),) = plan.placements[0].resources.tasks.items()
        card = AllocatedDeviceResource(vendor="nvidia", type="gpu", name="H100", device_ids=("GPU-0",))
        granted = replace(plan.placements[0].resources, tasks={name: replace(of_task, devices=(card,))})
        plan = replace(plan, placements=(replace(plan.placements[0], resources=granted),))
        report = replace(node, node_resources=with_card(health))
        written = bench.server.replica.propose(RegisterNode(node=report))

        result = await handed_in_behind(written, bench, group, log, plan, outcome)

        assert result.accepted.is_empty and not result.is_full
        # One command follows the plan's, which tells of its failure.
        assert result.refresh_index == bench.server.state.index - 1
        assert "GPU-0 is" in result.rejected_nodes[node.id]
        assert not bench.server.state.allocs


async def test_a_plan_that_is_written_while_other_members_of_its_gang_fail_goes_back_to_its_worker(
    run_server: Any,
) -> None:
    log = SlowLog()
    async with run_server(log, num_schedulers=0) as bench, asyncio.TaskGroup() as group:
        for _ in range(3):
            await bench.add_node()
        gang = replace(job_of("web", cpu=3000, count=2).task_groups[0], gang=Gang())
        await bench.server.resources.jobs.register(factories.job(task_groups=(gang,)))
        assert (await bench.server.term.applier.submit(*attempt_at(bench, "web"))).is_full
        await bench.server.resources.jobs.register(factories.job(task_groups=(replace(gang, count=3),)))
        plan, outcome = attempt_at(bench, "web")
        assert len(plan.placements) == 1
        failed = TaskState(state="dead", failed=True, finished_at=factories.NOW)
        written = bench.report("failed", task_states={"web": failed})

        result = await handed_in_behind(written, bench, group, log, plan, outcome)

        assert result.accepted.is_empty and not result.is_full
        assert result.refresh_index > plan.snapshot_index and len(bench.server.state.allocs) == 2
        assert not attempt_at(bench, "web").plan.placements


def attempt_at(bench: Any, job_id: str) -> scheduler.Attempt:
    """An attempt at the job on the newest state."""
    evaluation = max(bench.server.state.evals.where("job", ("default", job_id)), key=attrgetter("create_index"))
    return scheduler.attempt(bench.server.state, evaluation, now=factories.NOW, seed=1)


def with_card(health: DeviceHealth) -> NodeResources:
    """The resources of a node with one card in this health."""
    card = NodeDevice(id="GPU-0", healthy=health.state != "failed", health=health)
    kind = NodeDeviceResource(vendor="nvidia", type="gpu", name="H100", instances=(card,))
    return replace(factories.node().node_resources, devices=(kind,))


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_of_a_large_plan_the_parts_before_a_stale_one_are_applied(run_server: Any, lost: int) -> None:
    """Its evaluation ends with the last part only: what was not placed is looked at again by whoever leads then."""
    log = SlowLog()
    async with run_server(log, num_schedulers=0) as bench, asyncio.TaskGroup() as group:
        nodes = [await bench.add_node() for _ in range(3)]
        submitted, plan = await large_plan_behind_a_loss(bench, log, group, nodes, lost=lost)
        result = await submitted
        state = bench.server.state
        assert len(state.allocs) == lost * PART_LIMIT
        assert len(result.accepted.placements) == lost * PART_LIMIT
        assert not result.is_full and result.refresh_index > 0
        assert plan.eval_id not in state.evals
        assert bench.server.metrics.counters["plan.stale"] == 1


async def test_a_large_plan_that_must_appear_whole_goes_back_to_its_worker(run_server: Any) -> None:
    log = SlowLog()
    async with run_server(log, num_schedulers=0) as bench, asyncio.TaskGroup() as group:
        nodes = [await bench.add_node() for _ in range(3)]
        submitted, _ = await large_plan_behind_a_loss(bench, log, group, nodes, lost=1, all_at_once=True)
        result = await submitted
        assert result.accepted.is_empty and not result.is_full
        assert not bench.server.state.allocs and not len(bench.server.state.staged_plans)


async def large_plan_behind_a_loss(
    bench: Any, log: SlowLog, group: asyncio.TaskGroup, nodes: Sequence[Node], *, lost: int, **changes: Any
) -> tuple[asyncio.Future[PlanResult], Plan]:
    """A plan of a part for each node, handed in while one of the nodes is being marked as down before it."""
    light = factories.task(resources=Resources(cpu=1, memory_mb=1))
    small = factories.group(count=len(nodes) * PART_LIMIT, tasks=(light,), ephemeral_disk=EphemeralDisk(size_mb=0))
    await bench.server.replica.propose(RegisterJob(job=factories.job("web", task_groups=(small,))))
    log.go.clear()
    group.create_task(bench.server.replica.propose(SetNodeStatus(node_id=nodes[lost].id, status="down", updated_at=1)))
    await settle()
    stored = bench.server.state.jobs["default", "web"]
    evaluation = factories.evaluation(stored)
    placements = tuple(
        factories.placement(stored, index=number, on=nodes[number // PART_LIMIT])
        for number in range(len(nodes) * PART_LIMIT)
    )
    plan = Plan(eval_id=evaluation.id, namespace="default", job_id="web", placements=placements, **changes)
    submitted = bench.server.term.applier.hand_in(plan, Outcome(evaluation=replace(evaluation, status="complete")))
    await eventually(lambda: bench.server.term.applier._in_flight is not None)
    await settle()
    log.go.set()
    return submitted, plan


@asynccontextmanager
async def plan_behind(
    run_server: Any, command: Callable[[Node], AnyCommand]
) -> AsyncIterator[tuple[Any, asyncio.Future[PlanResult]]]:
    """A plan for a node, handed in while a command on the node is being written before it."""
    log = SlowLog()
    async with run_server(log, num_schedulers=0) as bench, asyncio.TaskGroup() as group:
        node = await bench.add_node()
        await bench.server.resources.jobs.register(job_of("web", cpu=100))
        log.go.clear()
        group.create_task(bench.server.replica.propose(command(node)))
        await settle()
        submitted = bench.server.term.applier.hand_in(*plan_of(bench, "web", node))
        await settle()
        log.go.set()
        yield bench, submitted


def plan_of(bench: Any, job_id: str, node: Any) -> tuple[Plan, Outcome]:
    """A plan that places the job's one allocation on a node."""
    job = bench.server.state.jobs["default", job_id]
    evaluation = factories.evaluation(job)
    placement = factories.placement(job, on=node)
    plan = Plan(eval_id=evaluation.id, namespace="default", job_id=job_id, placements=(placement,))
    return plan, Outcome(evaluation=replace(evaluation, status="complete"))


async def run_writer(log: MemoryLog, *proposals: Sequence[AnyCommand]) -> None:
    """Have a writer store proposals that all wait at once."""
    writer = LogWriter(log, on_applied=lambda *_: None, on_batch=lambda _: None, on_failed=lambda: None)
    writer.open()
    written = [writer.enqueue(commands) for commands in proposals]
    async with asyncio.TaskGroup() as group:
        run = group.create_task(writer.run())
        results = await asyncio.gather(*written)
        run.cancel()
    assert [len(result) for result in results] == [len(commands) for commands in proposals]


def submission_of(size: int) -> RegisterJob:
    """A command of about this size."""
    return RegisterJob(job=factories.job(), submission=JobSubmission(source="x" * size))


def prepared(command: AnyCommand) -> Prepared:
    """The command on its way to the log, whatever its size."""
    data = msgspec.msgpack.encode(command)
    return Prepared(command, command, len(data), msgspec.Raw(data))


async def test_an_entry_of_the_log_is_bounded_whatever_waits() -> None:
    log = SlowLog()
    await run_writer(log, [submission_of(300_000) for _ in range(10)], (), [submission_of(1000)] * 2000)
    sizes = [len(msgspec.msgpack.encode(batch)) for batch in log.batches]
    assert max(sizes) <= 1_048_576
    assert sum(map(len, log.batches)) == 2010


async def test_only_a_proposal_larger_than_an_entry_is_in_several() -> None:
    log, size = SlowLog(), 300_000
    await run_writer(log, *([submission_of(size)] * count for count in (2, 2, 7, 2)))
    assert [len(batch) for batch in log.batches] == [2, 2, 3, 3, 3], "7 are cut; 1 of them and the last 2 fit together"


async def test_a_job_that_no_entry_can_hold_is_refused() -> None:
    with pytest.raises(Invalid, match="make it smaller"):
        await run_writer(SlowLog(), [submission_of(ENTRY_BYTES)])


async def test_a_command_that_the_log_refuses_ends_neither_the_term_nor_other_commands() -> None:
    writer = LogWriter(BoundedLog(), on_applied=lambda *_: None, on_batch=lambda _: None, on_failed=lambda: None)
    writer.open()
    sizes = (1000, 2_000_000, 1000)
    written = [writer.enqueue([prepared(submission_of(size))]) for size in sizes]
    run = asyncio.create_task(writer.run())
    first, refused, last = await asyncio.gather(*written, return_exceptions=True)
    assert isinstance(refused, Invalid)
    assert (len(first), len(last), writer.state.index) == (1, 1, 2)
    assert writer.is_open
    assert not writer.broken
    run.cancel()


def report_of(alloc: Any, size: int) -> UpdateAllocsRequest:
    """A client's report of one allocation that takes about so many bytes."""
    events = (TaskEvent(type="Started", message="x" * size),)
    states = {"main": TaskState(state="running", events=events)}
    update = AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="running", task_states=states)
    return UpdateAllocsRequest(node_id=alloc.node_id, updates=(update,))


async def test_reports_that_gather_go_into_entries_of_bounded_size(run_server: Any) -> None:
    log = BoundedLog()
    async with run_server(log) as bench:
        await bench.add_node()
        await bench.server.resources.jobs.register(job_of("web", cpu=10, count=40))
        await eventually(lambda: len(bench.server.state.allocs) == 40)
        await bench.idle()
        allocs = list(bench.server.state.allocs.values())
        log.go.clear()
        async with asyncio.TaskGroup() as group:
            for alloc in allocs:
                group.create_task(bench.server.clients.calls.update_allocs(report_of(alloc, 100_000)))
            await settle()
            log.go.set()
        assert {alloc.client_status for alloc in bench.server.state.allocs.values()} == {"running"}
        assert bench.server.is_leader


async def test_a_report_that_is_too_large_fails_alone(run_server: Any) -> None:
    log = BoundedLog()
    async with run_server(log) as bench:
        await bench.add_node()
        await bench.server.resources.jobs.register(job_of("web", cpu=10, count=3))
        await eventually(lambda: len(bench.server.state.allocs) == 3)
        await bench.idle()
        log.go.clear()
        allocs = list(bench.server.state.allocs.values())
        sent = [
            asyncio.ensure_future(bench.server.clients.calls.update_allocs(report_of(alloc, size)))
            for alloc, size in zip(allocs, (100, 2_000_000, 100), strict=True)
        ]
        await settle()
        log.go.set()
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert [isinstance(outcome, Invalid) for outcome in outcomes] == [False, True, False]
        statuses = [bench.server.state.allocs[alloc.id].client_status for alloc in allocs]
        assert statuses == ["running", "pending", "running"]


async def test_many_blocked_evaluations_of_one_job_are_stored_in_small_commands_before_its_plan(
    run_server: Any,
) -> None:
    """One command for all would be larger than an entry of the log from some thousands of nodes on."""
    log, count = SlowLog(), 2 * EVALUATIONS_TOGETHER + 1
    async with run_server(log) as bench:
        for _ in range(count):
            await bench.add_node()
        log.batches.clear()
        large = factories.task(resources=Resources(cpu=1_000_000, memory_mb=10))
        job = factories.job(
            "all", type="system", task_groups=(factories.group(tasks=(large,), reschedule_policy=None, migrate=None),)
        )
        await bench.server.resources.jobs.register(job)
        await bench.idle()

        commands = [each for batch in log.batches for each in batch]
        (plan,) = [each for each in commands if isinstance(each, ApplyPlan)]
        stored = [each.evaluations for each in commands if isinstance(each, UpsertEvaluations)]
        assert [len(each) for each in stored] == [EVALUATIONS_TOGETHER, EVALUATIONS_TOGETHER, 1]
        assert commands.index(plan) == len(commands) - 1
        assert [each.status for each in plan.evaluations] == ["complete"]
        assert len(bench.server.term.queue.blocked) == count


async def test_an_end_that_was_encoded_beyond_its_term_is_refused(run_server: Any) -> None:
    """The next term delivers the evaluation again: its end must not be stored for the delivery before."""

    class LosingEnv(FakeEnv):
        async def in_thread(self, function: Any, *args: Any, **options: Any) -> Any:
            if function.__name__ == "prepare":
                queue.broker.nack(delivery.evaluation.id, delivery.token, now=self.now())
            return await super().in_thread(function, *args, **options)

    async with run_server(SlowLog(), env=LosingEnv(), num_schedulers=0) as bench:
        await bench.server.resources.jobs.register(job_of("web", cpu=1))
        (delivery,) = await bench.server.term.scheduling.work.take()
        queue = bench.server.term.queue
        waiting = tuple(replace(delivery.evaluation, id=f"e{number}", status="blocked") for number in range(100))

        with pytest.raises(Conflict):
            await bench.server.term.scheduling.work.store(delivery, waiting)

        assert not any(each.id in bench.server.state.evals for each in waiting)


async def test_many_evaluations_that_end_without_a_plan_are_encoded_outside_of_the_loop(run_server: Any) -> None:
    log, threads = SlowLog(), list[int]()

    class NotingEnv(FakeEnv):
        async def in_thread(self, function: Any, *args: Any, **options: Any) -> Any:
            if function.__name__ == "prepare":
                threads.append(len(args[0]))
            return await super().in_thread(function, *args, **options)

    async with run_server(log, env=NotingEnv(), num_schedulers=0) as bench:
        await bench.server.resources.jobs.register(job_of("web", cpu=1))
        (delivery,) = await bench.server.term.scheduling.work.take()
        waiting = tuple(replace(delivery.evaluation, id=f"e{number}", status="blocked") for number in range(100))

        await bench.server.term.scheduling.work.store(delivery, waiting)

        assert threads == [100]
        assert all(each.id in bench.server.state.evals for each in waiting)
