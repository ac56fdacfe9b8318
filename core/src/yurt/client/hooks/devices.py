"""Devices of a task: the hook that asks plugins for what the task needs to see them."""

from __future__ import annotations

from yurt.client.devices.claims import claim_of, reachable
from yurt.client.devices.manager import DeviceManager
from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.lifecycle import events
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.hooks import Additions, TaskHookOf
from yurt.structs.task import Task

NUMA_REQUIRE = "require"


class DevicesHook(TaskHookOf[ClientTask]):
    """Reserves what the servers have given to the task."""

    name = "devices"

    def __init__(self, devices: DeviceManager) -> None:
        self._devices = devices

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Add the variables, nodes and mounts by which the task sees its devices."""
        claim = claim_of(task.spec.alloc, task.name)
        if not claim.devices:
            return None
        try:
            reservation = await self._devices.reserve(claim)
            nodes = self._devices.memory_nodes(claim) if is_bound(task.spec.task) else ()
            seen = reachable(reservation, task.driver)
        except DriverError as error:
            failure = events.setup_failure(str(error))
            raise SetupProblem(failure, is_recoverable=isinstance(error, RecoverableError)) from None
        return Additions(
            fixed_env=seen.env,
            mounts=seen.mounts,
            devices=seen.nodes,
            cdi_devices=seen.cdi_devices,
            engine_devices=seen.engine_devices,
            memory_nodes=nodes,
        )

    async def recover(self, task: ClientTask) -> Additions | None:
        """Add the same again, for queries of the run's environment."""
        if not task.is_env_asked_for:
            return None
        try:
            return await self.prepare(task)
        except SetupProblem as problem:
            task.lacks_devices = True
            without = "Templates stay as they are, and actions know neither their variables nor those of devices"
            task.note(events.task_setup(f"{without}: {problem}"))
            return None


def is_bound(task: Task) -> bool:
    """Whether the task's memory must be near its devices."""
    numa = task.resources.numa
    return numa is not None and numa.affinity == NUMA_REQUIRE
