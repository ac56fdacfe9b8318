"""No node of a system job is forgotten under limits, whatever comes, goes and changes, over changes of leader too (B4).

Each random history is compared with a model that only adds up: where a node has room and all quotas have some left,
each group runs once the queue is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt import scheduler
from yurt.runtime.turns import Turns
from yurt.sdk.value import replace
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.server.scheduling.plan_applier import outcome_evaluations
from yurt.state.namespace_usage import NOTHING_USED, NamespaceUsage, counted
from yurt.state.usage import is_using, usage_of
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import Namespace
from yurt.structs.job import Job
from yurt.structs.node import Node, NodeCpuResources, NodeMemoryResources
from yurt.structs.plan import Plan
from yurt.structs.predicates import is_ready, is_terminal
from yurt.structs.quota import QuotaSpec
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv
from yurt.testing.nightly import cases
from yurt.testing.quotas import QUOTAS as LIMITS
from yurt.testing.quotas import bound, quota
from yurt.testing.replica import Replica

ROUNDS_MAX: Final = 300
MOVES: Final = 25
UNLIMITED: Final = 1_000_000
CHAINS: Final = {"default": ("child", "parent"), "other": ("sibling", "parent"), "free": ()}
"""The quotas under which each namespace counts."""


def _job(name: str, **asked: Resources) -> Job:
    tasks = {group: factories.task(resources=resources) for group, resources in asked.items()}
    groups = tuple(factories.group(group, tasks=(task,), update=None) for group, task in tasks.items())
    return factories.job(name, type="system", task_groups=groups)


HIGH, WIDE = Resources(cpu=400, memory_mb=10), Resources(cpu=10, memory_mb=400)
JOBS: Final = (
    _job("sys", high=HIGH, wide=WIDE, both=Resources(cpu=150, memory_mb=150)),
    replace(_job("agent", high=HIGH, wide=WIDE), namespace="other"),
)


def _node(cpu: int, memory_mb: int, node_id: str = "") -> Node:
    node = factories.node(node_id)
    resources = replace(
        node.node_resources,
        cpu=NodeCpuResources(cpu_shares=cpu),
        memory=NodeMemoryResources(memory_mb=memory_mb),
    )
    return replace(node, node_resources=resources)


class Cluster:
    """A state, and the evaluations of the leader of one term after the other."""

    def __init__(self, nodes: int, jobs: tuple[Job, ...] = JOBS, **limits: QuotaSpec) -> None:
        self.replica = Replica()
        specs = {"parent": quota("parent", cpu=1000)} | limits
        specs = {"child": quota("child", parent="parent", memory_mb=1000)} | specs
        specs = {"sibling": quota("sibling", parent="parent", memory_mb=1000)} | specs
        self.replica.apply(c.UpsertQuotas(quotas=(specs["parent"],)))
        self.replica.apply(*bound("default", spec=specs["child"]), *bound("other", spec=specs["sibling"]))
        self.replica.apply(c.UpsertNamespaces(namespaces=(Namespace(name="free"),)))
        self.replica.apply(*(c.RegisterNode(node=_node(4000, 8000)) for _ in range(nodes)))
        self.fail_over()
        for job in jobs:
            self.apply(c.RegisterJob(job=job))
            self.evaluate(job)
        self.settle()

    def fail_over(self) -> None:
        """Begin a term with nothing but the state."""
        self.queue = EvalQueue(
            env=FakeEnv(), writer=None, current=lambda: self.replica.state, turns=Turns(), limits=LIMITS
        )
        self.queue.restore(self.replica.state)

    def apply(self, *made: c.AnyCommand) -> None:
        for command in made:
            self.replica.apply(command)
            self.queue.observe(self.replica.changes, index=self.replica.state.index)

    def evaluate(self, *jobs: Job, node_id: str = "") -> None:
        """Evaluate jobs as the commands of the servers do."""
        made = [factories.evaluation(job, node_id=node_id) for job in jobs]
        self.apply(c.UpsertEvaluations(evaluations=tuple(made)))

    def settle(self) -> None:
        """Schedule until no evaluation is ready."""
        for _ in range(ROUNDS_MAX):
            if canceled := self.queue._take_canceled():
                self.apply(c.UpsertEvaluations(evaluations=canceled))
            while self.queue.blocked.has_changes:
                self.queue._unblock_some(factories.NOW)
            delivery = self.queue.dequeue_now(status.JOB_TYPES)
            if delivery is None:
                self.queue.blocked.check()
                return
            state = self.replica.state
            plan, outcome = scheduler.attempt(
                state, delivery.evaluation, now=factories.NOW, seed=state.index, limits=LIMITS
            )
            assert scheduler.check_plan(state, plan, LIMITS).is_full
            ended = outcome_evaluations(outcome)
            if not plan.is_empty:
                self.apply(c.ApplyPlan(plan=plan, evaluations=ended))
            elif len(ended) > 1 or not self.queue.block_again(ended[0]):
                self.apply(c.UpsertEvaluations(evaluations=ended))
            self.queue.ack(delivery)
        raise AssertionError("the scheduler keeps changing its mind")

    def live(self, job_id: str, group: str) -> list[Allocation]:
        allocs = self.replica.state.allocs.values()
        return [a for a in allocs if (a.job_id, a.task_group) == (job_id, group) and not is_terminal(a)]

    def blocked(self) -> list[tuple[str, str]]:
        """The job and the node of each blocked evaluation."""
        return sorted((each.job_id, each.node_id) for each in self.queue.blocked.all())

    def end(self, alloc: Allocation) -> None:
        told = c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status=status.CLIENT_COMPLETE)
        self.apply(c.UpdateAllocsFromClient(updates=(told,)))

    def fill(self, namespace: str, node: Node, resources: Resources) -> None:
        """An allocation that no scheduler looks after: it ends without an evaluation of its job."""
        job = replace(_job("filler", filler=resources), namespace=namespace)
        job = replace(job, id=f"filler-{namespace}-{resources.cpu}-{resources.memory_mb}", type="batch")
        self.apply(c.RegisterJob(job=job))
        plan = Plan(
            eval_id="filler", namespace=namespace, job_id=job.id, placements=(factories.placement(job, on=node),)
        )
        self.apply(c.ApplyPlan(plan=plan))

    # -- the model ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Each group runs on each node where it may."""
        ready = [node for node in self.replica.state.nodes.values() if is_ready(node)]
        for job, group in ((each, group) for each in JOBS for group in each.task_groups):
            nodes = {alloc.node_id for alloc in self.live(job.id, group.name)}
            open_to_it = [n.id for n in ready if n.id not in nodes and self._fits(job, group.tasks[0].resources, n)]
            assert not open_to_it, (job.id, group.name)

    def _fits(self, job: Job, asked: Resources, node: Node) -> bool:
        free = node.node_resources
        used = self._used(lambda alloc: alloc.node_id == node.id)
        if used.cpu + asked.cpu > free.cpu.cpu_shares or used.memory + asked.memory_mb > free.memory.memory_mb:
            return False
        for name in CHAINS[job.namespace]:
            limit = self.replica.state.quotas[name].limits[0].region_limit
            assert limit is not None
            members = [namespace for namespace, chain in CHAINS.items() if name in chain]
            used = self._used(partial(_is_of, members))
            if used.cpu + asked.cpu > (limit.cpu or UNLIMITED):
                return False
            if used.memory + asked.memory_mb > (limit.memory_mb or UNLIMITED):
                return False
        return True

    def _used(self, counts: Callable[[Allocation], bool]) -> NamespaceUsage:
        total = NOTHING_USED
        for alloc in self.replica.state.allocs.values():
            if is_using(alloc) and counts(alloc):
                total = total.plus(counted(usage_of(alloc)))
        return total


def _is_of(namespaces: list[str], alloc: Allocation) -> bool:
    return alloc.namespace in namespaces


class History:
    """Random changes of a cluster."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(self.random.randint(0, 4))

    def run(self) -> None:
        for _ in range(MOVES):
            move = self.random.choice((self.nodes, self.usage, self.usage, self.quotas, self.restart, self.leader))
            move()
            if self.random.random() < 0.6:
                self.cluster.settle()
                self.cluster.check()
        self.cluster.settle()
        self.cluster.check()

    def leader(self) -> None:
        self.cluster.fail_over()

    def nodes(self) -> None:
        """A node comes, goes, comes back, or has another capacity."""
        random, cluster = self.random, self.cluster
        known = sorted(cluster.replica.state.nodes.values(), key=lambda each: each.id)
        move = random.choice(("new", "changed", "down", "eligible"))
        if move == "new" or not known:
            node = self._size()
            cluster.apply(c.RegisterNode(node=node))
            cluster.evaluate(*JOBS, node_id=node.id)
            return
        node = random.choice(known)
        if move == "changed":
            if is_ready(node):
                cluster.apply(c.RegisterNode(node=self._size(node.id)))
            return
        if move == "down":
            to = status.NODE_READY if node.status == status.NODE_DOWN else status.NODE_DOWN
            cluster.apply(c.SetNodeStatus(node_id=node.id, status=to, updated_at=1))
        else:
            is_eligible = node.scheduling_eligibility == status.ELIGIBLE
            to_eligible = status.INELIGIBLE if is_eligible else status.ELIGIBLE
            cluster.apply(c.SetNodeEligibility(node_id=node.id, eligibility=to_eligible))
        cluster.evaluate(*JOBS, node_id=node.id)

    def _size(self, node_id: str = "") -> Node:
        sizes = (350, 600, 900, 4000)
        return _node(self.random.choice(sizes), self.random.choice(sizes), node_id)

    def usage(self) -> None:
        """An allocation of another job comes or ends, on any node and in any namespace."""
        random, cluster = self.random, self.cluster
        state = cluster.replica.state
        fillers = sorted(a.id for a in state.allocs.values() if a.job_id.startswith("filler") and is_using(a))
        ready = sorted(node.id for node in state.nodes.values() if is_ready(node))
        if ready and (not fillers or random.random() < 0.4):
            sizes = (10, 100, 300, 500)
            resources = Resources(cpu=random.choice(sizes), memory_mb=random.choice(sizes))
            cluster.fill(random.choice(sorted(CHAINS)), state.nodes[random.choice(ready)], resources)
        elif fillers:
            cluster.end(state.allocs[random.choice(fillers)])

    def restart(self) -> None:
        """An allocation of a system job ends, and its job is evaluated."""
        allocs = self.cluster.replica.state.allocs.values()
        live = sorted(a.id for a in allocs if a.job_id in ("sys", "agent") and not is_terminal(a))
        if live:
            alloc = self.cluster.replica.state.allocs[self.random.choice(live)]
            self.cluster.end(alloc)
            self.cluster.evaluate(*(job for job in JOBS if job.id == alloc.job_id))

    def quotas(self) -> None:
        """A quota is raised or lowered, also below what is used."""
        random = self.random
        name = random.choice(("child", "sibling", "parent"))
        parent = "" if name == "parent" else "parent"
        amounts = {key: random.choice((300, 1000, 2500)) for key in ("cpu", "memory_mb") if random.random() < 0.7}
        self.cluster.apply(c.UpsertQuotas(quotas=(quota(name, parent=parent, **(amounts or {"cpu": 5000})),)))


@settings(max_examples=cases(40), deadline=None)
@given(st.integers(0, 2**32))
def test_each_group_runs_wherever_nodes_and_quotas_allow(seed: int) -> None:
    History(seed).run()


@pytest.mark.parametrize("is_leader_changed", [False, True])
@pytest.mark.parametrize(
    ("changed", "group"),
    [(quota("parent", cpu=9000), "high"), (quota("child", parent="parent", memory_mb=9000), "wide")],
    ids=["the outer", "the inner"],
)
def test_each_limit_wakes_what_it_refused(changed: QuotaSpec, group: str, is_leader_changed: bool) -> None:
    cluster = Cluster(4, (_job("sys", high=HIGH, wide=WIDE),))
    assert (len(cluster.live("sys", "high")), len(cluster.live("sys", "wide"))) == (2, 2)
    assert cluster.blocked() == [("sys", "")]
    if is_leader_changed:
        cluster.replica.apply(c.UpsertQuotas(quotas=(changed,)))
        cluster.fail_over()
    else:
        cluster.apply(c.UpsertQuotas(quotas=(changed,)))
    cluster.settle()
    assert len(cluster.live("sys", group)) == 4
    assert cluster.blocked() == [("sys", "")]


def test_what_another_namespace_frees_wakes_what_the_outer_limit_refused() -> None:
    cluster = Cluster(4, ())
    node = next(iter(cluster.replica.state.nodes.values()))
    cluster.fill("other", node, Resources(cpu=500, memory_mb=10))
    job = _job("sys", high=HIGH, wide=WIDE)
    cluster.apply(c.RegisterJob(job=job))
    cluster.evaluate(job)
    cluster.settle()
    assert len(cluster.live("sys", "high")) == 1 and cluster.blocked() == [("sys", "")]
    cluster.end(cluster.live("filler-other-500-10", "filler")[0])
    cluster.settle()
    assert len(cluster.live("sys", "high")) == 2
