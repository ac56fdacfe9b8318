"""A region with a server of an older version: what waits for its upgrade comes after it, and holds nothing else up."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
from yurt.fsm.restore import framed
from yurt.fsm.snapshot import encode
from yurt.runtime.metrics import full_name
from yurt.sdk.errors import Conflict
from yurt.sdk.value import replace
from yurt.server.log.restore import restore
from yurt.server.peers import NoPeers
from yurt.server.resources.deployment_watcher import UPGRADE_PAUSE_S, DeploymentWatcher
from yurt.server.resources.region_replication import Replication
from yurt.server.scheduling import plan_applier
from yurt.structs import commands as c
from yurt.structs.cluster import Namespace
from yurt.structs.commands.versions import RegionRules, ruled
from yurt.structs.node import Attribute, NodeDevice, NodeDeviceResource
from yurt.structs.plan import DeploymentUpdate, Outcome, Plan
from yurt.structs.policies import IdlePolicy
from yurt.structs.quota import QuotaLimit, QuotaResources, QuotaSpec
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.rules import DEVICE_PART_RULES, RULES_VERSION, UNPUBLISHED_RULES
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv, eventually

OLD = RegionRules(version=UNPUBLISHED_RULES, behind=("srv2.global",))


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region has a server of an older version."""
    monkeypatch.setattr(NoPeers, "rules", OLD)


@pytest.fixture
async def bench(run_server: Any) -> AsyncIterator[Any]:
    async with run_server() as made:
        yield made


async def test_a_namespace_that_waits_for_an_upgrade_holds_up_no_other(
    older: None, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    duty = Replication(bench.server.replica, None, bench.server.metrics)  # type: ignore[arg-type]
    (kind,) = [each for each in duty._kinds if each.table == "namespaces"]
    rows = (Namespace(name="gpu", idle=IdlePolicy()), Namespace(name="web"))
    with pytest.raises(Conflict, match="idle"):
        await duty._store(kind, rows)
    assert "web" in bench.server.state.namespaces and "gpu" not in bench.server.state.namespaces
    monkeypatch.setattr(NoPeers, "rules", RegionRules())
    await duty._store(kind, rows)
    assert "gpu" in bench.server.state.namespaces


async def test_a_restore_that_an_older_server_interrupts_leaves_nothing_behind(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"".join(framed(encode(bench.server.state)))
    propose = bench.server.replica.writer.propose

    async def lowered(command: c.AnyCommand) -> Any:
        """A server of an older version joins before the end of the restore."""
        if isinstance(command, c.FinishRestore):
            monkeypatch.setattr(NoPeers, "rules", OLD)
        return await propose(command)

    monkeypatch.setattr(type(bench.server.replica.writer), "propose", lambda self, command: lowered(command))
    with pytest.raises(Conflict, match="restoring a snapshot needs all servers"):
        await restore(bench.server.replica, bench.server.leader, io.BytesIO(data), len(data))
    rows = bench.server.state.restore_chunks
    assert [row.data for row in rows.values()] == [b""]


class RefusingWriter:
    """Refuses what the older server of the region does not know, while there is one."""

    def __init__(self, deployment: Any) -> None:
        self.region = OLD
        self.accepted: list[c.AnyCommand] = []
        self.state = self
        self.deployments = {deployment.id: deployment}
        self.allocs = self

    def count_where(self, *_: object) -> int:
        return 0

    async def propose(self, command: c.AnyCommand) -> None:
        self.accepted.append(ruled(command, self.region))


async def test_a_roll_back_that_waits_for_an_upgrade_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    job = factories.job()
    deployment = factories.deployment(job)
    (group,) = job.task_groups
    device = RequestedDevice(name="gpu", count=1, on_failure="move")
    task = replace(group.tasks[0], resources=replace(group.tasks[0].resources or Resources(), devices=(device,)))
    update = DeploymentUpdate(deployment_id=deployment.id, status="failed", status_description="rolling back")
    command = c.SetDeploymentStatus(update=update, job=replace(job, task_groups=(replace(group, tasks=(task,)),)))
    writer, env = RefusingWriter(deployment), FakeEnv()
    watcher = DeploymentWatcher(env=env, writer=writer)  # type: ignore[arg-type]

    async def decided(*_: object) -> c.AnyCommand:
        return command

    watcher._decided = decided  # type: ignore[method-assign, assignment]
    watcher.restore(writer)  # type: ignore[arg-type]
    running = asyncio.create_task(watcher.run())
    await eventually(lambda: "a step of a deployment waits" in caplog.text)
    assert writer.accepted == []
    writer.region = RegionRules()
    for _ in range(3):
        await env.advance(UPGRADE_PAUSE_S)
    await eventually(lambda: writer.accepted)
    running.cancel()


async def four_shares(bench: Any) -> tuple[Any, Any]:
    """A node with one card, and a job of four quarters of it whose namespace has a quota of one card."""
    asked = (RequestedDevice(name="nvidia/gpu", count=1),)
    limit = QuotaLimit(region="global", region_limit=QuotaResources(devices=asked), hash=b"1")
    await bench.server.replica.propose(c.UpsertQuotas(quotas=(QuotaSpec(name="one", limits=(limit,)),)))
    await bench.server.replica.propose(c.UpsertNamespaces(namespaces=(Namespace(name="team", quota="one"),)))
    facts = {"memory": Attribute(int_val=80 << 10, unit="MiB"), "sharing": Attribute(string_val="mps")}
    cards = (NodeDevice(id="gpu-0", healthy=True),)
    kind = NodeDeviceResource(vendor="nvidia", type="gpu", name="h100", instances=cards, attributes=facts)
    resources = replace(factories.node().node_resources, devices=(kind,))
    node = await bench.add_node(node_resources=resources)
    share = RequestedDevice(name="nvidia/gpu", count=1, share="mps", memory_mb=20 << 10)
    job = factories.job("shares", type="batch", namespace="team")
    task = replace(job.task_groups[0].tasks[0], resources=Resources(cpu=10, memory_mb=16, devices=(share,)))
    group = replace(job.task_groups[0], tasks=(task,), count=4)
    return node, replace(job, task_groups=(group,))


@pytest.mark.parametrize(
    ("earlier", "version", "placed"),
    [
        (RULES_VERSION, RULES_VERSION, 4),
        (DEVICE_PART_RULES - 1, DEVICE_PART_RULES - 1, 1),
        (RULES_VERSION, DEVICE_PART_RULES - 1, 1),
        (DEVICE_PART_RULES - 1, RULES_VERSION, 4),
    ],
    ids=["new", "old", "one server back", "last one upgraded"],
)
async def test_quotas_count_shares_as_the_log_will_have_them(
    run_server: Any, monkeypatch: pytest.MonkeyPatch, earlier: int, version: int, placed: int
) -> None:
    """Four shares of a quarter of a card's memory: without their part in the log, each counts as a card.

    Workers plan by what the log will have, so one share is placed and the others wait for the quota.
    """
    monkeypatch.setattr(NoPeers, "rules", RegionRules(version=earlier, behind=("srv2.global",)))
    async with run_server() as bench:
        node, job = await four_shares(bench)
        monkeypatch.setattr(NoPeers, "rules", RegionRules(version=version, behind=("srv2.global",)))
        await bench.server.resources.jobs.register(job)

        await bench.until(lambda: len(bench.server.state.allocs) >= placed)
        await bench.pass_time(5, node)

        state = bench.server.state
        assert len(state.allocs) == placed
        used = [usage.devices for usage in state.columns.by_namespace.get("team", {}).values()]
        assert used == [(("nvidia/gpu/h100", 1000),)]
        assert not bench.server.metrics.counters["plan.partial"], "no plan is refused for what its worker counted"
        waiting = [each for each in state.evals.values() if each.status == "blocked"]
        assert [each.quota_limit_reached for each in waiting] == ([] if placed == 4 else ["one"])
        assert state.rules == max(earlier, version)


def plans_checked(bench: Any) -> int:
    """The number of plans that the metrics count as checked."""
    return sum(each.value for each in bench.server.metrics.counts() if each.name == full_name("plan.submitted"))


@pytest.mark.parametrize("moment", ["before the check", "after the check", "while it is encoded"])
async def test_a_plan_of_newer_rules_is_checked_as_the_log_will_have_it_after_a_step_back(
    bench: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """No command comes between, so the state that the plan was made from knows nothing of the step back."""
    node, job = await four_shares(bench)
    applier = bench.server.term.applier
    env, checked = applier._env, list[int]()
    handed_in, hand_in = list[Plan](), applier.hand_in

    def handing_in(plan: Plan, outcome: Outcome) -> Any:
        handed_in.append(plan)
        return hand_in(plan, outcome)

    monkeypatch.setattr(applier, "hand_in", handing_in)

    def step_back() -> None:
        checked.append(bench.server.state.last_rules)
        monkeypatch.setattr(NoPeers, "rules", RegionRules(version=DEVICE_PART_RULES - 1, behind=("srv2.global",)))

    check = applier._check

    async def before(*arguments: Any) -> Any:
        if not checked:
            step_back()
        return await check(*arguments)

    in_thread = env.in_thread

    async def after(function: Any, *arguments: Any, **named: Any) -> Any:
        result = await in_thread(function, *arguments, **named)
        wanted = applier._writer.prepare if moment == "while it is encoded" else plan_applier.scheduler.check_plan
        if function == wanted and not checked:
            step_back()
        return result

    if moment == "before the check":
        monkeypatch.setattr(applier, "_check", before)
    else:
        monkeypatch.setattr(plan_applier, "THREAD_SIZE", 0)
        monkeypatch.setattr(env, "in_thread", after)
    await bench.server.resources.jobs.register(job)
    await bench.until(lambda: len(bench.server.state.allocs) >= 1)
    await bench.pass_time(5, node)

    state = bench.server.state
    assert checked == [RULES_VERSION], "the plan was made by the newer rules"
    used = [usage.devices for usage in state.columns.by_namespace.get("team", {}).values()]
    assert used == [(("nvidia/gpu/h100", 1000),)], "no more than the quota, as the log has the shares"
    waiting = [each.quota_limit_reached for each in state.evals.values() if each.status == "blocked"]
    assert (len(state.allocs), waiting) == (1, ["one"])
    assert plans_checked(bench) == len(handed_in) > 0, "one that is checked twice is counted once"


async def test_a_plan_that_was_encoded_by_older_rules_of_a_moment_is_checked_again(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands leave out the parts, by which it was checked and which the next command would have again."""
    _, job = await four_shares(bench)
    applier = bench.server.term.applier
    env, encoded = applier._env, list[int]()
    in_thread = env.in_thread

    async def in_a_moment(function: Any, *arguments: Any, **named: Any) -> Any:
        if function != applier._writer.prepare:
            return await in_thread(function, *arguments, **named)
        version = DEVICE_PART_RULES - 1 if not encoded else RULES_VERSION
        monkeypatch.setattr(NoPeers, "rules", RegionRules(version=version))
        made = await in_thread(function, *arguments, **named)
        monkeypatch.setattr(NoPeers, "rules", RegionRules())
        encoded.append(version)
        return made

    monkeypatch.setattr(plan_applier, "THREAD_SIZE", 0)
    monkeypatch.setattr(env, "in_thread", in_a_moment)
    await bench.server.resources.jobs.register(job)
    await bench.until(lambda: len(bench.server.state.allocs) == 4)

    assert encoded == [DEVICE_PART_RULES - 1, RULES_VERSION]
    used = [usage.devices for usage in bench.server.state.columns.by_namespace.get("team", {}).values()]
    assert used == [(("nvidia/gpu/h100", 1000),)]


async def test_a_refused_plan_that_waits_for_older_rules_in_the_log_holds_up_no_other(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job = await four_shares(bench)
    applier = bench.server.term.applier
    hand_in, log = applier.hand_in, applier._writer._log
    append, may_append = log.append, asyncio.Event()

    async def held_append(*arguments: Any, **named: Any) -> Any:
        await may_append.wait()
        return await append(*arguments, **named)

    def after_a_step_back(plan: Plan, outcome: Outcome) -> Any:
        monkeypatch.setattr(NoPeers, "rules", RegionRules(version=DEVICE_PART_RULES - 1, behind=("srv2.global",)))
        monkeypatch.setattr(log, "append", held_append)
        monkeypatch.setattr(applier, "hand_in", hand_in)
        hand_in(plan, outcome)
        return hand_in(plan, outcome)

    monkeypatch.setattr(applier, "hand_in", after_a_step_back)
    await bench.server.resources.jobs.register(job)
    await bench.until(lambda: plans_checked(bench) == 2)
    assert not bench.server.state.allocs
    may_append.set()
    await bench.until(lambda: len(bench.server.state.allocs) == 1)
