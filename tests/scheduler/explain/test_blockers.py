"""Every blocker is told with its number of nodes, each thing that nodes lack by itself, as a plain count finds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from yurt import scheduler
from yurt.scheduler.explain import why_not
from yurt.scheduler.explain.disclosure import Disclosure
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs.constraint import Constraint
from yurt.structs.explain.explanation import GroupExplanation
from yurt.structs.job import Job
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import (
    Attribute,
    DriverInfo,
    HostNetworkInfo,
    HostVolumeInfo,
    Node,
    NodeDevice,
    NodeDeviceResource,
)
from yurt.structs.plan import Placement
from yurt.structs.resources import EphemeralDisk, NUMAResource, RequestedDevice, Resources
from yurt.structs.task import TaskLifecycle
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories
from yurt.testing.cluster_models.pending_jobs import ETH0, run, state_of
from yurt.testing.nightly import cases

CASES = cases(400)
HEALTHY, SICK = DriverInfo(detected=True, healthy=True), DriverInfo(detected=True, healthy=False)
BRIDGE = NetworkResource(mode="bridge")


def _node(number: int, *, gpus: Sequence[NodeDevice] = (), modes: Sequence[str] = (), **changes: Any) -> Node:
    made = factories.node(factories.number_id(number, kind=1), name=f"node-{number}", **changes)
    kind = NodeDeviceResource(vendor="nvidia", type="gpu", name="h200", instances=tuple(gpus))
    networks = (ETH0, *(NetworkResource(mode=mode) for mode in modes))
    resources = replace(made.node_resources, networks=networks, devices=(kind,) if gpus else ())
    return replace(made, node_resources=resources)


def _cards(number: int, *, healthy: bool = True) -> list[NodeDevice]:
    return [NodeDevice(id=f"gpu-{at}", healthy=healthy) for at in range(number)]


def _job(*asked: Resources, drivers: Sequence[str] = ("mock_driver",), **group: Any) -> Job:
    """A job of one group; its tasks ask so much, and run on these drivers in turn."""
    tasks = tuple(
        factories.task(f"t{at}", resources=each, driver=drivers[at % len(drivers)])
        for at, each in enumerate(asked or [Resources(cpu=1, memory_mb=10)] * len(drivers))
    )
    return factories.job(task_groups=(factories.group(tasks=tasks, **group),))


def _why_not(state: Snapshot, job: Job) -> GroupExplanation:
    return why_not(state, job, now=factories.NOW, seed=1).groups[0]


def _told(found: GroupExplanation) -> dict[str, tuple[int, int]]:
    return {blocker.text: (blocker.nodes, blocker.alone) for blocker in found.blockers}


def test_a_node_that_is_asked_about_tells_all_that_it_lacks_whether_the_job_is_placed_or_not() -> None:
    able, poor = _node(1, drivers={"exec": HEALTHY}), _node(2, drivers={"docker": SICK})
    for nodes, placed in (((able, poor), 1), ((poor,), 0)):
        state = state_of(*nodes)
        asked = Disclosure(node_id=poor.id)
        (found,) = why_not(state, _job(drivers=("exec",)), now=factories.NOW, seed=1, disclosure=asked).groups
        assert found.there is not None
        assert (found.placed, found.there.node_name) == (placed, "node-2")
        assert [lack.text for lack in found.there.shortfalls] == ['driver "exec" is missing']
    assert why_not(state_of(able), _job(), now=factories.NOW, seed=1).groups[0].there is None


# -- each thing by itself ----------------------------------------------------------------------------------------------


def test_each_driver_is_told_with_the_nodes_that_lack_it_or_where_it_is_not_healthy() -> None:
    nodes = (
        _node(1, drivers={"exec": HEALTHY}),
        _node(2, drivers={"exec": HEALTHY, "docker": SICK}),
        _node(3, drivers={"exec": SICK}),
        _node(4, drivers={"docker": HEALTHY}),
    )
    found = _why_not(state_of(*nodes), _job(drivers=("docker", "exec")))
    assert _told(found) == {
        'driver "docker" missing': (2, 1),
        'driver "docker" not healthy': (1, 1),
        'driver "exec" missing': (1, 1),
        'driver "exec" not healthy': (1, 0),
    }
    assert {blocker.kind for blocker in found.blockers} == {"driver"}


@pytest.mark.parametrize("plugin", ["exec", "runners"])
def test_a_disabled_driver_is_told_with_how_to_enable_it(plugin: str) -> None:
    refused = 'driver java: no JVM; driver exec: client.options "driver.denylist" names it, take it off to enable it'
    node = _node(1, drivers={})
    node = replace(node, attributes={**node.attributes, f"plugin.{plugin}.reason": refused})
    asked = Disclosure(node_id=node.id)

    (found,) = why_not(state_of(node), _job(drivers=("exec",)), now=factories.NOW, seed=1, disclosure=asked).groups

    assert found.there is not None and found.smallest_change is not None
    assert [lack.text for lack in found.there.shortfalls] == [
        'driver "exec" is missing: client.options "driver.denylist" names it, take it off to enable it'
    ]
    assert found.smallest_change.text == 'enable driver "exec" on node node-1'


def test_each_network_and_each_host_network_is_told_by_itself() -> None:
    ports = (Port(label="a", host_network="public"), Port(label="b", host_network="storage"))
    asked = (replace(BRIDGE, dynamic_ports=ports), NetworkResource(mode="cni/mesh"))
    public = {"public": HostNetworkInfo(name="public", cidr="192.0.2.7/24")}
    state = state_of(_node(1, modes=("bridge",)), _node(2, modes=("cni/mesh",), host_networks=public))
    assert _told(_why_not(state, _job(networks=asked))) == {
        'network "bridge" missing': (1, 0),
        'network "cni/mesh" missing': (1, 0),
        'host network "public" missing': (1, 0),
        'host network "storage" missing': (2, 0),
    }


def test_each_host_volume_is_told_by_itself_once_however_often_it_is_asked_for() -> None:
    volumes = {
        name: VolumeRequest(name=name, type="host", source=source)
        for name, source in (("one", "data"), ("two", "data"), ("logs", "logs"))
    }
    writable, read_only = HostVolumeInfo(path="/v"), HostVolumeInfo(path="/v", read_only=True)
    state = state_of(
        _node(1, host_volumes={"logs": writable}),
        _node(2, host_volumes={"data": read_only, "logs": writable}),
        _node(3),
    )
    assert _told(_why_not(state, _job(volumes=volumes))) == {
        'host volume "data" missing': (2, 1),
        'host volume "data" read-only': (1, 1),
        'host volume "logs" missing': (1, 0),
    }


def test_each_device_is_told_by_itself_with_what_it_lacks() -> None:
    nodes = (
        _node(1),
        _node(2, gpus=_cards(4, healthy=False)),
        _node(3, gpus=_cards(1)),
        _node(4, gpus=_cards(2)),
        _node(5, gpus=_cards(2)),
    )
    gpus = Resources(cpu=1, memory_mb=10, devices=(RequestedDevice(name="nvidia/gpu", count=2),))
    taken = run(state_of(*nodes), replace(_job(gpus, count=2), id="other"))
    assert _told(_why_not(taken, _job(gpus))) == {
        'device "nvidia/gpu" missing': (1, 1),
        'device "nvidia/gpu" not healthy': (1, 1),
        'device "nvidia/gpu": fewer than 2': (1, 1),
        'device "nvidia/gpu": fewer than 2 free': (2, 2),
    }
    model = Constraint(l_target="${device.model}", operand="=", r_target="b200")
    both = (
        RequestedDevice(name="nvidia/gpu", constraints=(model,)),
        RequestedDevice(name="amd/gpu"),
    )
    assert _told(_why_not(state_of(*nodes[2:4]), _job(Resources(cpu=1, memory_mb=10, devices=both)))) == {
        'device "nvidia/gpu": none meets ${device.model} = b200': (2, 0),
        'device "amd/gpu" missing': (2, 0),
    }


def test_nodes_that_are_out_of_the_question_are_told_in_words_that_fit_their_number() -> None:
    state = state_of(_node(1))
    assert _told(_why_not(state, replace(_job(), datacenters=("eu",)))) == {"not in datacenter eu": (1, 1)}
    assert _told(_why_not(state, replace(_job(), datacenters=("eu", "us")))) == {"not in datacenters eu, us": (1, 1)}


# -- cores -------------------------------------------------------------------------------------------------------------


def _near(found: GroupExplanation) -> dict[str, list[str]]:
    return {miss.node_name: [short.text for short in miss.shortfalls] for miss in found.near_misses}


def test_a_group_that_asks_cores_in_one_task_and_mhz_in_another_is_told_what_is_short_of_each() -> None:
    state = run(state_of(_node(1)), replace(_job(Resources(cores=3, memory_mb=10)), id="other"))
    found = _why_not(state, _job(Resources(cores=2, memory_mb=10), Resources(cpu=1500, memory_mb=10)))
    assert _near(found) == {"node-1": ["1500 MHz CPU short", "1 core short"]}
    assert _told(found) == {"cpu": (1, 0), "cores": (1, 0)}
    (mhz, cores) = found.near_misses[0].shortfalls
    assert (mhz.asked, mhz.free, cores.asked, cores.free) == (2500, 1000, 2, 1)


def test_cores_that_are_free_but_whose_mhz_others_use_are_short_of_mhz_alone() -> None:
    state = run(state_of(_node(1)), replace(_job(Resources(cpu=3000, memory_mb=10)), id="other"))
    found = _why_not(state, _job(Resources(cores=2, memory_mb=10)))
    assert (_near(found), _told(found)) == ({"node-1": ["1000 MHz CPU short"]}, {"cpu": (1, 1)})


def test_tasks_that_never_run_together_share_their_mhz_also_where_cores_are_short() -> None:
    before = factories.task("t0", resources=Resources(cpu=4500, memory_mb=10), lifecycle=TaskLifecycle(hook="prestart"))
    main = factories.task("t1", resources=Resources(cores=5, memory_mb=10))
    found = _why_not(state_of(_node(1)), factories.job(task_groups=(factories.group(tasks=(before, main)),)))
    assert _near(found) == {"node-1": ["500 MHz CPU short", "1 core short"]}


def test_cores_that_are_free_but_not_near_the_devices_that_require_them_are_told_so() -> None:
    cards = [replace(card, attributes={"cpu_affinity": Attribute(string_val="0-1")}) for card in _cards(1)]
    gpu = (RequestedDevice(name="nvidia/gpu"),)
    near = Resources(cores=3, memory_mb=10, devices=gpu, numa=NUMAResource(affinity="require"))
    found = _why_not(state_of(_node(1, gpus=cards)), _job(near))
    assert _near(found) == {"node-1": ['1 core short near the devices of task "t0" (3 asked, 2 free there)']}
    assert _told(found) == {'cores near the devices of task "t0"': (1, 1)}
    assert (found.unplaced, found.smallest_change) == (1, None)
    assert _why_not(state_of(_node(1, gpus=cards)), _job(replace(near, cores=2))).placed == 1
    few = _why_not(state_of(_node(1, gpus=cards)), _job(replace(near, cores=5)))
    assert _near(few) == {"node-1": ["1 core short"]}


# -- as a plain count finds it -----------------------------------------------------------------------------------------


RULES = (
    Constraint(l_target="${node.class}", operand="=", r_target="a"),
    Constraint(l_target="${meta.rack}", operand="!=", r_target="r1"),
)


def _random_node(random: Random, number: int) -> Node:
    def some(*things: Any) -> list[Any]:
        return [thing for thing in things if random.random() < 0.7]

    node = _node(
        number,
        gpus=_cards(random.randrange(4), healthy=random.random() < 0.8),
        modes=some("bridge", "cni/mesh"),
        datacenter=random.choice(("dc1", "dc1", "dc1", "dc2")),
        node_pool=random.choice(("default", "default", "default", "gpu")),
        node_class=random.choice(("a", "a", "b")),
        meta={"rack": random.choice(("r1", "r2"))},
        scheduling_eligibility="ineligible" if random.random() < 0.1 else "eligible",
        drivers={name: random.choice((HEALTHY, HEALTHY, SICK)) for name in some("mock_driver", "exec")},
        host_networks={name: HostNetworkInfo(name=name, cidr="192.0.2.7/24") for name in some("public", "storage")},
        host_volumes={
            name: HostVolumeInfo(path="/d", read_only=random.random() < 0.3) for name in some("data", "logs")
        },
    )
    has = node.node_resources
    cores = random.randrange(2, 9)
    cpu = replace(
        has.cpu,
        cpu_shares=1000 * cores,
        total_cpu_cores=cores,
        reservable_cpu_cores=tuple(range(random.randrange(1, cores + 1))),
    )
    memory = replace(has.memory, memory_mb=random.randrange(64, 2048))
    disk = replace(has.disk, disk_mb=random.randrange(300, 2000))
    return replace(node, node_resources=replace(has, cpu=cpu, memory=memory, disk=disk))


def _random_job(random: Random, name: str) -> Job:
    def some(share: float, *things: Any) -> tuple[Any, ...]:
        return tuple(thing for thing in things if random.random() < share)

    tasks = [
        Resources(
            cpu=0 if cores else random.randrange(20, 3000),
            cores=cores,
            memory_mb=random.randrange(20, 900),
            devices=some(0.2, RequestedDevice(name="nvidia/gpu", count=random.randrange(1, 4))),
        )
        for cores in random.choice(((0,), (0, 0), (random.randrange(1, 5),), (random.randrange(1, 5), 0)))
    ]
    ports = some(0.4, Port(label="http", value=80), Port(label="admin", value=90, host_network="public"))
    job = _job(
        *tasks,
        drivers=random.choice((("mock_driver",), ("mock_driver", "exec"))),
        count=random.randrange(1, 5),
        ephemeral_disk=EphemeralDisk(size_mb=random.randrange(110, 700)),
        networks=some(0.3, NetworkResource(mode=random.choice(("host", "bridge")), reserved_ports=ports)),
        volumes={name: VolumeRequest(name=name, type="host", source=name) for name in some(0.2, "data", "logs")},
    )
    rules = some(0.2, *RULES, Constraint(operand="distinct_hosts"))
    return replace(job, id=name, name=name, constraints=rules)


class _Holding:
    """What allocations have of one node."""

    def __init__(self, state: Snapshot, node: Node, placed: Sequence[Placement]) -> None:
        others = [alloc for alloc in state.allocs_of_node(node.id) if alloc.client_status not in ("complete", "failed")]
        given = [alloc.allocated_resources for alloc in others]
        given += [placement.resources for placement in placed if placement.node_id == node.id]
        tasks = [task for each in given for task in each.tasks.values()]
        self.cpu = sum(task.cpu.cpu_shares for task in tasks)
        self.cores = sum(len(task.cpu.reserved_cores) for task in tasks)
        self.memory = sum(task.memory.memory_mb for task in tasks)
        self.disk = sum(each.shared.disk_mb for each in given)
        self.gpus = sum(len(device.device_ids) for task in tasks for device in task.devices)
        self.ports = {(port.host_ip, port.value) for each in given for port in each.shared.ports}
        self.own = any(alloc.job_id == "web" for alloc in others) or any(p.node_id == node.id for p in placed)


def _outside(job: Job, node: Node) -> Iterator[str]:
    if node.datacenter not in job.datacenters:
        yield "not in datacenter dc1"
    if node.node_pool != job.node_pool:
        yield 'not in node pool "default"'
    if node.scheduling_eligibility != "eligible":
        yield "not eligible"


def _lacking(job: Job, node: Node, holding: _Holding) -> Iterator[str]:
    """What keeps one more of the job off a node that it may look at, asked one after another of that node alone."""
    (group,) = job.task_groups
    values = {"${node.class}": node.node_class, "${meta.rack}": node.meta["rack"]}
    for rule in job.constraints:
        if rule.operand == "distinct_hosts":
            if holding.own:
                yield "an allocation of the job is there already (distinct_hosts)"
        elif (values[rule.l_target] == rule.r_target) != (rule.operand == "="):
            yield f"{rule.l_target} {rule.operand} {rule.r_target}"
    for driver in {task.driver for task in group.tasks}:
        if driver not in node.drivers:
            yield f'driver "{driver}" missing'
        elif not node.drivers[driver].healthy:
            yield f'driver "{driver}" not healthy'
    for name in {request.source for request in group.volumes.values()}:
        if name not in node.host_volumes:
            yield f'host volume "{name}" missing'
        elif node.host_volumes[name].read_only:
            yield f'host volume "{name}" read-only'
    yield from _networks(job, node, holding)
    yield from _devices(job, node, holding)
    yield from _amounts(job, node, holding)


def _networks(job: Job, node: Node, holding: _Holding) -> Iterator[str]:
    addresses: Mapping[str, str] = {"": "10.0.0.1", **dict.fromkeys(node.host_networks, "192.0.2.7")}
    for network in job.task_groups[0].networks:
        if network.mode == "bridge" and "bridge" not in {each.mode for each in node.node_resources.networks}:
            yield 'network "bridge" missing'
        for port in network.reserved_ports:
            if port.host_network not in addresses:
                yield f'host network "{port.host_network}" missing'
            elif (addresses[port.host_network], port.value) in holding.ports:
                yield f"reserved port collision {port.label}={port.value}"


def _devices(job: Job, node: Node, holding: _Holding) -> Iterator[str]:
    """Each request takes what it can get, in order."""
    cards = [card for kind in node.node_resources.devices for card in kind.instances]
    healthy = [card for card in cards if card.healthy]
    free = len(healthy) - holding.gpus
    for task in job.task_groups[0].tasks:
        for device in task.resources.devices:
            if not healthy:
                yield 'device "nvidia/gpu" ' + ("not healthy" if cards else "missing")
            elif free < device.count:
                number = "none" if device.count == 1 else f"fewer than {device.count}"
                yield f'device "nvidia/gpu": {number}' + (" free" if len(healthy) >= device.count else "")
            free = max(0, free - device.count)


def _amounts(job: Job, node: Node, holding: _Holding) -> Iterator[str]:
    """The kinds of which a node has too little."""
    yield from (kind for kind, (short, _) in _short(job, node, holding).items() if short > 0)


def _short(job: Job, node: Node, holding: _Holding) -> dict[str, tuple[int, str]]:
    """What a node has too little of, with the unit; of the MHz those of cores that it does not have are left out."""
    (group,) = job.task_groups
    has = node.node_resources
    cores = sum(task.resources.cores for task in group.tasks)
    free_cores = len(has.cpu.reservable_cpu_cores) - holding.cores
    mhz = sum(task.resources.cpu for task in group.tasks if not task.resources.cores)
    memory = sum(task.resources.memory_mb for task in group.tasks)
    return {
        "cores": (cores - free_cores, "core" if cores - free_cores == 1 else "cores"),
        "cpu": (holding.cpu + mhz + 1000 * min(cores, free_cores) - has.cpu.cpu_shares, "MHz CPU"),
        "memory": (holding.memory + memory - has.memory.memory_mb, "MB memory"),
        "disk": (holding.disk + group.ephemeral_disk.size_mb - has.disk.disk_mb, "MB disk"),
    }


def _counted(state: Snapshot, job: Job, placed: Sequence[Placement]) -> dict[str, tuple[int, int]]:
    """Every blocker with its nodes, and those on which it is alone: each node asked by itself."""
    nodes: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for node in state.nodes.values():
        outside = list(_outside(job, node))
        lacking = set(_lacking(job, node, _Holding(state, node, placed)))
        nodes.update(outside or lacking)
        if len(lacking) + len(outside) == 1:
            alone.update(outside or lacking)
    return {text: (number, alone[text]) for text, number in nodes.items()}


@pytest.mark.parametrize("seed", range(4))
def test_the_blockers_of_any_job_are_those_that_a_plain_count_finds_node_by_node(seed: int) -> None:
    random = Random(seed)
    compared = 0
    for _ in range(max(1, CASES // 4)):
        state = state_of(*(_random_node(random, number) for number in range(random.randrange(1, 12))))
        state = run(state, _random_job(random, "other"))
        job = _random_job(random, "web")
        found = _why_not(state, job)
        if found.unplaced:
            placed = scheduler.dry_run(state, job, now=factories.NOW, seed=1).plan.placements
            assert _told(found) == _counted(state, job, placed)
            compared += 1
            for miss in found.near_misses:
                node = state.nodes[miss.node_id]
                short = _short(job, node, _Holding(state, node, placed))
                told = {each.text for each in miss.shortfalls if each.kind in short}
                assert told == {f"{number} {unit} short" for number, unit in short.values() if number > 0}
    assert compared > CASES // 10
