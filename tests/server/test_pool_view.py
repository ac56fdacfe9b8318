"""A view of a pool that followed the changes of commands equals one that is made anew."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.capacity.pool_capacity import PendingAllocs, PoolCapacity
from yurt.sdk.value import Duration, UnixNano, replace
from yurt.server.queueing.gate import QueueGate
from yurt.server.queueing.pool_view import PoolView
from yurt.structs.alloc import AllocatedDeviceResource, Allocation
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.commands import (
    AllocUpdate,
    AnyCommand,
    ApplyPlan,
    RegisterJob,
    RegisterNode,
    SetNodeStatus,
    UpdateAllocsFromClient,
    UpsertNamespaces,
    UpsertNodePools,
)
from yurt.structs.job import Job
from yurt.structs.node import Node, NodeDevice, NodeDeviceResource
from yurt.structs.plan import Plan
from yurt.structs.queueing.batch_queue import HOUR, BatchQueue, FairShareQueue
from yurt.structs.resources import RequestedDevice, Resources
from yurt.testing import factories
from yurt.testing.replica import Replica

POOL, CARDS = "gpu", 4
QUEUE = BatchQueue(fair_share=FairShareQueue(boost_after=Duration(HOUR)))
SIZES = (1, 2, 4)
STEP = st.tuples(st.sampled_from(("place", "end", "down", "up", "alien")), st.integers(0, 5), st.integers(0, 2))


def node_of(number: int) -> Node:
    cards = tuple(NodeDevice(id=f"card-{number}-{index}", healthy=True) for index in range(CARDS))
    device = NodeDeviceResource(vendor="nvidia", type="gpu", name="h100", instances=cards)
    made = factories.node(factories.number_id(number), node_pool=POOL)
    return replace(made, node_resources=replace(made.node_resources, devices=(device,)))


def job_of(name: str, gpus: int, hours: float = 1, **changes: object) -> Job:
    made = factories.job(name, type="batch", node_pool=POOL, **changes)
    asked = Resources(cpu=100 * gpus, memory_mb=64, devices=(RequestedDevice(name="gpu", count=gpus),))
    group = made.task_groups[0]
    task = replace(group.tasks[0], resources=asked)
    limited = replace(group, tasks=(task,), max_run_duration=Duration(round(hours * HOUR)))
    return replace(made, task_groups=(limited,))


def asks() -> list[GroupAsk]:
    return [GroupAsk(job_of("ask", gpus).task_groups[0], with_memory_max=False) for gpus in SIZES]


class World:
    """Three nodes of four cards, and what the steps of a test do to them."""

    def __init__(self) -> None:
        self.replica = Replica()
        self.nodes = [node_of(number) for number in range(3)]
        self.replica.apply(
            UpsertNodePools(pools=(NodePool(name=POOL, batch_queue=QUEUE),)),
            *(RegisterNode(node=each) for each in self.nodes),
        )
        self.view = PoolView(self.replica.state, POOL, QUEUE)
        self.now, self.number = int(factories.NOW), 0

    def apply(self, command: AnyCommand) -> None:
        self.replica.apply(command)
        if self.view.follow(self.replica.changes):
            self.view.show(self.replica.state)
        else:
            self.view = PoolView(self.replica.state, POOL, QUEUE)

    def running(self) -> list[Allocation]:
        rows = self.replica.state.allocs.values()
        return sorted((row for row in rows if row.client_status == "pending"), key=lambda row: row.id)

    def free_cards(self, number: int) -> list[str]:
        on_node = [row for row in self.running() if row.node_id == self.nodes[number].id]
        used = {
            card
            for row in on_node
            for task in row.allocated_resources.tasks.values()
            for device in task.devices
            for card in device.device_ids
        }
        return [f"card-{number}-{index}" for index in range(CARDS) if f"card-{number}-{index}" not in used]

    def place(self, number: int, gpus: int, hours: float) -> None:
        cards = self.free_cards(number % 3)[:gpus]
        if len(cards) < gpus:
            return
        self.number += 1
        self.now += HOUR
        submitted = UnixNano(self.now - (2 * HOUR if self.number % 2 else 0))
        made = job_of(f"job-{self.number}", gpus, hours, submit_time=submitted)
        self.apply(RegisterJob(job=made))
        found = factories.allocated(made.task_groups[0])
        device = AllocatedDeviceResource(vendor="nvidia", type="gpu", name="h100", device_ids=tuple(cards))
        tasks = {name: replace(task, devices=(device,)) for name, task in found.tasks.items()}
        stored = self.replica.state.jobs[made.key]
        placement = factories.placement(stored, on=self.nodes[number % 3], resources=replace(found, tasks=tasks))
        plan = Plan(
            eval_id="", namespace=made.namespace, job_id=made.id, placements=(placement,), now=UnixNano(self.now)
        )
        self.apply(ApplyPlan(plan=plan))

    def step(self, kind: str, number: int, size: int) -> None:
        if kind == "place":
            self.place(number, SIZES[size], (0, 1, 3)[size])
        elif kind == "end" and (running := self.running()):
            row = running[number % len(running)]
            update = AllocUpdate(id=row.id, node_id=row.node_id, client_status="complete")
            self.apply(UpdateAllocsFromClient(updates=(update,)))
        elif kind in ("down", "up"):
            status = "ready" if kind == "up" else "disconnected"
            self.apply(SetNodeStatus(node_id=self.nodes[number % 3].id, status=status, updated_at=1))
        elif kind == "alien":
            self.apply(RegisterNode(node=factories.node(factories.number_id(100 + number))))


def seen(view: PoolView) -> Sequence[object]:
    free_capacity = view.free_capacity()
    return (
        view.usage,
        view.boosted,
        [(end, alloc.id) for end, alloc in view.ends(100)],
        sorted(alloc.id for alloc in view.running()),
        free_capacity.free.tolist(),
        [free_capacity.places(ask).tolist() for ask in asks()],
        [free_capacity.has_capacity([PendingAllocs(ask, 3, 3)]) for ask in asks()],
    )


@settings(max_examples=12, deadline=None)
@given(st.lists(STEP, max_size=12))
def test_what_follows_equals_what_is_made_anew(steps: list[tuple[str, int, int]]) -> None:
    world = World()
    for step in steps:
        world.step(*step)
        assert seen(world.view) == seen(PoolView(world.replica.state, POOL, QUEUE))


@settings(max_examples=12, deadline=None)
@given(st.lists(STEP, max_size=6), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=4))
def test_a_room_that_was_taken_from_counts_what_is_left(
    steps: list[tuple[str, int, int]], taken: list[tuple[int, int]]
) -> None:
    world = World()
    for step in steps:
        world.step(*step)
    view, kinds = PoolView(world.replica.state, POOL, QUEUE), asks()
    free_capacity = view.free_capacity()
    for ask in kinds:
        free_capacity.places(ask)
    for size, number in taken:
        before = int(free_capacity.places(kinds[size]).sum())
        took = sum(free_capacity.take([PendingAllocs(kinds[size], number, 1)]).values())
        assert took == min(number, before)
        assert int(free_capacity.places(kinds[size]).sum()) == before - took
    again = PoolCapacity(world.replica.state, POOL)
    for size, number in taken:
        again.take([PendingAllocs(kinds[size], number, 1)])
    assert [free_capacity.places(ask).tolist() for ask in kinds] == [again.places(ask).tolist() for ask in kinds]


def gate_with(world: World, waiting: Sequence[Job]) -> QueueGate:
    """A gate with the jobs that wait, as a new leader makes it."""
    gate = QueueGate()
    for number, made in enumerate(waiting):
        evaluation = factories.evaluation(made, id=f"eval-{number}", type="batch")
        assert gate.takes(world.replica.state, evaluation)
    return gate


@settings(max_examples=12, deadline=None)
@given(st.lists(STEP, max_size=10), st.permutations(range(6)))
def test_a_gate_that_followed_decides_as_a_new_leaders(steps: list[tuple[str, int, int]], order: list[int]) -> None:
    world = World()
    world.replica.apply(UpsertNamespaces(namespaces=(Namespace(name="team"),)))
    for number in range(3):
        world.place(number, CARDS, 1)
    waiting: list[Job] = []
    for number in range(6):
        made = job_of(f"wait-{number}", SIZES[number % 3], number, namespace=("default", "team")[number % 2])
        world.replica.apply(RegisterJob(job=replace(made, submit_time=UnixNano(world.now + number))))
        waiting.append(world.replica.state.jobs[made.key])
    followed = gate_with(world, waiting)
    assert followed.look(world.replica.state, world.now) == [], "the pool is full"
    for step in steps:
        world.step(*step)
        followed.follow(world.replica.changes)
    anew = gate_with(world, [waiting[number] for number in order])
    found = followed.look(world.replica.state, world.now + HOUR)
    again = anew.look(world.replica.state, world.now + HOUR)
    assert [each.job_id for each in found] == [each.job_id for each in again]
    assert followed.promises == anew.promises
