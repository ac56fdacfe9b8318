"""Explanations are exact: named near misses are true, the least change really places, and nothing smaller does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from yurt.fsm import apply
from yurt.scheduler.explain import why, why_not
from yurt.scheduler.explain.disclosure import Disclosure
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.cluster import PreemptionConfig, SchedulerConfiguration
from yurt.structs.constraint import Constraint
from yurt.structs.explain.explanation import GroupExplanation
from yurt.structs.job import Job
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import (
    NETWORK_PROBLEM,
    DriverInfo,
    HostVolumeInfo,
    NodeReservedNetworkResources,
    NodeReservedResources,
)
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.policies import Gang
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories
from yurt.testing.cluster_models.pending_jobs import node as _node
from yurt.testing.cluster_models.pending_jobs import placed_with
from yurt.testing.cluster_models.pending_jobs import run as _run
from yurt.testing.cluster_models.pending_jobs import state_of as _state
from yurt.testing.cluster_models.pending_jobs import with_gpus as _with_gpus
from yurt.testing.quotas import QUOTAS, bound

PREEMPTING = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
ETH0 = NetworkResource(mode="host", device="eth0", ip="10.0.0.1")
NOTHING: Mapping[str, Any] = {}


def _job(count: int = 1, resources: Resources | None = None, job: Mapping[str, Any] = NOTHING, **group: Any) -> Job:
    task = factories.task(resources=resources or Resources(cpu=100, memory_mb=128))
    return factories.job(task_groups=(factories.group(count=count, tasks=(task,), **group),), **job)


def _why_not(state: Snapshot, job: Job) -> GroupExplanation:
    return why_not(state, job, now=factories.NOW, seed=1).groups[0]


def _near(found: GroupExplanation) -> dict[str, list[str]]:
    return {miss.node_name: [short.text for short in miss.shortfalls] for miss in found.near_misses}


def _only_change(found: GroupExplanation) -> str:
    assert found.smallest_change is not None
    return found.smallest_change.text


def test_a_near_miss_names_the_node_and_exactly_what_it_lacks() -> None:
    state = _run(_state(_node(7), _node(8)), replace(_job(2, Resources(cpu=100, memory_mb=6000)), id="other"))
    found = _why_not(state, _job(1, Resources(cpu=4100, memory_mb=2704)))
    assert _near(found)["node-7"] == ["200 MHz CPU short", "512 MB memory short"]
    assert {(blocker.text, blocker.nodes, blocker.alone) for blocker in found.blockers} == {
        ("cpu", 2, 0),
        ("memory", 2, 0),
    }
    assert _only_change(found).startswith('lower the cpu of task "web" from 4100 to 3900 MHz')


def test_a_job_without_failures_shows_the_scores_of_the_chosen_and_the_next_best() -> None:
    found = _why_not(_state(*(_node(number) for number in range(9))), _job(2))
    assert (found.placed, found.unplaced, found.smallest_change) == (2, 0, None)
    assert [score.chosen for score in found.scores] == [True, False, False, False, False]
    assert all(score.node_name and score.scores for score in found.scores)


def test_a_node_that_would_do_in_another_datacenter_or_made_eligible_is_named() -> None:
    other = _state(_node(1, datacenter="eu-1"))
    assert _only_change(_why_not(other, _job())) == 'add the datacenter "eu-1"'
    asleep = _state(_node(2, scheduling_eligibility="ineligible"))
    assert _only_change(_why_not(asleep, _job())) == "make node node-2 eligible"
    assert _near(_why_not(asleep, _job())) == {"node-2": ["not eligible"]}


def test_a_constraint_tells_the_value_that_each_node_has() -> None:
    rule = Constraint(l_target="${attr.os.name}", operand="=", r_target="arch")
    found = _why_not(_state(_node(1)), _job(job={"constraints": (rule,)}))
    assert _near(found) == {"node-1": ["${attr.os.name} is debian, wanted: = arch"]}
    assert _only_change(found) == "drop the constraint ${attr.os.name} = arch"


def test_missing_drivers_and_volumes_are_the_nodes_to_change_and_told_one_by_one() -> None:
    volumes = {"data": VolumeRequest(name="data", type="host", source="data")}
    sick = {"mock_driver": DriverInfo(detected=True, healthy=False, health_description="no mocks today")}
    read_only = {"data": HostVolumeInfo(path="/data", read_only=True)}
    found = _why_not(_state(_node(1, drivers=sick), _node(2, host_volumes=read_only)), _job(volumes=volumes))
    assert _near(found) == {
        "node-1": ['driver "mock_driver" is not healthy: no mocks today', 'host volume "data" is missing'],
        "node-2": ['host volume "data" is read-only'],
    }
    assert _only_change(found) == 'make the host volume "data" writable on node node-2'


def test_a_driver_that_a_node_does_not_have_is_told_with_the_reason_that_it_gives() -> None:
    absent = {"mock_driver": DriverInfo(detected=False, health_description="there is no engine")}
    assert _near(_why_not(_state(_node(1, drivers=absent), _node(2, drivers={})), _job())) == {
        "node-1": ['driver "mock_driver" is missing: there is no engine'],
        "node-2": ['driver "mock_driver" is missing'],
    }


def test_a_missing_network_is_the_nodes_to_change_with_the_reason_that_it_gives() -> None:
    reason = {f"{NETWORK_PROBLEM}bridge": "CNI plugins portmap are missing"}
    found = _why_not(_state(_node(1, attributes=reason)), _job(networks=(NetworkResource(mode="bridge"),)))
    assert _near(found) == {"node-1": ['network "bridge" is missing: CNI plugins portmap are missing']}
    expected = 'make the network "bridge" available on node node-1 (CNI plugins portmap are missing)'
    assert _only_change(found) == expected
    assert _why_not(_state(_node(1)), _job(networks=(NetworkResource(mode="none"),))).placed == 1


def test_ports_devices_and_cores_are_named_with_what_is_free() -> None:
    state = _state(_with_gpus(_node(1), 3))
    gpus = Resources(cpu=1, memory_mb=10, devices=(RequestedDevice(name="nvidia/gpu", count=2),))
    in_use = _run(state, replace(_job(1, gpus), id="other"))
    found = _why_not(in_use, _job(1, gpus))
    assert _near(found) == {"node-1": ["1 nvidia/gpu short (2 asked, 1 free)"]}
    assert _only_change(found) == 'ask 1 instead of 2 of device "nvidia/gpu" in task "web"'

    static = (NetworkResource(mode="host", reserved_ports=(Port(label="http", value=80),)),)
    found = _why_not(_run(state, replace(_job(networks=static), id="other")), _job(networks=static))
    assert _near(found) == {"node-1": ['reserved port collision http=80 (job "other" has it)']}
    assert _only_change(found) == 'let port "http" be dynamic'

    cores = Resources(cpu=0, cores=3, memory_mb=10)
    found = _why_not(_run(state, replace(_job(1, cores), id="other")), _job(1, cores))
    assert _near(found)["node-1"][-1] == "2 cores short"
    assert _only_change(found) == 'ask 1 instead of 3 cores in task "web"'


def test_of_nodes_with_too_few_cores_the_nearest_comes_first_and_their_mhz_are_not_told_again() -> None:
    small, large = _node(1), _node(2)
    cpu = replace(large.node_resources.cpu, cpu_shares=8000, total_cpu_cores=8, reservable_cpu_cores=tuple(range(8)))
    large = replace(large, node_resources=replace(large.node_resources, cpu=cpu))
    found = _why_not(_state(small, large), _job(1, Resources(cpu=0, cores=9, memory_mb=10)))
    assert list(_near(found).items()) == [("node-2", ["1 core short"]), ("node-1", ["5 cores short"])]
    assert [(blocker.text, blocker.alone) for blocker in found.blockers] == [("cores", 2)]
    assert _only_change(found) == 'ask 8 instead of 9 cores in task "web"'


def _gpu_job(name: str, *rules: Constraint, count: int = 1) -> Job:
    device = RequestedDevice(name=name, count=count, constraints=rules)
    return _job(1, Resources(cpu=1, memory_mb=10, devices=(device,)))


def test_a_device_that_is_there_but_not_as_asked_is_told_from_one_that_is_not_there() -> None:
    state = _state(_with_gpus(_node(1), 3), _node(2))
    model = Constraint(l_target="${device.model}", operand="=", r_target="b200")
    found = _why_not(state, _gpu_job("nvidia/gpu", model))
    assert _near(found) == {
        "node-1": ["none of its 3 nvidia/gpu meets ${device.model} = b200"],
        "node-2": ['device "nvidia/gpu" is missing'],
    }
    expected = 'drop the constraint ${device.model} = b200 of device "nvidia/gpu" in task "web"'
    assert _only_change(found) == expected
    assert found.smallest_change is not None and found.smallest_change.places == 1
    assert _only_change(_why_not(state, _gpu_job("amd/gpu"))) == 'leave out the device "amd/gpu" of task "web"'
    other = _near(_why_not(state, _gpu_job("amd/gpu")))
    assert other["node-1"][0].startswith('device "amd/gpu" is missing; the node has nvidia/gpu/')
    model = _near(_why_not(state, _gpu_job("nvidia/gpu/no such model")))
    assert model["node-1"][0].startswith('device "nvidia/gpu/no such model" is missing; the node has nvidia/gpu/')
    assert other["node-2"] == ['device "amd/gpu" is missing']


def test_a_name_that_no_node_has_is_called_so_with_the_one_that_may_be_meant() -> None:
    rules = (
        Constraint(l_target="${attr.os.nmae}", operand="=", r_target="debian"),
        Constraint(l_target="${meta.tier}", operand="=", r_target="gold"),
        Constraint(l_target="${meta.old}", operand="is_not_set"),
        Constraint(l_target="${attr.os.name}", operand="=", r_target="debian"),
    )
    found = _why_not(_state(_node(1)), _job(job={"constraints": rules}))
    assert found.notes == ("no node has ${attr.os.nmae}; ${attr.os.name} may be meant", "no node has ${meta.tier}")
    assert _near(found)["node-1"][0] == "${attr.os.nmae} is not set, wanted: = debian"
    assert _why_not(Snapshot.empty(), _job()).notes == ("the cluster has no nodes",)


@pytest.mark.parametrize("kind", ["system", "sysbatch"])
def test_a_system_job_that_no_node_can_take_tells_why(kind: str) -> None:
    rule = Constraint(l_target="${attr.os.name}", operand="=", r_target="arch")
    job = _job(job={"type": kind, "constraints": (rule,)})
    found = _why_not(_state(_node(1)), job)
    assert (found.desired, found.unplaced, found.runs_nowhere) == (0, 0, True)
    assert _near(found) == {"node-1": ["${attr.os.name} is debian, wanted: = arch"]}
    assert found.smallest_change is not None and found.smallest_change.places == 1
    assert _why_not(Snapshot.empty(), job).runs_nowhere
    nothing = replace(job, task_groups=(replace(job.task_groups[0], count=0),))
    for unwanted in (replace(job, stop=True), nothing):
        assert not _why_not(_state(_node(1)), unwanted).runs_nowhere


def test_a_quota_is_a_blocker_on_every_node_and_no_change_of_nodes_is_suggested() -> None:
    state = _state(_node(1), _node(2), _node(3, datacenter="dc2"))
    for command in bound():
        state = apply(state, command, index=state.index + 1).state
    job = _job(4, Resources(cpu=10, memory_mb=300))
    found = why_not(state, job, now=factories.NOW, seed=1, limits=QUOTAS).groups[0]
    text = "quota small: memory exhausted (300 MB needed, 100 of 1000 MB left)"
    assert (found.placed, found.unplaced, found.near_misses, found.smallest_change) == (3, 1, (), None)
    blockers = [(blocker.text, blocker.nodes, blocker.alone) for blocker in found.blockers]
    assert blockers == [(text, 2, 2), ("not in datacenter dc1", 1, 0)]
    system = why_not(state, replace(job, type="system"), now=factories.NOW, seed=1, limits=QUOTAS).groups[0]
    assert (system.placed, system.unplaced) == (2, 0)


def test_what_may_be_preempted_counts_as_free() -> None:
    state = _run(_state(_node(1)), replace(_job(1, Resources(cpu=3000, memory_mb=100)), id="low", priority=20))
    state = _run(state, replace(_job(1, Resources(cpu=500, memory_mb=100)), id="peer", priority=50))
    job = _job(1, Resources(cpu=3600, memory_mb=100))
    assert _near(_why_not(state, job)) == {"node-1": ["3100 MHz CPU short"]}

    state = apply(state, c.SetSchedulerConfiguration(configuration=PREEMPTING), index=state.index + 1).state
    found = _why_not(state, job)
    assert _near(found) == {"node-1": ["100 MHz CPU short"]}
    assert _only_change(found) == 'lower the cpu of task "web" from 3600 to 3500 MHz'
    assert found.smallest_change is not None and found.smallest_change.places == 1
    assert found.notes == ("what 1 less important allocation that may be preempted uses counts as free below",)


@pytest.mark.parametrize(("nodes", "room"), [(1, "1 of 3 finds room"), (2, "2 of 3 find room")])
def test_a_job_that_is_placed_whole_or_not_tells_of_each_group_what_keeps_it(nodes: int, room: str) -> None:
    small, large = factories.task(), factories.task(resources=Resources(cpu=3000, memory_mb=100))
    state = _state(*(_node(number) for number in range(1, nodes + 1)))
    groups = (factories.group("fits", tasks=(small,)), factories.group("large", count=3, tasks=(large,)))
    job = factories.job(task_groups=groups, all_at_once=True)
    fits, short = why_not(state, job, now=factories.NOW, seed=1).groups
    assert fits.notes == ('all_at_once: nothing of the job is placed, for not all of group "large" finds room',)
    assert short.notes == (f"all_at_once: {room}, so nothing of the job is placed",)
    assert not fits.blockers and short.blockers


@pytest.mark.parametrize("changes", [{"job": {"all_at_once": True}}, {"gang": Gang(min=7)}])
def test_the_smallest_change_of_a_gang_makes_room_for_all_that_must_run_together(changes: Any) -> None:
    state = _state(_node(1), _node(2))
    job = _job(7, Resources(cpu=1500, memory_mb=10), **changes)
    found = _why_not(state, job)
    assert _only_change(found) == 'lower the cpu of task "web" from 1500 to 1000 MHz'
    assert found.smallest_change is not None and found.smallest_change.places == 7
    (edit,) = found.smallest_change.edits
    assert placed_with(state, job, (edit,))["web"] == 7
    assert placed_with(state, job, (replace(edit, after=1001),))["web"] == 0

    cores = _why_not(state, _job(7, Resources(cpu=0, cores=2, memory_mb=10), **changes))
    assert _only_change(cores) == 'ask 1 instead of 2 cores in task "web"'


def test_an_allocation_tells_of_other_nodes_what_keeps_its_own_volume_off() -> None:
    volumes = {"data": VolumeRequest(name="data", type="host", source="data", per_alloc=True)}
    offered = {"data[0]": HostVolumeInfo(path="/data")}
    state = _run(_state(_node(1, host_volumes=offered), _node(2)), _job(volumes=volumes))
    (alloc,) = state.allocs_of_job("default", "web")
    now = why(state, alloc, seed=1).now
    assert now is not None and _near(now) == {"node-2": ['missing host volume "data[0]"']}


def test_an_allocation_s_own_node_is_none_of_those_that_are_ruled_out() -> None:
    state = _run(_state(_node(1), _node(2)), _job())
    (alloc,) = state.allocs_of_job("default", "web")
    full = replace(state.nodes[alloc.node_id], scheduling_eligibility="ineligible")
    state = apply(state, c.RegisterNode(node=full), index=state.index + 1).state
    asleep = c.SetNodeEligibility(node_id=full.id, eligibility="ineligible")
    state = apply(state, asleep, index=state.index + 1).state
    now = why(state, alloc, seed=1).now
    assert now is not None and (now.blockers, now.near_misses) == ((), ())


def test_a_stopped_job_is_called_so() -> None:
    assert _why_not(_state(_node(1)), _job(job={"stop": True})).notes == ("the job is stopped",)


def test_what_a_deployment_that_failed_leaves_unplaced_is_said_to_wait_for_it() -> None:
    job = _job(3, Resources(cpu=3000, memory_mb=100), update=factories.update_strategy())
    state = _run(_state(_node(1), _node(2)), job)
    (deployment,) = state.deployments.values()
    update = DeploymentUpdate(deployment_id=deployment.id, status="failed")
    state = apply(state, c.SetDeploymentStatus(update=update), index=state.index + 1).state
    found = why_not(state, state.jobs[job.key], now=factories.NOW, seed=1).groups[0]
    assert (found.running, found.unplaced) == (2, 0)
    assert found.notes == (f"1 waits for deployment {deployment.id[:8]}, which is failed",)


def test_a_port_that_a_node_keeps_for_itself_is_called_so() -> None:
    kept = NodeReservedResources(networks=NodeReservedNetworkResources(reserved_host_ports="80-90"))
    static = (NetworkResource(mode="host", reserved_ports=(Port(label="http", value=80),)),)
    found = _why_not(_state(_node(1, reserved_resources=kept)), _job(networks=static))
    assert _near(found) == {"node-1": ["reserved port collision http=80 (the node keeps it for itself)"]}


def test_a_host_volume_is_none_of_csi_whatever_its_name() -> None:
    asked = VolumeRequest(name="v", type="host", source="CSI", per_alloc=True)
    (blocker,) = _why_not(_state(_node(1)), _job(volumes={"v": asked})).blockers
    assert (blocker.kind, blocker.text) == ("volume_claim", 'missing host volume "CSI[0]"')


def test_a_volume_that_has_its_writer_is_named_and_cannot_be_helped() -> None:
    state = _state(_node(1, host_volumes={"data": HostVolumeInfo(path="/data")}))
    alone = VolumeRequest(name="data", type="host", source="data", access_mode="single-node-single-writer")
    found = _why_not(state, _job(2, volumes={"data": alone}))
    assert _near(found) == {"node-1": ['host volume "data" has its one writer already']}
    assert (found.placed, found.unplaced, found.smallest_change) == (1, 1, None)
    taken = _run(state, replace(_job(1, volumes={"data": alone}), id="other"))
    text = 'host volume "data" has its one writer already (job "other" has it)'
    again = _job(1, volumes={"data": alone})
    assert _near(_why_not(taken, again)) == {"node-1": [text]}
    of_nodes_alone = Disclosure(reads_jobs_in=lambda _: False)
    (found,) = why_not(taken, again, now=factories.NOW, seed=1, disclosure=of_nodes_alone).groups
    text = 'host volume "data" has its one writer already (a job of another namespace has it)'
    assert _near(found) == {"node-1": [text]}


def test_distinct_rules_tell_who_is_there_and_the_limit_that_would_do() -> None:
    state = _state(*(_node(number, meta={"rack": "r1"}) for number in range(3)))
    hosts = _why_not(state, _job(4, job={"constraints": (Constraint(operand="distinct_hosts"),)}))
    assert _only_change(hosts) == "drop the constraint distinct_hosts" and hosts.unplaced == 1
    rule = Constraint(l_target="${meta.rack}", operand="distinct_property", r_target="2")
    racks = _why_not(state, _job(4, job={"constraints": (rule,)}))
    assert _only_change(racks) == "raise the limit of distinct_property: ${meta.rack} from 2 to 3"
    assert next(iter(_near(racks).values())) == ["${meta.rack} = r1 has 2 of 2 allocations (distinct_property)"]


def test_a_system_job_explains_only_the_nodes_that_lack_it() -> None:
    small = factories.node(factories.number_id(3, kind=1), name="small")
    memory = replace(small.node_resources.memory, memory_mb=64)
    small = replace(small, node_resources=replace(small.node_resources, memory=memory))
    job = replace(_job(), type="system")
    found = _why_not(_state(_node(1), _node(2), small), job)
    assert (found.placed, found.unplaced) == (2, 1)
    assert _near(found) == {"small": ["64 MB memory short"]}
    running = _why_not(_run(_state(_node(1), _node(2), small), job), job)
    assert (running.desired, running.running, running.unplaced, running.runs_nowhere) == (3, 2, 1, False)
    assert running.smallest_change is not None and running.smallest_change.places == 1


def test_nothing_is_suggested_where_nothing_helps() -> None:
    found = _why_not(_state(_node(1, status="down")), _job())
    assert found.smallest_change is None and _near(found) == {"node-1": ["down"]}
    assert _why_not(Snapshot.empty(), _job()).near_misses == ()


def test_an_allocation_tells_its_scores_then_and_the_ranking_now() -> None:
    state = _run(_state(*(_node(number) for number in range(4))), _job(1))
    (alloc,) = state.allocs_of_job("default", "web")
    found = why(state, alloc, seed=1)
    assert found.text.startswith(f"node {alloc.node_name} was chosen of 4 that were looked at; it scored")
    assert found.scores[0].node_id == alloc.node_id and found.scores[0].chosen
    assert found.now is not None and found.now.scores[0].node_id == alloc.node_id and len(found.now.scores) == 4


def test_only_nodes_that_would_take_an_allocation_now_are_ranked_beside_its_own() -> None:
    static = (NetworkResource(mode="host", reserved_ports=(Port(label="http", value=80),)),)
    job = _job(2, networks=static)
    state = _run(_state(*(_node(number) for number in range(4))), job)
    alloc, peer = state.allocs_of_job("default", "web")
    now = why(state, alloc, seed=1).now
    assert now is not None and now.notes == ()
    assert [score.chosen for score in now.scores] == [True, False, False]
    assert {score.node_id for score in now.scores} == set(state.nodes.keys()) - {peer.node_id}

    own = c.SetNodeEligibility(node_id=alloc.node_id, eligibility="ineligible")
    state = apply(state, own, index=state.index + 1).state
    now = why(state, alloc, seed=1).now
    assert now is not None and now.scores[0].chosen and len(now.scores) == 3
    assert now.notes == (f"its own node, {alloc.node_name}, would not take it now: not eligible",)
