"""A third party's device plugin in the simulator: its own code on simulated hardware, under faults (`yurt driver sim`).

The package gives `SimulatedDevices`: how to make the plugin on a `Devices`, and how jobs ask for one of its devices.
`Devices` stands for the library below the plugin: which devices can be seen, and which of them work. Each agent that
starts makes a new plugin. What goes wrong between the agent and the plugin is added here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from yurt.sdk.device import DeviceClaim, DeviceFingerprint, DevicePlugin, DeviceUse, Reservation
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.testing.sim.driver import SimHost
from yurt.testing.sim.hardware import Hardware, states_of
from yurt.testing.sim.loop import Process

BREAKS_OFF_LOOK_S = 0.5


class Devices:
    """The simulated hardware as the plugin's library sees it."""

    def __init__(self, host: SimHost, process: Process) -> None:
        self.notes: dict[str, Any] = host.notes
        """What the plugin keeps on disk: it outlives the agent and the host's power."""
        self._hardware: Hardware = host.hardware
        self._host = host
        self._process = process
        self._seen = self._hardware.changes

    async def read(self) -> Mapping[str, str]:
        """The visible devices, each with the reason why it does not work ("": it works)."""
        await asyncio.sleep(self._host.chance.uniform(0.0005, 0.005))
        if self._process.is_dead:
            await asyncio.Event().wait()
        self._seen = self._hardware.changes
        return states_of(self._hardware)

    async def wait_change(self) -> None:
        """Wait for a device to break, vanish or return; returns at once after a change since `read`."""
        await self._hardware.wait_change(self._seen)


@dataclass(frozen=True)
class SimulatedDevices:
    """What a package provides to run its device plugin in the simulator."""

    name: str
    make: Callable[[Devices], DevicePlugin]
    request: str
    """How jobs name the devices: `type`, `vendor/type` or `vendor/type/name`."""
    seen: Callable[[Reservation], Iterable[str]] | None = None
    """The ids of the devices that a reservation gives access to; None leaves that unchecked."""


class FaultyDevices:
    """The plugin as an agent loads it, with faults between the two."""

    def __init__(self, given: SimulatedDevices, host: SimHost, process: Process) -> None:
        self.name = given.name
        self._given = given
        self._plugin = given.make(Devices(host, process))
        self._hardware = host.hardware
        self._host = host
        self._process = process

    async def fingerprint(self) -> AsyncIterator[DeviceFingerprint]:
        """The plugin's fingerprints; the stream may fail, and the agent starts it again."""
        async with aclosing(self._plugin.fingerprint()) as found:  # type: ignore[type-var]
            while (fingerprint := await self._next(found)) is not None:
                yield fingerprint

    async def _next(self, found: AsyncIterator[DeviceFingerprint]) -> DeviceFingerprint | None:
        following = asyncio.ensure_future(anext(found, None))
        try:
            while not following.done():
                await asyncio.wait({following}, timeout=BREAKS_OFF_LOOK_S)
                self._break_off()
            return following.result()
        finally:
            if not following.done():
                following.cancel()
                await asyncio.wait({following})

    def _break_off(self) -> None:
        faults = self._hardware.faults
        if faults.breaks_off:
            faults.breaks_off = False
            raise DriverError("the device plugin does not answer")

    async def _pass(self) -> None:
        chance, faults = self._host.chance, self._hardware.faults
        await asyncio.sleep(chance.uniform(0.0005, 0.01))
        if self._process.is_dead or chance.random() < faults.hangs:
            await asyncio.Event().wait()
        if chance.random() < faults.fails:
            raise (RecoverableError if chance.random() < 0.5 else DriverError)("the devices do not answer")

    async def reserve(self, claim: DeviceClaim) -> Reservation:
        """The plugin's reservation, called twice because it must be repeatable."""
        await self._pass()
        before = dict(self._hardware.states)
        given = await self._plugin.reserve(claim)
        again = await self._plugin.reserve(claim)
        if before == self._hardware.states:
            seen = self._given.seen
            self._hardware.reserved(claim, given, again, None if seen is None else tuple(seen(given)))
        return given

    async def update_claims(self, claims: Sequence[DeviceClaim]) -> None:
        """Pass the claims on to the plugin."""
        await self._plugin.update_claims(claims)
        if not self._process.is_dead:
            self._hardware.plugin_claims = tuple(claims)

    async def stats(self) -> Mapping[str, DeviceUse]:
        """The plugin's statistics."""
        await self._pass()
        return await self._plugin.stats()

    async def close(self) -> None:
        """Close the plugin."""
        await self._plugin.close()
