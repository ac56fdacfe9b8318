"""The effect of a new job version on a running allocation: none, update in place, or replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.sdk.value import Duration, replace
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.network import NetworkResource
from yurt.structs.policies import Rendezvous
from yurt.structs.resources import RequestedDevice
from yurt.structs.task import Task


def is_current(alloc: Allocation, job: Job) -> bool:
    """Whether an allocation has this version of the job; a job registered again after a purge is another one."""
    old = alloc.job
    return old is not None and old.version == job.version and old.create_index == job.create_index


def is_older(alloc: Allocation, job: Job) -> bool:
    """Whether an allocation has an older version of the job, or an older registration."""
    old = alloc.job
    return old is None or old.version < job.version or old.create_index < job.create_index


def is_replaced_elsewhere(alloc: Allocation, job: Job) -> bool:
    """Whether a migrating allocation gets a replacement.

    What a drain or a user stops of a batch job is not repeated, but only in its own version: a newer one has yet to
    run. Without its placement the evaluation would end complete and cancel the blocked one that the version waits in.
    """
    return not alloc.desired_transition.migrate_disable_placement or is_older(alloc, job)


def is_destructive(old: Job, new: Job, group_name: str) -> bool:
    """Whether changing from one version to the other replaces the group's allocations."""
    before, after = old.group(group_name), new.group(group_name)
    if before is None or after is None:
        return True
    if before is after and old.meta == new.meta and _shared(old) == _shared(new):
        return False
    if _group_facts(before) != _group_facts(after) or _shared(old) != _shared(new):
        return True
    tasks = {task.name: task for task in before.tasks}
    if tasks.keys() != {task.name for task in after.tasks}:
        return True
    return any(
        _task_facts(tasks[task.name]) != _task_facts(task)
        or _meta(old, before, tasks[task.name]) != _meta(new, after, task)
        for task in after.tasks
    )


def _shared(job: Job) -> tuple[Any, ...]:
    return (job.payload, job.vault_namespace, job.consul_namespace)


def _group_facts(group: TaskGroup) -> tuple[Any, ...]:
    return (
        group.ephemeral_disk,
        group.volumes,
        tuple(_network(network) for network in group.networks),
        group.consul,
        group.restart_policy.render_templates,
        group.checkpoint.path if group.checkpoint is not None else None,
        _meeting(group),
        tuple(service.connect for service in group.services if service.connect is not None),
        tuple(sorted(task.name for task in group.tasks)),
    )


def _meeting(group: TaskGroup) -> Rendezvous | None:
    """The rendezvous of a gang, which running members have used already, or none."""
    rendezvous = group.gang.rendezvous if group.gang is not None else None
    return None if rendezvous is None else replace(rendezvous, barrier=Duration(0))


def _task_facts(task: Task) -> tuple[Any, ...]:
    resources = task.resources
    return (
        task.driver,
        task.user,
        task.config,
        task.env,
        task.artifacts,
        task.vault,
        task.consul,
        task.secrets,
        task.templates,
        task.csi_plugin_config,
        task.volume_mounts,
        task.identity,
        task.identities,
        task.log_config.disabled,
        task.lifecycle,
        task.restart_policy.render_templates,
        (resources.cpu, resources.cores, resources.memory_mb, resources.memory_max_mb, resources.secrets_mb),
        (_devices(resources.devices), resources.numa, tuple(_network(network) for network in resources.networks)),
    )


def _devices(devices: tuple[RequestedDevice, ...]) -> tuple[RequestedDevice, ...]:
    """The device requests without the reactions to idleness and failure, which may change during use."""
    return tuple(
        replace(each, idle=None, on_failure="") if each.idle is not None or each.on_failure else each
        for each in devices
    )


def _network(network: NetworkResource) -> tuple[Any, ...]:
    ports = (*network.reserved_ports, *network.dynamic_ports)
    labels = tuple(
        sorted((p.label, p.value if p in network.reserved_ports else 0, p.to, p.host_network) for p in ports)
    )
    return (network.mode, network.dns, network.mbits, network.hostname, network.cni, labels)


def _meta(job: Job, group: TaskGroup, task: Task) -> Mapping[str, str]:
    return {**job.meta, **group.meta, **task.meta}
