"""The resources that one allocation of a group requests, and those that a node grants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from yurt.scheduler.capacity.ports import grant_ports, has_ports
from yurt.scheduler.devices.offers import grant_devices, near_cores, wants_topology
from yurt.scheduler.devices.topology import REQUIRE
from yurt.scheduler.devices.trials import TrialRequest, has_trial, trial_requests, untried
from yurt.sdk.value import replace
from yurt.state.exclusive_resources import ExclusiveResources
from yurt.state.namespace_usage import MILLI, NamespaceUsage, counted
from yurt.state.usage import Usage, single_writer_volumes, usage_of_resources
from yurt.structs.alloc import (
    AllocatedCpuResources,
    AllocatedMemoryResources,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
)
from yurt.structs.job import TaskGroup
from yurt.structs.node import Node
from yurt.structs.resources import RequestedDevice

NO_DEVICES = "devices: no devices match request"
ON_TRIAL = "devices: on trial after a fault, for short or restartable groups only"
CLAIMED = "conflicting claims for host volume with single-writer"


class NodeGrant(msgspec.Struct, frozen=True):
    """The resources granted to an allocation, and their usage of the node."""

    resources: AllocatedResources
    usage: Usage


class NearCoreShortage(msgspec.Struct, frozen=True):
    """A task that requires cores near its devices, and the number of these that are free for it."""

    task: str
    required: int
    free: int


class GroupAsk:
    """A group's request. `plain` is its grant on any node if it requests nothing exclusive (ports, cores, devices)."""

    def __init__(
        self, group: TaskGroup, *, with_memory_max: bool, trial_runs: Sequence[int] = (), stores_parts: bool = True
    ) -> None:
        """`trial_runs`: the runs that the devices on trial permit, in order (`feasibility.device_trials`).

        `stores_parts`: the region's log has the parts of devices that shares count as (`Snapshot.stores_device_parts`).
        """
        self.group = group
        self.stores_parts = stores_parts
        self.has_ports = has_ports(group)
        self.cores = sum(task.resources.cores for task in group.tasks)
        self.devices = trial_requests(group, trial_runs)
        self.volumes = single_writer_volumes(group)
        self.has_device_affinities = any(device.affinities or device.first_available for _, device in self.devices)
        """Whether nodes differ in how well their devices suit the group."""
        self.asks_affinities = any(device.affinities for _, device in self.devices)
        """Whether the device score counts on every node, also where no affinity is met
        (docs/explanation/placing.md)."""
        resources = AllocatedResources(
            tasks={
                task.name: AllocatedTaskResources(
                    cpu=AllocatedCpuResources(cpu_shares=0 if task.resources.cores else task.resources.cpu),
                    memory=AllocatedMemoryResources(
                        memory_mb=task.resources.memory_mb,
                        memory_max_mb=task.resources.memory_max_mb if with_memory_max else 0,
                    ),
                )
                for task in group.tasks
            },
            shared=AllocatedSharedResources(disk_mb=group.ephemeral_disk.size_mb),
        )
        self.plain = NodeGrant(resources, usage_of_resources(resources, group))

    @property
    def is_exclusive(self) -> bool:
        """Whether particular ports, cores or devices must be assigned on a node."""
        return self.has_ports or self.cores > 0 or bool(self.devices or self.volumes)

    @cached_property
    def needed_devices(self) -> tuple[RequestedDevice, ...]:
        """The device requests that a node must meet, without those that have alternatives."""
        return tuple(request for _, request in self.devices if not request.first_available)

    @cached_property
    def signature(self) -> tuple[object, ...]:
        """A key of the request: equal ones fit equally often into the same free amounts and devices."""
        usage = self.plain.usage
        return (usage.cpu, usage.memory, usage.disk, self.cores, tuple(request for _, request in self.devices))

    @cached_property
    def least_amounts(self) -> NamespaceUsage:
        """The minimum usage of an allocation on any node, by which quotas refuse before a node is considered.

        Which devices a node would give, and how many MHz its cores have, is counted once it grants them.
        """
        devices: dict[str, int] = {}
        for _, request in self.devices:
            if not (request.first_available or request.all_of_node or request.share):
                devices[request.name] = devices.get(request.name, 0) + request.count * MILLI
        return replace(counted(self.plain.usage), cores=self.cores, devices=tuple(sorted(devices.items())))

    def grant(self, node: Node, in_use: ExclusiveResources, *, salt: int) -> NodeGrant | str:
        """The grant of a node, or the exhausted dimension."""
        if not self.is_exclusive:
            return self.plain
        resources = self.plain.resources
        tasks = dict(resources.tasks)
        shared = resources.shared
        if not in_use.volumes.isdisjoint(self.volumes):
            return CLAIMED
        if self.cores:
            free = [core for core in node.node_resources.cpu.reservable_cpu_cores if not in_use.cores >> core & 1]
            if len(free) < self.cores:
                return "cores"
        if self.devices:
            granted = grant_devices(node, in_use.devices, self.devices)
            if granted is None:
                return self._device_reason(node, in_use)
            for name, granted_device in granted.devices:
                device = granted_device if self.stores_parts else replace(granted_device, part_milli=0)
                tasks[name] = replace(tasks[name], devices=(*tasks[name].devices, device))
        if self.cores and not self._give_cores(tasks, node, free):
            return "cores"
        if self.has_ports:
            ports = grant_ports(node, in_use.ports, self.group, salt=salt)
            if isinstance(ports, str):
                return ports
            shared = replace(shared, networks=ports.shared, ports=ports.ports)
            for name, networks in ports.tasks.items():
                tasks[name] = replace(tasks[name], networks=networks)
        of_group = AllocatedResources(tasks=tasks, shared=shared)
        return NodeGrant(of_group, usage_of_resources(of_group, self.group))

    def _device_reason(self, node: Node, in_use: ExclusiveResources) -> str:
        """The exhausted dimension where a node grants no devices."""
        if not any(isinstance(request, TrialRequest) for _, request in self.devices) or not has_trial(node):
            return NO_DEVICES
        untried_requests = [(task, untried(request)) for task, request in self.devices]
        return NO_DEVICES if grant_devices(node, in_use.devices, untried_requests) is None else ON_TRIAL

    def device_score(self, node: Node, in_use: ExclusiveResources) -> float:
        """The share of the device affinities that the node's free devices meet."""
        granted = grant_devices(node, in_use.devices, self.devices)
        return 0.0 if granted is None else granted.score

    def cpu_of_cores(self, mhz: int) -> int:
        """The MHz of reserved cores by node; tasks that never run concurrently share them."""
        shares = {
            task.name: mhz * task.resources.cores if task.resources.cores else task.resources.cpu
            for task in self.group.tasks
        }
        tasks = {
            name: AllocatedTaskResources(cpu=AllocatedCpuResources(cpu_shares=each)) for name, each in shares.items()
        }
        return usage_of_resources(AllocatedResources(tasks=tasks), self.group).cpu - self.plain.usage.cpu

    def note_topology(self, is_reported: bool) -> None:
        """Record that some nodes have a device topology: nodes with adjacent devices then suit the group better."""
        if is_reported and any(wants_topology(device) for _, device in self.devices):
            self.has_device_affinities = True

    def _give_cores(self, tasks: dict[str, AllocatedTaskResources], node: Node, free: list[int]) -> bool:
        """Assign cores to each task, those near its devices first; False when required ones are missing."""
        per_core = mhz_of_core(node)
        for task in self.group.tasks:
            if task.resources.cores:
                near = near_cores(node, tasks[task.name].devices)
                free.sort(key=lambda core: (core not in near, core))
                cores = tuple(sorted(free[: task.resources.cores]))
                numa = task.resources.numa
                if near and numa is not None and numa.affinity == REQUIRE and not near.issuperset(cores):
                    return False
                del free[: task.resources.cores]
                cpu = AllocatedCpuResources(cpu_shares=per_core * len(cores), reserved_cores=cores)
                tasks[task.name] = replace(tasks[task.name], cpu=cpu)
        return True

    def short_near_devices(self, node: Node, in_use: ExclusiveResources) -> tuple[NearCoreShortage, ...]:
        """The tasks short of cores near their devices, on a node with sufficient cores and devices."""
        granted = grant_devices(node, in_use.devices, self.devices)
        if granted is None or not self.devices:
            return ()
        shortages, devices = [], granted.devices
        free = [core for core in node.node_resources.cpu.reservable_cpu_cores if not in_use.cores >> core & 1]
        for task in self.group.tasks:
            required, numa = task.resources.cores, task.resources.numa
            near = near_cores(node, [device for name, device in devices if name == task.name])
            there = len(near.intersection(free))
            if required > there and near and numa is not None and numa.affinity == REQUIRE:
                shortages.append(NearCoreShortage(task.name, required, there))
            free.sort(key=lambda core: (core not in near, core))
            del free[:required]
        return tuple(shortages)


def mhz_of_core(node: Node) -> int:
    """The MHz of one core of a node."""
    cpu = node.node_resources.cpu
    return cpu.cpu_shares // max(1, cpu.total_cpu_cores or len(cpu.reservable_cpu_cores))
