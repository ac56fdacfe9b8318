"""Devices of a task: the hook that asks plugins for what the task needs to see them."""

from __future__ import annotations

from yurt.client.devices.claims import claim_of, reachable
from yurt.client.devices.holders import DeviceHolders
from yurt.client.devices.manager import DeviceManager
from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.client.timed_waits import wait_or_sleep
from yurt.lifecycle import events
from yurt.runtime.env import Env
from yurt.sdk.device import DeviceClaim
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.hooks import Additions, TaskHookOf
from yurt.structs.task import Task

HOLDER_LIMIT_S = 600.0
HOLDER_LOOK_S = 0.25
NUMA_REQUIRE = "require"


class DevicesHook(TaskHookOf[ClientTask]):
    """Reserves what the servers have given to the task."""

    name = "devices"

    def __init__(self, devices: DeviceManager, holders: DeviceHolders, env: Env) -> None:
        self._devices = devices
        self._holders = holders
        self._env = env

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Add the task's device variables, nodes and mounts, once no other task uses the devices."""
        claim = claim_of(task.spec.alloc, task.name)
        if not claim.devices:
            return None
        await self._wait_free(task, claim)
        return await self._additions(task, claim)

    async def _additions(self, task: ClientTask, claim: DeviceClaim) -> Additions:
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

    async def _wait_free(self, task: ClientTask, claim: DeviceClaim) -> None:
        """Wait until tasks that are being stopped have let go of the devices; raises SetupProblem.

        The servers count what they stop as free at once, and the memory of a device is not: a task that started
        beside the old one would fail.
        """
        limit, is_told = self._env.monotonic() + HOLDER_LIMIT_S, False
        while (found := self._holders.using(claim)) and not task.killed.is_set():
            other, device = found
            where = f"task {other.name} of allocation {other.alloc.id[:8]}"
            if self._env.monotonic() >= limit:
                failure = events.setup_failure(f"device {device} is still used by {where} after {HOLDER_LIMIT_S:g} s")
                raise SetupProblem(failure, is_recoverable=True)
            if not is_told:
                task.note(events.device(f"Waiting for device {device}: {where} has not ended yet"))
                is_told = True
            await wait_or_sleep(self._env, task.killed, HOLDER_LOOK_S)

    async def recover(self, task: ClientTask) -> Additions | None:
        """Add the same again, for queries of the run's environment."""
        claim = claim_of(task.spec.alloc, task.name)
        if not task.is_env_asked_for or not claim.devices:
            return None
        try:
            return await self._additions(task, claim)
        except SetupProblem as problem:
            task.lacks_devices = True
            without = "Templates stay as they are, and actions know neither their variables nor those of devices"
            task.note(events.task_setup(f"{without}: {problem}"))
            return None


def is_bound(task: Task) -> bool:
    """Whether the task's memory must be near its devices."""
    numa = task.resources.numa
    return numa is not None and numa.affinity == NUMA_REQUIRE
