"""The configuration hook: decodes a task's `config` block and builds the driver's request.

It stands where the environment is complete but for what templates give, so that a mistake in the block is found before
anything is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable

from yurt.client.task_env import allocated_ports, ports_of_task, replace_in
from yurt.client.tasks.client_task import ClientTask, SetupProblem, TaskSpec, run_id
from yurt.lifecycle import events
from yurt.sdk.driver import LogRotation, NameServers, TaskRequest, TaskResources
from yurt.sdk.errors import Invalid
from yurt.sdk.hooks import CONFIGURATION, Additions, TaskHookOf
from yurt.sdk.schema import decode_config
from yurt.sdk.value import replace
from yurt.structs.alloc import AllocatedTaskResources
from yurt.structs.job import TaskGroup
from yurt.structs.node import Node


class ConfigurationHook(TaskHookOf[ClientTask]):
    """Decodes the `config` block of a task and builds the driver's request."""

    name = CONFIGURATION

    def __init__(self, node: Callable[[], Node]) -> None:
        self._node = node

    async def prepare(self, task: ClientTask) -> None:
        """Decode the block after replacing its `${...}` references."""
        task.request = self._request(task)

    def completed(self, task: ClientTask) -> TaskRequest:
        """The request with the additions of later hooks; raises SetupProblem."""
        assert task.request is not None, task.key
        if task.request.env is not task.env:
            return self._request(task)
        return with_additions(task.request, task.given)

    def _request(self, task: ClientTask) -> TaskRequest:
        try:
            return request_of(task, self._node())
        except Invalid as error:
            raise SetupProblem(events.failed_validation(str(error))) from None


def request_of(task: ClientTask, node: Node) -> TaskRequest:
    """The driver's request, with the additions of hooks so far; raises Invalid."""
    alloc, group, declared = task.spec.alloc, task.spec.group, task.spec.task
    request = TaskRequest(
        task_id=run_id(alloc, task.name, task.run),
        alloc_id=alloc.id,
        task_name=task.name,
        job_id=alloc.job_id,
        group_name=alloc.task_group,
        namespace=alloc.namespace,
        config=decode_config(task.driver.task_config, replace_in(declared.config, task.lookup)),
        env=task.env,
        dirs=task.dirs,
        resources=resources_of(task.spec, node),
        user=declared.user,
        ports=(*allocated_ports(alloc), *ports_of_task(alloc, task.name)),
        hostname=next((network.hostname for network in group.networks), ""),
        name_servers=name_servers_of(group),
    )
    return with_additions(request, task.given)


def with_additions(request: TaskRequest, additions: Additions) -> TaskRequest:
    """The request with the additions of hooks, except for its environment and configuration."""
    return replace(
        request,
        resources=replace(request.resources, memory_nodes=additions.memory_nodes),
        logs=additions.logs or LogRotation(),
        network_namespace=additions.network_namespace,
        mounts=additions.mounts,
        devices=additions.devices,
        cdi_devices=additions.cdi_devices,
        engine_devices=additions.engine_devices,
    )


def name_servers_of(group: TaskGroup) -> NameServers | None:
    """The resolver settings of the group's network block."""
    dns = next((network.dns for network in group.networks), None)
    return NameServers(servers=dns.servers, searches=dns.searches, options=dns.options) if dns is not None else None


def resources_of(spec: TaskSpec, node: Node) -> TaskResources:
    """The resources that the scheduler granted to the task."""
    resources = spec.alloc.allocated_resources.tasks.get(spec.task.name, AllocatedTaskResources())
    return TaskResources(
        cpu_shares=resources.cpu.cpu_shares or spec.task.resources.cpu,
        node_cpu_shares=node.node_resources.cpu.cpu_shares,
        reserved_cores=resources.cpu.reserved_cores,
        memory_mb=resources.memory.memory_mb or spec.task.resources.memory_mb,
        memory_max_mb=resources.memory.memory_max_mb,
    )
