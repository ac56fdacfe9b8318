"""Random unplaceable jobs on a few random nodes, and all changes smaller than one that would place them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.explain.edits import apply_edits, with_numbers
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.constraint import Constraint, Spread
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.explanation import SuggestedEdit
from yurt.structs.job import Job, TaskGroup
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import (
    DriverInfo,
    HostNetworkInfo,
    HostVolumeInfo,
    Node,
    NodeDevice,
    NodeDeviceResource,
)
from yurt.structs.predicates import eval_type
from yurt.structs.resources import EphemeralDisk, RequestedDevice, Resources
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories

ETH0 = NetworkResource(mode="host", device="eth0", ip="10.0.0.1")
EVERY_DRIVER = ("mock_driver", "raw_exec")


def node(number: int, **changes: Any) -> Node:
    """A node called `node-7` with one address."""
    made = factories.node(factories.number_id(number, kind=1), name=f"node-{number}", **changes)
    return replace(made, node_resources=replace(made.node_resources, networks=(ETH0,)))


def with_gpus(made: Node, count: int) -> Node:
    """The node with `count` GPUs."""
    gpus = tuple(NodeDevice(id=f"{made.name}-{at}", healthy=True) for at in range(count))
    kind = NodeDeviceResource(vendor="nvidia", type="gpu", name="h200", instances=gpus)
    return replace(made, node_resources=replace(made.node_resources, devices=(kind,) if count else ()))


def state_of(*nodes: Node) -> Snapshot:
    """A state that contains only these nodes."""
    state = Snapshot.empty()
    for each in nodes:
        state = apply(state, c.RegisterNode(node=each), index=state.index + 1).state
    return state


def run(state: Snapshot, job: Job) -> Snapshot:
    """The state after the job was registered and placed as far as possible."""
    state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state
    evaluation = Evaluation(id=f"eval-{job.id}", job_id=job.id, type=eval_type(job), triggered_by="job-register")
    plan = scheduler.attempt(state, evaluation, now=factories.NOW, seed=1).plan
    return apply(state, c.ApplyPlan(plan=plan), index=state.index + 1).state if not plan.is_empty else state


def random_node(random: Random, number: int) -> Node:
    """A node that may lack anything that a random group asks for."""
    made = node(
        number,
        datacenter=random.choice(("dc1", "dc1", "dc2")),
        node_class=random.choice(("a", "b")),
        meta={"rack": random.choice(("r1", "r2"))} if random.random() < 0.9 else {},
        scheduling_eligibility="ineligible" if random.random() < 0.1 else "eligible",
        drivers={name: DriverInfo(detected=True, healthy=random.random() < 0.9) for name in EVERY_DRIVER},
        host_networks={"public": HostNetworkInfo(name="public", cidr="192.0.2.7/24")} if random.random() < 0.5 else {},
        host_volumes={"data": HostVolumeInfo(path="/d", read_only=random.random() < 0.5)},
    )
    resources = made.node_resources
    resources = replace(
        resources,
        cpu=replace(resources.cpu, cpu_shares=random.randrange(100, 4000)),
        memory=replace(resources.memory, memory_mb=random.randrange(64, 4096)),
        disk=replace(resources.disk, disk_mb=random.randrange(300, 3000)),
    )
    return with_gpus(replace(made, node_resources=resources), random.randrange(4))


def random_group(random: Random, name: str = "web") -> TaskGroup:
    """A group of one or two tasks that asks for a random selection of all resources."""
    ports = (
        Port(label="http", value=random.choice((80, 81)), host_network=random.choice(("", "", "public"))),
        Port(label="admin", value=90),
    )
    return factories.group(
        name,
        count=random.randrange(1, 5),
        tasks=tuple(
            factories.task(f"{name}-{at}" if at else name, resources=_random_resources(random, is_first=not at))
            for at in range(random.choice((1, 1, 2)))
        ),
        ephemeral_disk=EphemeralDisk(size_mb=random.randrange(110, 900)),
        networks=(NetworkResource(mode="host", reserved_ports=ports),) if random.random() < 0.3 else (),
        volumes={"data": VolumeRequest(name="data", type="host", source="data")} if random.random() < 0.2 else {},
        spreads=(Spread(attribute="${meta.rack}", weight=50),) if random.random() < 0.2 else (),
    )


def _random_resources(random: Random, *, is_first: bool) -> Resources:
    model = Constraint(l_target="${device.model}", operand="=", r_target=random.choice(("h200", "b200")))
    gpu = RequestedDevice(name="nvidia/gpu", count=random.randrange(1, 4))
    gpu = replace(gpu, constraints=(model,)) if random.random() < 0.3 else gpu
    devices = (gpu,) if is_first and random.random() < 0.3 else ()
    cores = random.randrange(1, 6) if is_first and random.random() < 0.15 else 0
    cpu = 0 if cores else random.randrange(20, 1500)
    return Resources(cpu=cpu, cores=cores, memory_mb=random.randrange(20, 1500), devices=devices)


def random_job(random: Random, name: str, *, groups: int = 1, **changes: Any) -> Job:
    """A job of such groups with a random selection of constraints."""
    constraints = [
        Constraint(l_target="${node.class}", operand="=", r_target="a"),
        Constraint(l_target="${meta.rack}", operand="!=", r_target="r1"),
        Constraint(l_target="${node.unique.name}", operand="regexp", r_target="-[0-2]$"),
        Constraint(operand="distinct_hosts"),
        Constraint(l_target="${meta.rack}", operand="distinct_property", r_target=str(random.randrange(1, 3))),
    ]
    rules = tuple(rule for rule in constraints if random.random() < 0.2)
    made = tuple(random_group(random, ("web", "api", "db")[at]) for at in range(groups))
    return factories.job(id=name, name=name, task_groups=made, constraints=rules, **changes)


def placed_with(state: Snapshot, job: Job, edits: tuple[SuggestedEdit, ...], *, group: str = "web") -> dict[str, int]:
    """The number of placed allocations of each group with the edits; nodes are changed by operators' commands."""
    for edit in edits:
        if edit.node_id:
            changed = _edited(state.nodes[edit.node_id], edit)
            for command in (
                c.RegisterNode(node=changed),
                c.SetNodeStatus(node_id=changed.id, status="ready", updated_at=1),
                c.SetNodeEligibility(node_id=changed.id, eligibility=changed.scheduling_eligibility),
            ):
                state = apply(state, command, index=state.index + 1).state
    plan = scheduler.dry_run(state, apply_edits(job, group, edits), now=factories.NOW, seed=1).plan
    placed = dict.fromkeys((each.name for each in job.task_groups), 0)
    for placement in plan.placements:
        placed[placement.task_group] += 1
    return placed


def _edited(made: Node, edit: SuggestedEdit) -> Node:
    if edit.kind == "driver":
        return replace(made, drivers={**made.drivers, edit.name: DriverInfo(detected=True, healthy=True)})
    if edit.kind == "volume":
        return replace(made, host_volumes={**made.host_volumes, edit.name: HostVolumeInfo(path="/d")})
    assert edit.kind == "eligibility", edit
    return replace(made, scheduling_eligibility="eligible")


def smaller_than(edits: tuple[SuggestedEdit, ...]) -> Iterator[tuple[SuggestedEdit, ...]]:
    """All changes that are smaller by one edit, or by 1 in one number."""
    for at, edit in enumerate(edits):
        yield (*edits[:at], *edits[at + 1 :])
        if abs(edit.before - edit.after) > 1:
            step = 1 if edit.before > edit.after else -1
            nearer = with_numbers(edit, before=edit.before, after=edit.after + step)
            yield (*edits[:at], nearer, *edits[at + 1 :])
