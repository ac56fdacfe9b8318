"""The network hooks: create an allocation's network, report its address, and remove it at the end."""

from __future__ import annotations

from yurt.client.allocations.client_alloc import ClientAlloc
from yurt.client.networks.manager import Networks, TaskNetwork
from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.lifecycle import events
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.hooks import Additions, AllocHookOf, TaskHookOf


class TaskNetworkHook(TaskHookOf[ClientTask]):
    """Creates the network of a group before its first task; the other tasks join it."""

    name = "network"

    def __init__(self, networks: Networks) -> None:
        self._networks = networks

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Return the group's network namespace and its files for /etc."""
        try:
            network = await self._networks.join(task.spec.alloc, task.spec.group, task.driver)
        except DriverError as error:
            failure = events.setup_failure(str(error))
            raise SetupProblem(failure, is_recoverable=isinstance(error, RecoverableError)) from None
        if network == TaskNetwork():
            return None
        if network.status:
            task.see_network(network.status)
        return Additions(network_namespace=network.namespace, mounts=network.mounts)

    async def recover(self, task: ClientTask) -> Additions | None:
        """Restore the address recorded with the run."""
        status = self._networks.status(task.spec.alloc.id)
        if status is not None:
            task.see_network(status)
        return None


class AllocNetworkHook(AllocHookOf[ClientAlloc]):
    """Reports the address of an allocation's own network, and removes the network."""

    name = "network"

    def __init__(self, networks: Networks) -> None:
        self._networks = networks

    def update(self, alloc: ClientAlloc) -> None:
        """Report the address once the network has one."""
        status = self._networks.status(alloc.id)
        if status is not None and status != alloc.alloc.network_status:
            alloc.see_network(status)

    async def exited(self, alloc: ClientAlloc) -> None:
        """Remove the network before the end is reported."""
        await self._networks.release(alloc.id)
