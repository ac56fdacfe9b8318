"""The leader ends allocations that do not use their devices, after an announcement, for a job that waits."""

from __future__ import annotations

from typing import Any, cast

import pytest
from yurt.runtime.metrics import Metrics
from yurt.sdk.errors import Conflict, Invalid, NotFound
from yurt.sdk.value import Duration, UnixNano, replace, seconds
from yurt.server.resources.idle import IdleReclaimer
from yurt.state.store import Change
from yurt.structs.alloc import IdleState
from yurt.structs.commands import (
    AllocUpdate,
    AnnounceIdleEnd,
    EndIdleAllocs,
    IdleReport,
    KeepAlloc,
    RegisterJob,
    UpsertNamespaces,
)
from yurt.structs.job import Job
from yurt.structs.node import NodeDevice, NodeDeviceResource
from yurt.structs.policies import Gang, IdlePolicy, InteractiveHours, InteractivePolicy, Rendezvous
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.rpc import UpdateAllocsRequest
from yurt.structs.task import ScalingPolicy
from yurt.testing import factories

POLICY = IdlePolicy(
    window=seconds(60), first=Duration(0), warn=(seconds(30),), action="requeue", grace=seconds(20), when="contended"
)
TEXT = "busy 0 % on 1 of 1 devices"


def gpu_job(
    name: str, policy: IdlePolicy | None = None, *, count: int = 1, job_type: str = "batch", **group: Any
) -> Job:
    device = RequestedDevice(name="nvidia/gpu", idle=policy)
    task = factories.task(resources=Resources(cpu=100, memory_mb=100, devices=(device,)))
    # The factory's group is one of a service.
    fields = {"update": None, "reschedule_policy": None, "migrate": None, **group}
    made = factories.group(count=count, tasks=(task,), **fields)
    return factories.job(name, type=job_type, task_groups=(made,))


class Idle:
    """A node with one card, a job that has it and does not use it, and what happens to them."""

    def __init__(self, bench: Any, node: Any) -> None:
        self.bench, self.node = bench, node
        self.has_versions = True
        """Whether the client's reports name the job version that they were measured under."""

    @property
    def state(self) -> Any:
        return self.bench.server.state

    async def run(self, job: Job) -> None:
        await self.bench.server.resources.jobs.register(job)
        await self.bench.idle()

    async def tell(self, alloc: Any, idle_s: float, status: str = "running") -> None:
        version = alloc.job.version if self.has_versions else None
        report = IdleReport(idle_for=seconds(idle_s), text=TEXT if idle_s else "", job_version=version)
        update = AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status=status, idle=report)
        await self.bench.server.clients.calls.update_allocs(
            UpdateAllocsRequest(node_id=alloc.node_id, updates=(update,))
        )

    def alloc(self, job_id: str = "idle") -> Any:
        (found,) = self.bench.live(job_id)
        return found

    async def pass_time(self, duration_s: float) -> None:
        await self.bench.pass_time(duration_s, self.node)


@pytest.fixture
async def idle(bench: Any) -> Idle:
    return Idle(bench, await add_node(bench, 1))


async def add_node(bench: Any, cards: int) -> Any:
    group = NodeDeviceResource(
        vendor="nvidia",
        type="gpu",
        name="H100",
        instances=tuple(NodeDevice(id=f"GPU-{n}", healthy=True) for n in range(cards)),
    )
    resources = factories.node().node_resources
    return await bench.add_node(node_resources=replace(resources, devices=(group,)))


async def test_an_idle_job_is_announced_and_requeued_for_one_that_waits(idle: Idle) -> None:
    await idle.run(gpu_job("idle", POLICY))
    alloc = idle.alloc()
    assert alloc.job.task_groups[0].requeue is None, "the job is as it was given"
    await idle.tell(alloc, 0)
    await idle.tell(alloc, 30)
    await idle.tell(alloc, 60)
    await idle.pass_time(12)
    assert not idle.alloc().idle.ends_at, "nobody waits"
    await idle.run(gpu_job("waiting"))
    await idle.pass_time(6)
    known = idle.alloc().idle
    assert known.ends_at and 'job "waiting" waits' in known.reason and TEXT in known.reason
    assert idle.alloc().desired_status == "run"
    await idle.pass_time(30)
    ended = idle.state.allocs[alloc.id]
    assert (ended.desired_status, ended.idle.action) == (
        "evict",
        "requeue",
    ) and ended.desired_description == known.reason
    await idle.tell(alloc, 60, "complete")
    await idle.bench.until(lambda: idle.bench.live("waiting"))
    assert idle.alloc("waiting").node_id == idle.node.id
    await idle.pass_time(12)
    await idle.bench.idle()
    assert not idle.bench.live("idle") and idle.bench.evals("idle")[-1][1] == "blocked"


async def test_an_allocation_that_is_used_again_is_spared(idle: Idle) -> None:
    await idle.run(gpu_job("idle", POLICY))
    await idle.tell(idle.alloc(), 60)
    await idle.run(gpu_job("waiting"))
    await idle.pass_time(8)
    before = idle.alloc()
    assert before.idle.ends_at
    await idle.tell(before, 0)
    assert idle.alloc().idle.ends_at == 0 and idle.alloc().idle.idle_for == 0
    stale = EndIdleAllocs(
        reports={before.id: before.idle.report_index}, action="requeue", reason="late", now=before.idle.ends_at
    )
    with pytest.raises(Conflict, match="used since"):
        await idle.bench.server.replica.propose(stale)
    await idle.pass_time(60)
    assert idle.alloc().desired_status == "run"


async def test_the_end_is_withdrawn_when_nothing_waits_any_more(idle: Idle) -> None:
    await idle.run(gpu_job("idle", POLICY))
    await idle.tell(idle.alloc(), 60)
    await idle.run(gpu_job("waiting"))
    await idle.pass_time(8)
    assert idle.alloc().idle.ends_at
    await idle.bench.server.resources.jobs.deregister("default", "waiting")
    await idle.pass_time(40)
    assert idle.alloc().idle.ends_at == 0 and idle.alloc().idle.reason == ""


async def test_stop_ends_a_batch_job_for_good_and_says_why(idle: Idle) -> None:
    await idle.run(gpu_job("idle", replace(POLICY, action="stop", when="always")))
    alloc = idle.alloc()
    await idle.tell(alloc, 60)
    await idle.pass_time(40)
    assert idle.state.allocs[alloc.id].desired_status == "evict"
    assert "Idle since" in idle.state.allocs[alloc.id].desired_description
    await idle.tell(alloc, 60, "complete")
    await idle.bench.idle()
    await idle.pass_time(5)
    assert len(idle.state.allocs_of_job("default", "idle")) == 1, "nothing replaces it"
    assert idle.state.jobs["default", "idle"].status == "dead"


async def test_stop_lowers_the_count_of_a_service(idle: Idle) -> None:
    await idle.run(gpu_job("idle", replace(POLICY, action="stop", when="always"), job_type="service"))
    alloc = idle.alloc()
    await idle.tell(alloc, 60)
    await idle.pass_time(40)
    assert idle.state.allocs[alloc.id].desired_status == "stop"
    await idle.tell(alloc, 60, "complete")
    await idle.bench.idle()
    assert idle.state.jobs["default", "idle"].task_groups[0].count == 0
    assert len(idle.state.allocs_of_job("default", "idle")) == 1


async def test_idle_allocations_of_a_service_end_in_one_version_of_its_job_down_to_its_minimum(bench: Any) -> None:
    idle = Idle(bench, await add_node(bench, 4))
    policy = replace(POLICY, action="stop", when="always")
    await idle.run(gpu_job("idle", policy, count=4, job_type="service", scaling=ScalingPolicy(min=2, max=4)))
    allocs = sorted(bench.live("idle"), key=lambda alloc: alloc.id)
    version = idle.state.jobs["default", "idle"].version
    for alloc in allocs[:3]:
        await idle.tell(alloc, 60)
    await idle.pass_time(8)
    announced = [each.id for each in bench.live("idle") if each.idle is not None and each.idle.ends_at]
    assert len(announced) == 2, "no end is announced that cannot follow"
    await idle.pass_time(40)
    await bench.idle()
    job = idle.state.jobs["default", "idle"]
    assert (job.task_groups[0].count, job.version) == (2, version + 1)
    assert {each.id for each in allocs if idle.state.allocs[each.id].desired_status == "stop"} == set(announced)
    assert "as is another member of its group" in idle.state.allocs[announced[0]].desired_description


@pytest.mark.parametrize(("when", "later_s", "waits"), [("always", 4, True), ("contended", 6, False)])
async def test_a_due_end_waits_for_others_of_its_service_unless_a_job_waits_for_it(
    bench: Any, when: Any, later_s: int, waits: bool
) -> None:
    idle = Idle(bench, await add_node(bench, 2))
    await idle.run(gpu_job("idle", replace(POLICY, action="stop", when=when), count=2, job_type="service"))
    first, second = sorted(bench.live("idle"), key=lambda alloc: alloc.id)
    await idle.tell(first, 60)
    await idle.run(gpu_job("waiting-1"))
    await idle.run(gpu_job("waiting-2"))
    await idle.pass_time(later_s)
    await idle.tell(second, 60)
    await bench.until(lambda: idle.state.allocs[first.id].idle.ends_at)
    for _ in range(40):
        if idle.state.allocs[first.id].desired_status == "stop":
            break
        await idle.pass_time(1)
    ends = [idle.state.allocs[each.id].idle.ends_at for each in (first, second)]
    assert 0 < ends[1] - ends[0] <= seconds(5), "the second is due soon after the first"
    assert (idle.state.allocs[second.id].desired_status == "stop") is waits


async def test_keeping_puts_the_end_off_and_is_bounded_while_others_wait(idle: Idle) -> None:
    await idle.run(gpu_job("idle", replace(POLICY, interactive=InteractivePolicy(keep=1))))
    keep = idle.bench.server.resources.allocs.keep
    first = await keep(idle.alloc().id, seconds(10))
    assert first.keeps == 0, "nobody waits, so it costs nothing"
    await idle.tell(idle.alloc(), 60)
    await idle.run(gpu_job("waiting"))
    await idle.pass_time(20)
    assert idle.alloc().idle.ends_at
    assert (await keep(idle.alloc().id, seconds(100))).keeps == 1
    assert idle.alloc().idle.ends_at == 0
    await idle.pass_time(50)
    assert idle.alloc().idle.ends_at == 0 and idle.alloc().desired_status == "run"
    with pytest.raises(Conflict, match=r"kept 1 times while others waited.*keep = 1"):
        await keep(idle.alloc().id, seconds(1000))
    with pytest.raises(Invalid, match="can be put off by"):
        await keep(idle.alloc().id, seconds(8 * 24 * 3600))
    with pytest.raises(NotFound):
        await keep(factories.new_id(), seconds(10))
    assert idle.bench.live("idle"), "it still runs"
    with pytest.raises(Invalid, match="no policy on idle devices"):
        await idle.run(gpu_job("plain"))
        await idle.bench.server.replica.propose(KeepAlloc(alloc_id=await other(idle), duration=seconds(5)))


async def other(idle: Idle) -> str:
    """An allocation of a job without a policy."""
    job = factories.job(
        "other", type="batch", task_groups=(factories.group(update=None, reschedule_policy=None, migrate=None),)
    )
    await idle.run(job)
    return str(idle.alloc("other").id)


async def test_nothing_ends_that_was_not_announced(idle: Idle) -> None:
    await idle.run(gpu_job("idle", replace(POLICY, when="always", grace=seconds(1000))))
    await idle.tell(idle.alloc(), 60)
    alloc = idle.alloc()
    command = EndIdleAllocs(
        reports={alloc.id: alloc.idle.report_index}, action="requeue", reason="now", now=idle.bench.env.now()
    )
    with pytest.raises(Conflict, match="not due"):
        await idle.bench.server.replica.propose(command)


async def test_a_clock_that_jumps_ends_nothing_early(idle: Idle) -> None:
    await idle.run(gpu_job("idle", replace(POLICY, when="always")))
    await idle.tell(idle.alloc(), 30)
    idle.bench.env.wall_offset_s = 1e6
    await idle.pass_time(10)
    assert idle.alloc().idle.ends_at == 0, "the client has not measured the window"
    await idle.tell(idle.alloc(), 60)
    await idle.pass_time(1)
    assert idle.alloc().idle.ends_at
    idle.bench.env.wall_offset_s = 2e6
    await idle.pass_time(15)
    assert idle.alloc().desired_status == "run", "the notice has not been up for its time"
    idle.bench.env.wall_offset_s = -1e6
    await idle.pass_time(60)
    assert not idle.bench.live("idle"), "a notice far in the future is replaced"


async def test_in_interactive_hours_nothing_ends(idle: Idle) -> None:
    all_day = InteractiveHours(start="0 0 * * * *", end="59 23", timezone="UTC")
    policy = replace(POLICY, when="always", interactive=InteractivePolicy(hours=all_day))
    await idle.run(gpu_job("idle", policy))
    await idle.tell(idle.alloc(), 60)
    await idle.pass_time(40)
    assert idle.alloc().idle.ends_at == 0


async def test_a_gang_ends_as_a_whole(bench: Any) -> None:
    idle = Idle(bench, await add_node(bench, 2))
    await idle.run(gpu_job("idle", replace(POLICY, when="always"), count=2, gang=Gang(min=2)))
    one, two = sorted(bench.live("idle"), key=lambda alloc: alloc.name)
    await idle.tell(one, 60)
    await idle.pass_time(10)
    assert bench.server.state.allocs[one.id].idle.ends_at == 0, "the other one works"
    known = bench.server.state.allocs[one.id].idle
    command = AnnounceIdleEnd(reports={one.id: known.report_index}, ends_at=bench.env.now() + 1, now=bench.env.now())
    with pytest.raises(Conflict, match="same gang"):
        await bench.server.replica.propose(command)
    await idle.tell(two, 60)
    await idle.pass_time(40)
    assert {bench.server.state.allocs[each.id].desired_status for each in (one, two)} == {"evict"}


async def test_an_elastic_gang_shrinks_to_its_minimum(bench: Any) -> None:
    idle = Idle(bench, await add_node(bench, 3))
    gang = Gang(min=2, elastic=True, rendezvous=Rendezvous(framework="none", port="meet"))
    job = gpu_job("idle", replace(POLICY, when="always", action="shrink"), count=3, gang=gang)
    await bench.server.replica.propose(RegisterJob(job=job, evaluation=factories.evaluation(job)))
    await bench.idle()
    allocs = sorted(bench.live("idle"), key=lambda alloc: alloc.name)
    for alloc in allocs:
        await idle.tell(alloc, 60)
    await idle.pass_time(40)
    await bench.idle()
    assert [bench.server.state.allocs[each.id].desired_status for each in allocs] == ["run", "run", "stop"]
    assert bench.server.state.jobs["default", "idle"].task_groups[0].count == 2
    await idle.pass_time(40)
    assert len(bench.live("idle")) == 2


async def test_an_enforced_policy_of_the_namespace_replaces_that_of_the_job(idle: Idle) -> None:
    space = replace(idle.state.namespaces["default"], idle=replace(POLICY, enforce=True, when="always"))
    await idle.bench.server.replica.propose(UpsertNamespaces(namespaces=(space,)))
    await idle.run(gpu_job("idle", IdlePolicy(window=seconds(9999), action="notify")))
    device = idle.alloc().job.task_groups[0].tasks[0].resources.devices[0]
    assert device.idle.source == 'namespace "default"' and device.idle.window == POLICY.window
    await idle.tell(idle.alloc(), 60)
    await idle.pass_time(10)
    assert 'by the policy of namespace "default"' in idle.alloc().idle.reason


async def test_one_that_waits_ends_one_of_two_idle_jobs(bench: Any) -> None:
    one, two = await add_node(bench, 1), await add_node(bench, 1)
    idle = Idle(bench, one)
    for name in ("a", "b"):
        await idle.run(gpu_job(name, POLICY))
        await idle.tell(idle.alloc(name), 60)
    assert idle.alloc("a").node_id != idle.alloc("b").node_id
    allocs = [idle.alloc(name) for name in ("a", "b")]
    await idle.run(gpu_job("waiting"))
    # The one that ends saves its work, for as long as it likes.
    await bench.pass_time(60, one, two)
    ended, spared = sorted((idle.state.allocs[each.id] for each in allocs), key=lambda each: each.desired_status)
    assert (ended.desired_status, spared.desired_status) == ("evict", "run")
    assert spared.idle.ends_at == 0 and ended.idle.waiting_eval
    command = AnnounceIdleEnd(
        reports={spared.id: spared.idle.report_index}, ends_at=bench.env.now(), reason="x", now=bench.env.now()
    )
    await bench.server.replica.propose(command)
    second = EndIdleAllocs(
        reports=command.reports,
        action="requeue",
        reason="x",
        waiting_eval=ended.idle.waiting_eval,
        now=bench.env.now(),
    )
    with pytest.raises(Conflict, match="is ending for the same job"):
        await bench.server.replica.propose(second)
    await idle.tell(ended, 0, "complete")
    await bench.until(lambda: bench.live("waiting"))
    # The job that was put back waits now, and is no reason to end the other one: they would take turns.
    await bench.pass_time(60, one, two)
    put_back = "a" if ended.job_id == "a" else "b"
    assert idle.bench.evals(put_back)[-1][1] == "blocked" and not idle.bench.live(put_back)
    assert idle.state.allocs[spared.id].desired_status == "run"


async def test_what_needs_no_devices_is_no_reason(idle: Idle) -> None:
    await idle.run(gpu_job("idle", POLICY))
    await idle.tell(idle.alloc(), 60)
    plain = factories.group("plain", update=None, reschedule_policy=None, migrate=None)
    cpu = replace(plain.tasks[0], resources=Resources(cpu=3900, memory_mb=100))
    cards = RequestedDevice(name="nvidia/gpu", count=2)
    gpu = replace(plain.tasks[0], resources=Resources(cpu=10, memory_mb=10, devices=(cards,)))
    groups = (replace(plain, tasks=(cpu,)), replace(plain, name="gpus", tasks=(gpu,)))
    await idle.run(factories.job("waiting", type="batch", task_groups=groups))
    assert idle.bench.evals("waiting")[-1][1] == "blocked"
    await idle.pass_time(12)
    assert idle.alloc().idle.ends_at == 0


async def test_the_end_of_a_gang_is_withdrawn_and_announced_anew(bench: Any) -> None:
    idle = Idle(bench, await add_node(bench, 2))
    await idle.run(gpu_job("idle", POLICY, count=2, gang=Gang(min=2)))
    allocs = bench.live("idle")
    for alloc in allocs:
        await idle.tell(alloc, 60)
    await idle.run(gpu_job("waiting"))
    await idle.pass_time(8)
    assert all(idle.state.allocs[each.id].idle.ends_at for each in allocs)
    await bench.server.resources.jobs.deregister("default", "waiting")
    await idle.pass_time(40)
    assert not any(idle.state.allocs[each.id].idle.ends_at for each in allocs)
    await idle.run(gpu_job("another"))
    await idle.pass_time(8)
    announced = [idle.state.allocs[each.id].idle.ends_at for each in allocs]
    assert min(announced) > bench.env.now() + seconds(10)
    await idle.pass_time(9)
    assert {idle.state.allocs[each.id].desired_status for each in allocs} == {"run"}, "it has its grace again"
    await idle.pass_time(16)
    assert {idle.state.allocs[each.id].desired_status for each in allocs} == {"evict"}


async def test_a_report_after_the_end_changes_nothing(idle: Idle) -> None:
    await idle.run(gpu_job("idle", replace(POLICY, action="stop", when="always")))
    alloc = idle.alloc()
    await idle.tell(alloc, 60)
    await idle.pass_time(40)
    await idle.tell(alloc, 0)
    await idle.tell(alloc, 0, "complete")
    assert idle.state.allocs[alloc.id].idle.action == "stop"
    await idle.pass_time(20)
    assert len(idle.state.allocs_of_job("default", "idle")) == 1, "nothing replaces it"


async def test_a_client_that_measures_no_more_is_believed(idle: Idle) -> None:
    await idle.run(gpu_job("idle", replace(POLICY, when="always")))
    await idle.tell(idle.alloc(), 60)
    await idle.pass_time(6)
    assert idle.alloc().idle.ends_at
    await idle.bench.report("running", "idle")
    assert idle.alloc().idle.idle_for == 0 and idle.alloc().idle.ends_at == 0


async def test_a_gang_below_its_count_shrinks_to_its_minimum(bench: Any) -> None:
    idle = Idle(bench, await add_node(bench, 3))
    gang = Gang(min=2, elastic=True, rendezvous=Rendezvous(framework="none", port="meet"))
    job = gpu_job("idle", replace(POLICY, when="always", action="shrink"), count=5, gang=gang)
    await bench.server.replica.propose(RegisterJob(job=job, evaluation=factories.evaluation(job)))
    await bench.idle()
    allocs = bench.live("idle")
    assert len(allocs) == 3
    for alloc in allocs:
        await idle.tell(alloc, 60)
    await idle.pass_time(80)
    assert len(bench.live("idle")) == 2
    assert bench.server.state.jobs["default", "idle"].task_groups[0].count == 2


async def test_a_job_of_a_higher_priority_does_not_take_its_idle_devices_back(idle: Idle) -> None:
    await idle.run(replace(gpu_job("idle", POLICY), priority=90))
    alloc = idle.alloc()
    await idle.tell(alloc, 60)
    await idle.run(gpu_job("waiting"))
    await idle.pass_time(40)
    assert idle.state.allocs[alloc.id].desired_status == "evict"
    await idle.tell(alloc, 0, "complete")
    await idle.bench.until(lambda: idle.bench.live("waiting"))
    await idle.pass_time(20)
    await idle.bench.idle()
    assert idle.bench.live("waiting") and not idle.bench.live("idle")


async def test_what_was_kept_for_nothing_does_not_hold_for_one_that_waits(idle: Idle) -> None:
    await idle.run(gpu_job("idle", replace(POLICY, interactive=InteractivePolicy(keep=1))))
    await idle.tell(idle.alloc(), 60)
    keep = idle.bench.server.resources.allocs.keep
    assert (await keep(idle.alloc().id, seconds(7 * 24 * 3600))).keeps == 0
    await idle.pass_time(12)
    assert idle.alloc().idle.ends_at == 0
    await idle.run(gpu_job("waiting"))
    await idle.pass_time(8)
    assert idle.alloc().idle.ends_at
    assert (await keep(idle.alloc().id, seconds(100))).keeps == 1, "a shorter time, and one that holds"
    await idle.pass_time(40)
    assert idle.alloc().idle.ends_at == 0 and idle.alloc().desired_status == "run"


async def test_an_updated_policy_voids_what_was_measured_by_the_old_one(idle: Idle) -> None:
    await idle.run(gpu_job("idle", POLICY))
    await idle.tell(idle.alloc(), 60)
    await idle.run(gpu_job("waiting"))
    await idle.pass_time(8)
    before = idle.alloc()
    assert before.idle.ends_at
    await idle.run(gpu_job("idle", replace(POLICY, below=1)))
    after = idle.alloc()

    assert after.id == before.id, "updated in place"
    assert (after.idle.ends_at, after.idle.idle_for, after.idle.reason) == (0, 0, "")
    await idle.pass_time(30)
    assert idle.alloc().desired_status == "run"


@pytest.mark.parametrize("was_reported", [True, False])
async def test_a_report_under_the_old_policy_that_arrives_late_does_not_count(idle: Idle, was_reported: bool) -> None:
    await idle.run(gpu_job("idle", POLICY))
    before = idle.alloc()
    if was_reported:
        await idle.tell(before, 30)
    await idle.run(gpu_job("idle", replace(POLICY, below=1)))
    await idle.run(gpu_job("waiting"))
    await idle.tell(before, 60)
    assert idle.alloc().idle.idle_for == 0, "it was measured under the old policy"
    await idle.pass_time(40)
    assert idle.alloc().desired_status == "run"
    await idle.tell(idle.alloc(), 60)
    await idle.pass_time(40)
    assert idle.state.allocs[before.id].desired_status == "evict", "it was measured under the new one"


async def test_after_a_new_policy_an_older_agent_ends_nothing(idle: Idle) -> None:
    idle.has_versions = False
    await idle.run(gpu_job("idle", replace(POLICY, when="always")))
    await idle.tell(idle.alloc(), 60)
    assert idle.alloc().idle.idle_for, "without a new policy its reports count"
    await idle.run(gpu_job("idle", replace(POLICY, when="always", below=1)))
    await idle.tell(idle.alloc(), 0)
    await idle.tell(idle.alloc(), 60)
    await idle.pass_time(60)
    assert idle.alloc().desired_status == "run"


def withdrawn(idle: Idle) -> dict[str, int]:
    """How many withdrawals the metric counts, by cause."""
    counts = idle.bench.server.metrics.counts()
    return {dict(row.labels)["cause"]: row.value for row in counts if row.name.endswith("idle.withdrawn")}


async def test_withdrawals_by_use_and_by_keep_are_counted(idle: Idle) -> None:
    await idle.run(gpu_job("idle", POLICY))
    await idle.run(gpu_job("waiting"))
    await idle.tell(idle.alloc(), 60)
    await idle.pass_time(8)
    await idle.tell(idle.alloc(), 0)
    await idle.tell(idle.alloc(), 60)
    await idle.pass_time(8)
    assert idle.alloc().idle.ends_at
    await idle.bench.server.resources.allocs.keep(idle.alloc().id, seconds(100))
    known = idle.alloc().idle

    assert (known.spared_by_use, known.spared_by_keep, known.ends_at) == (1, 1, 0)
    assert withdrawn(idle) == {"use": 1, "keep": 1}


async def test_a_withdrawal_because_nobody_waits_is_counted_with_its_cause(idle: Idle) -> None:
    await idle.run(gpu_job("idle", POLICY))
    await idle.tell(idle.alloc(), 60)
    await idle.run(gpu_job("waiting"))
    await idle.pass_time(8)
    await idle.bench.server.resources.jobs.deregister("default", "waiting")
    await idle.pass_time(40)
    assert withdrawn(idle) == {"need": 1}


async def test_the_use_of_one_member_withdraws_the_ends_of_its_gang_by_another_cause(bench: Any) -> None:
    idle = Idle(bench, await add_node(bench, 2))
    await idle.run(gpu_job("idle", replace(POLICY, when="always"), count=2, gang=Gang(min=2)))
    one, two = bench.live("idle")
    for each in (one, two):
        await idle.tell(each, 60)
    await idle.pass_time(8)
    assert all(idle.state.allocs[each.id].idle.ends_at for each in (one, two))
    await idle.tell(one, 0)
    await idle.pass_time(8)
    assert not idle.state.allocs[two.id].idle.ends_at
    assert withdrawn(idle) == {"use": 1, "other": 1}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"idle_for": Duration(0)}, "use"),
        ({"kept_until": UnixNano(99)}, "keep"),
        ({"keeps": 1}, "keep"),
        ({"reason": ""}, None),
    ],
)
async def test_withdrawals_have_their_cause_while_servers_count_no_spared_ends(
    idle: Idle, changes: dict[str, Any], cause: str | None
) -> None:
    """Rules before those counts leave them at 0."""
    await idle.run(gpu_job("idle", POLICY))
    announced = IdleState(idle_for=seconds(60), ends_at=UnixNano(50), reason="x")
    before = replace(idle.alloc(), idle=announced)
    after = replace(before, idle=replace(announced, ends_at=UnixNano(0), **changes))
    metrics = Metrics()
    reclaimer = IdleReclaimer(env=idle.bench.env, writer=cast(Any, None), metrics=metrics, config=cast(Any, None))
    reclaimer.observe((Change("allocs", before.id, before, after),))
    found = [dict(row.labels)["cause"] for row in metrics.counts() if row.name.endswith("idle.withdrawn")]
    assert found == ([] if cause is None else [cause])
