"""The devices hook: reserves a task's devices and adds them to its run."""

from __future__ import annotations

from yurt.client.devices.claims import claim_of, reachable
from yurt.client.devices.holders import DeviceHolders
from yurt.client.devices.manager import DeviceManager
from yurt.client.hooks.ending_tasks import EndingTask, wait_left
from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.lifecycle import events
from yurt.runtime.env import Env
from yurt.sdk.device import DeviceClaim
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.hooks import Additions, TaskHookOf
from yurt.structs.task import Task

NUMA_REQUIRE = "require"


class DevicesHook(TaskHookOf[ClientTask]):
    """Reserves the devices that the scheduler assigned to a task."""

    name = "devices"

    def __init__(self, devices: DeviceManager, holders: DeviceHolders, env: Env) -> None:
        self._devices = devices
        self._holders = holders
        self._env = env

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Return the task's device variables, nodes and mounts, once no other task uses the devices."""
        claim = claim_of(task.spec.alloc, task.name)
        if not claim.devices:
            return None
        await self._wait_free(task, claim)
        return await self._additions(task, claim, is_noted=True)

    async def _additions(self, task: ClientTask, claim: DeviceClaim, *, is_noted: bool = False) -> Additions:
        try:
            reservation = await self._devices.reserve(claim)
            nodes = self._devices.memory_nodes(claim) if is_bound(task.spec.task) else ()
            seen = reachable(reservation, task.driver)
        except DriverError as error:
            failure = events.setup_failure(str(error))
            raise SetupProblem(failure, is_recoverable=isinstance(error, RecoverableError)) from None
        for note in reservation.notes if is_noted else ():
            task.note(events.device(note))
        return Additions(
            fixed_env=seen.env,
            mounts=seen.mounts,
            devices=seen.nodes,
            cdi_devices=seen.cdi_devices,
            engine_devices=seen.engine_devices,
            memory_nodes=nodes,
        )

    async def _wait_free(self, task: ClientTask, claim: DeviceClaim) -> None:
        """Wait until tasks that are being stopped release the devices; raises SetupProblem.

        The servers count the devices of a stopped task as free at once, but their memory is in use until it has ended:
        a task that started before that would fail.
        """

        def find() -> tuple[EndingTask, str] | None:
            found = self._holders.using(claim)
            return None if found is None else (found[0], f"device {found[1]}")

        await wait_left(task, self._env, find, event=events.device)

    async def recover(self, task: ClientTask) -> Additions | None:
        """Return the same additions again, for queries of the run's environment."""
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
    """Whether the task's memory must be on the NUMA nodes of its devices."""
    numa = task.resources.numa
    return numa is not None and numa.affinity == NUMA_REQUIRE
