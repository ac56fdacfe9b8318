"""Device plugins on simulated hardware, for `yurt driver sim`: two first tries of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from yurt.sdk.device import DeviceClaim, DeviceFingerprint, DeviceGroup, DeviceInstance, Reservation
from yurt.testing.sim.foreign.boards import BOARDS, VARIABLE, Boards
from yurt.testing.sim.foreign.devices import Devices


class BoardsReadOnce(Boards):
    """Looks for boards when it starts, and never again."""

    async def fingerprint(self) -> AsyncIterator[DeviceFingerprint]:
        devices = await self._devices.read()
        boards = tuple(DeviceInstance(id=each, is_healthy=not reason) for each, reason in devices.items())
        yield DeviceFingerprint(groups=(DeviceGroup(vendor="acme", type="board", name="b1", instances=boards),))
        await asyncio.Event().wait()


class BoardsByCount(Boards):
    """Gives the next free board instead of the one that the servers chose."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self.count = 0

    async def reserve(self, claim: DeviceClaim) -> Reservation:
        self.count += 1
        return Reservation(env={VARIABLE: f"dev-{self.count % 3}"})


RIGHT = BOARDS
READ_ONCE = replace(BOARDS, make=BoardsReadOnce)
BY_COUNT = replace(BOARDS, make=BoardsByCount)
