"""Tells device plugins which task holds which device, and stops tasks that exceed their share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from yurt.client.devices.holders import DeviceHolders
from yurt.client.devices.manager import DeviceManager
from yurt.client.devices.overruns import find_overruns, has_slices
from yurt.client.devices.process_owners import LiveTask, ProcessOwners
from yurt.lifecycle import events
from yurt.lifecycle.task import RUNNING
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.device import DeviceClaim, DeviceUse
from yurt.sdk.errors import YurtError

INTERVAL_S = 1.0
"""The interval at which changes of holders and overruns are detected."""

log = logging.getLogger(__name__)


class ClaimWatch:
    """Compares the tasks' claims with the claims last reported to the plugins, and with the use of the devices."""

    def __init__(self, manager: DeviceManager, holders: DeviceHolders, env: Env, *, group: asyncio.TaskGroup) -> None:
        self._manager = manager
        self._holders = holders
        self._env = env
        self._group = group
        self._reported: tuple[tuple[DeviceClaim, ...], int] | None = None

    async def run(self) -> None:
        """Compare every second until cancelled.

        A failing comparison is logged; the next one starts a second later.
        """
        while self._manager.plugins:
            await asyncio.wait({supervised(self._group, "holders of devices", self._look())})
            await self._env.sleep(INTERVAL_S)

    def _claims(self) -> tuple[DeviceClaim, ...]:
        return tuple(claim for _, claim in self._holders.each())

    async def _look(self) -> None:
        claims = self._claims()
        now = (claims, self._manager.reservations)
        if now != self._reported:
            try:
                await self._manager.report_claims(self._claims)
                self._reported = now
            except YurtError as error:
                log.warning("reporting claims to device plugins failed, trying again: error=%s", error)
        if has_slices(claims):
            await self._stop_overruns(claims)

    async def _stop_overruns(self, claims: tuple[DeviceClaim, ...]) -> None:
        uses = await self._manager.uses()
        found = await asyncio.to_thread(overruns_of, claims, uses, tuple(self._holders.live()))
        for task, claim in tuple(self._holders.each()):
            over = found.get((claim.alloc_id, claim.task_name))
            if over and task.machine.phase == RUNNING:
                await task.end_run(events.device(over))


def overruns_of(
    claims: tuple[DeviceClaim, ...], uses: Mapping[str, DeviceUse], live: Iterable[LiveTask]
) -> dict[tuple[str, str], str]:
    """Descriptions of overruns by allocation and task; reads /proc."""
    owners = ProcessOwners(live)

    def owner_of(pid: int) -> tuple[str, str] | None:
        task = owners.task_of(pid)
        return None if task is None else (task.alloc_id, task.task_name)

    return {(each.alloc_id, each.task_name): each.text for each in find_overruns(claims, uses, owner_of)}
