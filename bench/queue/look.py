"""The cost of the gate before the broker: 10,000 jobs of 1,000 namespaces wait for a full pool of 5,000 nodes.

Measured is the time that the leader's loop spends in the gate: for a job that comes, for an allocation that ends (the
gate follows the change, decides and lets a job through), and for a pool of which many allocations end at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from yurt.fsm import apply
from yurt.sdk.value import Duration, UnixNano, replace
from yurt.server.queueing.gate import QueueGate
from yurt.state import Changes, Snapshot
from yurt.structs.alloc import AllocatedDeviceResource, AllocatedResources, Allocation
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.commands import (
    AllocUpdate,
    AnyCommand,
    ApplyPlan,
    RegisterJob,
    RegisterNode,
    UpdateAllocsFromClient,
    UpsertEvaluations,
    UpsertNamespaces,
    UpsertNodePools,
    UpsertQuotas,
)
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.plan import Placement, Plan
from yurt.structs.queueing.batch_queue import HOUR, BatchQueue, FairShareQueue
from yurt.structs.quota import QuotaLimit, QuotaResources, QuotaSpec, with_hashes
from yurt.structs.resources import RequestedDevice, Resources
from yurt.testing import factories

from bench.scheduler import node

POOL: Final = "gpu"
GPUS_PER_NODE: Final = 2
SIZES: Final = (1, 1, 1, 1, 2, 4, 8)
HOURS: Final = (0.2, 0.5, 1, 4, 24)
ENDS: Final = 150
BATCH: Final = 16


class Size(NamedTuple):
    """How much of everything."""

    nodes: int = 5_000
    namespaces: int = 1_000
    waiting: int = 10_000
    guaranteed: int = 0
    """GPUs that each namespace is guaranteed by a quota of its own; 0: there are no quotas."""


class Cost(NamedTuple):
    """Milliseconds."""

    mean: float
    p99: float
    longest: float


class World:
    """A state that commands change, and the gate that follows it."""

    def __init__(self, size: Size) -> None:
        self.now = factories.NOW
        self.state = Snapshot.empty()
        self.gate = QueueGate("global")
        names = [f"team-{number}" for number in range(size.namespaces)]
        if size.guaranteed:
            self.apply(UpsertQuotas(quotas=tuple(_quota(name, size.guaranteed) for name in names)))
        spaces = tuple(Namespace(name=name, quota=name if size.guaranteed else "") for name in names)
        spaces += tuple(Namespace(name=f"guest-{number}") for number in range(ENDS))
        self.apply(UpsertNamespaces(namespaces=spaces))
        queue = BatchQueue(fair_share=FairShareQueue(half_life=Duration(24 * HOUR)))
        pool = NodePool(name=POOL, batch_queue=queue)
        self.apply(UpsertNodePools(pools=(pool,), now=self.now))
        for number in range(size.nodes):
            self.apply(RegisterNode(node=replace(node(number, GPUS_PER_NODE), node_pool=POOL)))
        assert self.state.columns is not None

    def apply(self, command: AnyCommand) -> Changes:
        """Apply a command; what it changed."""
        step = apply(self.state, command, index=self.state.index + 1)
        self.state = step.state
        return step.changes

    def register(self, made: Job) -> Job:
        """A job of the state."""
        self.apply(RegisterJob(job=made))
        found = self.state.jobs.get(made.key)
        assert found is not None
        return found

    def fill(self, size: Size) -> None:
        """Run one allocation on each GPU, each of a job of its own, of namespaces in turn."""
        for number, row in enumerate(list(self.state.nodes.values())):
            running = self.register(job_of(number, size.namespaces, name="run", count=GPUS_PER_NODE))
            placements = tuple(
                factories.placement(running, on=row, index=index, resources=granted(running, row, index))
                for index in range(GPUS_PER_NODE)
            )
            self.place(running, placements)

    def place(self, running: Job, placements: tuple[Placement, ...]) -> Changes:
        """A plan is applied."""
        self.now = UnixNano(self.now + 1_000_000)
        plan = Plan(eval_id="", namespace=running.namespace, job_id=running.id, placements=placements, now=self.now)
        return self.apply(ApplyPlan(plan=plan))

    def arrivals(self, size: Size) -> Iterator[Evaluation]:
        """Evaluations of jobs that wait, once the state has them."""
        for number in range(size.waiting):
            yield self.arrival(job_of(number, size.namespaces, name="wait", count=SIZES[number % len(SIZES)]))

    def guests(self, size: Size) -> Iterator[Evaluation]:
        """Evaluations of jobs of namespaces that neither wait nor run anything."""
        for number in range(ENDS):
            made = job_of(number, size.namespaces, name="guest", count=1)
            yield self.arrival(replace(made, namespace=f"guest-{number}"))

    def arrival(self, made: Job) -> Evaluation:
        """The evaluation of a job that is registered now."""
        self.now = UnixNano(self.now + 1_000_000)
        found = self.register(replace(made, submit_time=self.now))
        evaluation = Evaluation(
            id=f"eval-{found.id}",
            namespace=found.namespace,
            job_id=found.id,
            type="batch",
            triggered_by="job-register",
            status="pending",
            create_time=self.now,
            job_modify_index=found.job_modify_index,
        )
        self.apply(UpsertEvaluations(evaluations=(evaluation,)))
        return evaluation

    def end(self, alloc_ids: list[str]) -> Changes:
        """The clients say that allocations have ended."""
        self.now = UnixNano(self.now + 10_000_000)
        rows = [self.state.allocs[each] for each in alloc_ids]
        updates = tuple(AllocUpdate(id=row.id, node_id=row.node_id, client_status="complete") for row in rows)
        return self.apply(UpdateAllocsFromClient(updates=updates))


def _quota(name: str, gpus: int) -> QuotaSpec:
    """A quota without a limit that is guaranteed GPUs."""
    guaranteed = QuotaResources(devices=(RequestedDevice(name="nvidia/gpu", count=gpus),))
    return with_hashes(QuotaSpec(name=name, limits=(QuotaLimit(region="global", guaranteed=guaranteed),)))


def job_of(number: int, namespaces: int, *, name: str, count: int) -> Job:
    """A batch job of GPUs, with a limit."""
    made = factories.job(f"{name}-{number}", type="batch", namespace=f"team-{number % namespaces}", node_pool=POOL)
    asked = Resources(cpu=500, memory_mb=1024, devices=(RequestedDevice(name="nvidia/gpu", count=1),))
    group = made.task_groups[0]
    task = replace(group.tasks[0], driver="exec", resources=asked)
    limit = Duration(round(HOURS[number % len(HOURS)] * HOUR))
    group = replace(group, count=count, tasks=(task,), max_run_duration=limit)
    return replace(made, datacenters=("*",), task_groups=(group,))


def granted(made: Job, on: Node, index: int) -> AllocatedResources:
    """What an allocation gets on a node: one of its GPUs."""
    found = factories.allocated(made.task_groups[0])
    kind = on.node_resources.devices[0]
    device = AllocatedDeviceResource(
        vendor=kind.vendor, type=kind.type, name=kind.name, device_ids=(kind.instances[index].id,)
    )
    (name, task), *_ = found.tasks.items()
    return replace(found, tasks={name: replace(task, devices=(device,))})


def measure(size: Size) -> dict[str, Cost]:
    """What insertions and decisions cost."""
    world = World(size)
    world.fill(size)
    inserted = [_timed(partial(world.gate.takes, world.state, each)) for each in world.arrivals(size)]
    world.gate.look(world.state, world.now)
    running = iter(list(world.state.allocs.values()))

    def guest_comes(evaluation: Evaluation) -> float:
        world.gate.takes(world.state, evaluation)
        return _ends(world, [next(running)])

    return {
        "insertion": _cost(inserted),
        "an allocation ends": _cost([_ends(world, [next(running)]) for _ in range(ENDS)]),
        f"{BATCH} end at once, per decision": _cost(
            [_ends(world, [next(running) for _ in range(BATCH)]) / BATCH for _ in range(ENDS // BATCH)]
        ),
        "one ends, and a namespace comes and goes": _cost([guest_comes(each) for each in world.guests(size)]),
    }


def _ends(world: World, ended: list[Allocation]) -> float:
    """The time of the gate from the end of allocations until it has let through who takes their place."""
    changes = world.end([alloc.id for alloc in ended])
    released: list[Evaluation] = []

    def follow() -> None:
        world.gate.follow(changes)
        released.extend(world.gate.look(world.state, world.now))

    spent = _timed(follow)
    assert released, "there is room"
    # A released evaluation counts as placed here: other allocations take the devices that became free.
    for evaluation in released:
        world.gate.forget(evaluation)
        world.gate.done(evaluation.id)
    for alloc in ended:
        assert alloc.job is not None
        node_of = world.state.nodes[alloc.node_id]
        again = factories.placement(alloc.job, on=node_of, resources=alloc.allocated_resources)
        world.gate.follow(world.place(alloc.job, (again,)))
    world.gate.look(world.state, world.now)
    return spent


def _timed(call: Callable[[], object]) -> float:
    started = time.thread_time()
    call()
    return 1000 * (time.thread_time() - started)


def _cost(times: list[float]) -> Cost:
    ordered = sorted(times)
    return Cost(sum(ordered) / len(ordered), ordered[int(0.99 * (len(ordered) - 1))], ordered[-1])


def show(size: Size) -> None:
    """Print the costs."""
    print(f"{size.waiting} jobs of {size.namespaces} namespaces wait for {size.nodes} nodes")
    if size.guaranteed:
        print(f"each namespace is guaranteed {size.guaranteed} of {size.nodes * GPUS_PER_NODE} GPUs")
    print(f"{'ms':40}{'mean':>8}{'p99':>8}{'max':>8}")
    for name, cost in measure(size).items():
        print(f"{name:40}{cost.mean:8.2f}{cost.p99:8.2f}{cost.longest:8.2f}")
