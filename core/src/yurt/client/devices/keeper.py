"""Joins the devices of a client with its tasks: who holds what, who must hear of a bad device, who takes too much."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.devices.claims import claim_of
from yurt.client.devices.manager import DeviceManager, HealthChange
from yurt.client.devices.overruns import find_overruns, has_slices
from yurt.client.devices.owners import LiveTask, Owners
from yurt.client.devices.wire import key_of
from yurt.client.tasks.task_runner import TaskRunner
from yurt.lifecycle import events
from yurt.lifecycle.task import DEAD, RUNNING
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.device import DeviceClaim, DeviceUse
from yurt.sdk.errors import YurtError

INTERVAL_S = 1.0
"""How soon a change of holders, and an overrun, is seen."""

log = logging.getLogger(__name__)


class DeviceKeeper:
    """Watches the holders of a client's devices."""

    def __init__(self, manager: DeviceManager, env: Env, runners: Callable[[], Mapping[str, AllocRunner]]) -> None:
        self._manager = manager
        self._env = env
        self._runners = runners
        self._told: tuple[tuple[DeviceClaim, ...], int] | None = None

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Tell the plugins who holds their devices, and stop those that take more than their share; for ever.

        A look that fails costs only itself; the next one begins a second later.
        """
        while self._manager.plugins:
            await asyncio.wait({supervised(group, "holders of devices", self._look())})
            await self._env.sleep(INTERVAL_S)

    async def _look(self) -> None:
        claims = tuple(claim for _, claim in self._holders())
        now = (claims, self._manager.reservations)
        if now != self._told:
            try:
                await self._manager.tell_held(claims)
                self._told = now
            except YurtError as error:
                log.warning("telling the holders of devices failed: %s; trying again", error)
        if has_slices(claims):
            await self._stop_overruns(claims)

    def _holders(self) -> Iterator[tuple[TaskRunner, DeviceClaim]]:
        """Every task that may still run and was given devices."""
        for runner in self._runners().values():
            for name, task in runner.tasks.items():
                claim = claim_of(runner.alloc, name)
                if not runner.is_over and task.machine.phase != DEAD and claim.devices:
                    yield task, claim

    def tell_health(self, changes: Iterable[HealthChange]) -> None:
        """Let the tasks that hold a device know that it has become bad, or well again."""
        by_device = {(change.group, change.id): change for change in changes}
        for task, claim in tuple(self._holders()):
            held = ((key_of(devices), device) for devices in claim.devices for device in devices.ids)
            for change in [by_device[each] for each in held if each in by_device]:
                task.note(events.device(change.text))

    async def _stop_overruns(self, claims: tuple[DeviceClaim, ...]) -> None:
        uses = await self._manager.uses()
        found = await asyncio.to_thread(overruns_of, claims, uses, tuple(self._live()))
        for task, claim in tuple(self._holders()):
            over = found.get((claim.alloc_id, claim.task_name))
            if over and task.machine.phase == RUNNING:
                await task.end_run(events.device(over))

    def _live(self) -> Iterator[LiveTask]:
        for runner in self._runners().values():
            for name, task in runner.tasks.items():
                if task.handle is not None and task.machine.phase == RUNNING:
                    yield LiveTask(
                        alloc_id=runner.alloc.id, task_name=name, task_id=task.handle.task_id, pid=task.handle.pid
                    )


def overruns_of(
    claims: tuple[DeviceClaim, ...], uses: Mapping[str, DeviceUse], live: Iterable[LiveTask]
) -> dict[tuple[str, str], str]:
    """What tasks take beyond their share, by allocation and task; reads /proc."""
    owners = Owners(live)

    def owner_of(pid: int) -> tuple[str, str] | None:
        task = owners.task_of(pid)
        return None if task is None else (task.alloc_id, task.task_name)

    return {(each.alloc_id, each.task_name): each.text for each in find_overruns(claims, uses, owner_of)}
