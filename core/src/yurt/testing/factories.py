"""Factories for complete, valid domain objects; keyword arguments replace single fields.

Ids are readable and made from a number, so that two runs of a test are alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from yurt.fsm.node_class import computed_class
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs import status
from yurt.structs.alloc import (
    AllocatedCpuResources,
    AllocatedMemoryResources,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
    Allocation,
)
from yurt.structs.deployment import Deployment, DeploymentState
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import (
    DriverInfo,
    Node,
    NodeCpuResources,
    NodeDiskResources,
    NodeMemoryResources,
    NodeResources,
)
from yurt.structs.plan import Placement
from yurt.structs.policies import MigrateStrategy, ReschedulePolicy, RestartPolicy, UpdateStrategy
from yurt.structs.predicates import alloc_name, eval_type
from yurt.structs.resources import EphemeralDisk, Resources
from yurt.structs.service import ServiceRegistration, registration_prefix
from yurt.structs.task import Task

NOW = UnixNano(1_700_000_000_000_000_000)
"""The time at which the factories' objects were made."""

_numbers = itertools.count(1)


def number_id(number: int, kind: int = 0) -> str:
    """A UUID that shows its number: `00000000-0000-4000-8000-000000000007`."""
    return f"{kind:08x}-0000-4000-8000-{number:012x}"


def new_id() -> str:
    """A UUID that no other call of this factory has returned."""
    return number_id(next(_numbers), kind=0xF)


def task(name: str = "web", **changes: Any) -> Task:
    """A task of the mock driver that asks 100 MHz and 128 MiB."""
    made = Task(
        name=name,
        driver="mock_driver",
        config={"run_for": "10s"},
        resources=Resources(cpu=100, memory_mb=128),
        restart_policy=restart_policy(),
    )
    return replace(made, **changes)


def group(name: str = "web", count: int = 1, **changes: Any) -> TaskGroup:
    """A group with one task and the defaults of a service job."""
    made = TaskGroup(
        name=name,
        count=count,
        tasks=(task(),),
        restart_policy=restart_policy(),
        reschedule_policy=ReschedulePolicy(
            delay=seconds(30), delay_function="exponential", max_delay=seconds(3600), unlimited=True
        ),
        ephemeral_disk=EphemeralDisk(size_mb=300),
        update=update_strategy(),
        migrate=MigrateStrategy(
            max_parallel=1, health_check="checks", min_healthy_time=seconds(10), healthy_deadline=seconds(300)
        ),
    )
    return replace(made, **changes)


def service(alloc: Allocation, name: str = "web", **changes: Any) -> ServiceRegistration:
    """A registered instance of a service in an allocation."""
    made = ServiceRegistration(
        id=f"{registration_prefix(alloc.id)}group-{name}",
        service_name=name,
        namespace=alloc.namespace,
        node_id=alloc.node_id,
        datacenter="dc1",
        job_id=alloc.job_id,
        alloc_id=alloc.id,
        tags=("blue",),
        address="127.0.0.1",
        port=8080,
    )
    return replace(made, **changes)


def restart_policy(**changes: Any) -> RestartPolicy:
    """Two attempts in 30 minutes, then the allocation fails."""
    made = RestartPolicy(attempts=2, interval=seconds(1800), delay=seconds(15), mode="fail")
    return replace(made, **changes)


def update_strategy(**changes: Any) -> UpdateStrategy:
    """One allocation at a time, no canaries."""
    made = UpdateStrategy(
        stagger=seconds(30),
        max_parallel=1,
        health_check="checks",
        min_healthy_time=seconds(10),
        healthy_deadline=seconds(300),
        progress_deadline=seconds(600),
    )
    return replace(made, **changes)


def job(id: str = "web", **changes: Any) -> Job:
    """A service job with one group of one allocation; other types drop the blocks that they may not have."""
    made = Job(id=id, name=id, datacenters=("dc1",), task_groups=(group(),), submit_time=NOW)
    made = replace(made, **changes)
    if made.type == status.JOB_SERVICE or "task_groups" in changes:
        return made
    return replace(made, task_groups=tuple(_group_of_type(one, made.type) for one in made.task_groups))


def _group_of_type(one: TaskGroup, job_type: str) -> TaskGroup:
    batch = ReschedulePolicy(attempts=1, interval=seconds(24 * 3600), delay=seconds(5), delay_function="constant")
    return replace(
        one,
        update=one.update if job_type == status.JOB_SYSTEM else None,
        migrate=None,
        reschedule_policy=batch if job_type == status.JOB_BATCH else None,
    )


def node(id: str = "", **changes: Any) -> Node:
    """A ready Linux node with 4,000 MHz, 8 GiB and 100 GB, its mock and raw_exec drivers healthy."""
    node_id = id or new_id()
    healthy = DriverInfo(detected=True, healthy=True, health_description="Healthy", update_time=NOW)
    made = Node(
        id=node_id,
        secret_id=number_id(1, kind=0xE),
        name=f"node-{node_id[-4:]}",
        http_addr="127.0.0.1:4646",
        attributes={
            "cpu.arch": "amd64",
            "driver.mock_driver": "1",
            "driver.raw_exec": "1",
            "kernel.name": "linux",
            "os.name": "debian",
            "unique.hostname": f"host-{node_id[-4:]}",
        },
        node_resources=NodeResources(
            cpu=NodeCpuResources(cpu_shares=4000, total_cpu_cores=4, reservable_cpu_cores=(0, 1, 2, 3)),
            memory=NodeMemoryResources(memory_mb=8192),
            disk=NodeDiskResources(disk_mb=100 * 1024),
        ),
        drivers={"mock_driver": healthy, "raw_exec": healthy},
        status=status.NODE_READY,
        status_updated_at=NOW // 1_000_000_000,
    )
    made = replace(made, **changes)
    return made if "computed_class" in changes else replace(made, computed_class=computed_class(made))


def allocated(one: TaskGroup, *, ports: tuple[Any, ...] = ()) -> AllocatedResources:
    """The resources that a group asks for, as allocated resources."""
    tasks: Mapping[str, AllocatedTaskResources] = {
        asked.name: AllocatedTaskResources(
            cpu=AllocatedCpuResources(cpu_shares=asked.resources.cpu),
            memory=AllocatedMemoryResources(
                memory_mb=asked.resources.memory_mb, memory_max_mb=asked.resources.memory_max_mb
            ),
        )
        for asked in one.tasks
    }
    return AllocatedResources(
        tasks=tasks, shared=AllocatedSharedResources(disk_mb=one.ephemeral_disk.size_mb, ports=ports)
    )


def alloc(of: Job | None = None, *, on: Node | None = None, index: int = 0, **changes: Any) -> Allocation:
    """A pending allocation of a job's first group (or of `task_group`) on a node."""
    its_job, its_node = of or job(), on or node()
    one = its_job.group(changes.get("task_group", "")) or its_job.task_groups[0]
    made = Allocation(
        id=new_id(),
        namespace=its_job.namespace,
        eval_id=new_id(),
        name=alloc_name(its_job.id, one.name, index),
        node_id=its_node.id,
        node_name=its_node.name,
        job_id=its_job.id,
        job=its_job,
        task_group=one.name,
        allocated_resources=allocated(one),
        create_time=NOW,
        modify_time=NOW,
    )
    return replace(made, **changes)


def placement(of: Job, *, on: Node, index: int = 0, **changes: Any) -> Placement:
    """A placement of a job's first group (or of `task_group`) on a node, at the job's version."""
    one = of.group(changes.get("task_group", "")) or of.task_groups[0]
    made = Placement(
        id=new_id(),
        name=alloc_name(of.id, one.name, index),
        task_group=one.name,
        node_id=on.id,
        node_name=on.name,
        job_version=of.version,
        resources=allocated(one),
    )
    return replace(made, **changes)


def evaluation(of: Job | None = None, **changes: Any) -> Evaluation:
    """A pending evaluation of a job that was registered."""
    its_job = of or job()
    made = Evaluation(
        id=new_id(),
        priority=its_job.priority,
        type=eval_type(its_job),
        triggered_by=status.TRIGGER_JOB_REGISTER,
        namespace=its_job.namespace,
        job_id=its_job.id,
        job_modify_index=its_job.job_modify_index,
        create_time=NOW,
        modify_time=NOW,
    )
    return replace(made, **changes)


def deployment(of: Job | None = None, **changes: Any) -> Deployment:
    """A running deployment of all groups of a job's version."""
    its_job = of or job()
    made = Deployment(
        id=new_id(),
        namespace=its_job.namespace,
        job_id=its_job.id,
        job_version=its_job.version,
        job_modify_index=its_job.modify_index,
        job_spec_modify_index=its_job.job_modify_index,
        job_create_index=its_job.create_index,
        task_groups={
            one.name: DeploymentState(
                desired_total=one.count,
                progress_deadline=one.update.progress_deadline,
                auto_revert=one.update.auto_revert,
                desired_canaries=one.update.canary,
            )
            for one in its_job.task_groups
            if one.update is not None
        },
        status=status.DEPLOYMENT_RUNNING,
        status_description="Deployment is running",
        create_time=NOW,
        modify_time=NOW,
    )
    return replace(made, **changes)
