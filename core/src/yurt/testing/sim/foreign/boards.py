"""The simulator's own device plugin, for runs with devices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final

from yurt.sdk.device import DeviceClaim, DeviceFingerprint, DeviceGroup, DeviceInstance, DeviceUse, Reservation
from yurt.testing.sim.foreign.devices import Devices, SimulatedDevices

VARIABLE = "BOARDS"


class Boards:
    """A device plugin for boards, which tasks find through an environment variable."""

    name = "boards"

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._seen: dict[str, str] = {}

    async def fingerprint(self) -> AsyncIterator[DeviceFingerprint]:
        """Yield all boards ever seen; those that vanished are unhealthy."""
        while True:
            found = await self._devices.read()
            self._seen = dict.fromkeys(self._seen, "it is not plugged in") | dict(found)
            boards = tuple(
                DeviceInstance(id=board, is_healthy=not reason, reason=reason, severity="failed" if reason else "")
                for board, reason in sorted(self._seen.items())
            )
            yield DeviceFingerprint(groups=(DeviceGroup(vendor="acme", type="board", name="b1", instances=boards),))
            await self._devices.wait_change()

    async def reserve(self, claim: DeviceClaim) -> Reservation:
        """An environment variable with the boards' names."""
        return Reservation(env={VARIABLE: ",".join(claim.ids)})

    async def update_claims(self, claims: Sequence[DeviceClaim]) -> None:
        """Ignore the claims."""

    async def stats(self) -> Mapping[str, DeviceUse]:
        """No statistics."""
        return {}

    async def close(self) -> None:
        """Nothing is held."""


def _seen(reservation: Reservation) -> Iterable[str]:
    return reservation.env[VARIABLE].split(",")


BOARDS: Final = SimulatedDevices("boards", Boards, "acme/board", _seen)
