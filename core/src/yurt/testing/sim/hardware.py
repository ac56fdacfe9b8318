"""The devices of a simulated machine, as a device plugin's library sees them, and their invariants.

Devices work, break, vanish and come back, whatever agents do. Checked are: no device is held by two tasks that run
(C2), a reservation is repeatable (P1) and gives exactly the devices of its claim (P2), and once the machine is at rest
the servers know the health of every device (P3) and the plugin the tasks that hold one (P4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from yurt.sdk.device import WHOLE, DeviceClaim, Reservation
from yurt.structs.node import Node

IDS: Final = ("dev-0", "dev-1", "dev-2")
WORKS, GONE = "", "gone"
Key = tuple[str, str]
"""An allocation's id and the name of a task."""


@dataclass
class DeviceFaults:
    """The rates at which calls of a device plugin misbehave."""

    fails: float = 0.0
    hangs: float = 0.0
    breaks_off: bool = False
    """Whether the stream of fingerprints fails once more."""


class Hardware:
    """The devices of one machine; `report` is called with each violation."""

    def __init__(self, host: str, report: Callable[[str], None]) -> None:
        self.host = host
        self.faults = DeviceFaults()
        self.states = dict.fromkeys(IDS, WORKS)
        """Why each device does not work; "" for one that works, `GONE` for one that is pulled out."""
        self.claims: dict[Key, tuple[str, ...]] = {}
        """The whole devices of the last reservation for each task."""
        self.plugin_claims: tuple[DeviceClaim, ...] = ()
        """The claims in the last call of `update_claims`."""
        self.changes = 0
        """How often a device changed."""
        self._report = report
        self._changed = asyncio.Event()

    def set_state(self, device: str, state: str) -> None:
        """Break a device, make it vanish, or repair it."""
        if self.states[device] != state:
            self.states[device] = state
            self.changes += 1
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def mend(self) -> None:
        """Repair all devices, and stop the faults of the plugin's calls."""
        self.faults = DeviceFaults()
        for device in IDS:
            self.set_state(device, WORKS)

    async def wait_change(self, seen: int) -> None:
        """Wait until the devices have changed more than `changes` times."""
        while self.changes == seen:
            await self._changed.wait()

    # What must hold.

    def reserved(self, claim: DeviceClaim, given: Reservation, again: Reservation, seen: Iterable[str] | None) -> None:
        """Check two answers of a plugin for one claim; `seen` are the devices that the reservation gives."""
        if given != again:
            self._report(f"P1 {self.host}: one claim on {claim.ids} is answered by {given} and by {again}")
        if seen is not None and sorted(seen) != sorted(claim.ids):
            self._report(f"P2 {self.host}: the reservation for {claim.ids} gives {tuple(seen)}")
        whole = (each for devices in claim.devices if devices.share == WHOLE for each in devices.ids)
        self.claims[claim.alloc_id, claim.task_name] = tuple(whole)

    def started(self, key: Key, live: Sequence[Key]) -> None:
        """Check a started task against those that run."""
        mine = set(self.claims.get(key, ()))
        for other in live:
            both = mine & set(self.claims.get(other, ())) if other != key else set()
            if both:
                self._report(f"C2 {self.host}: {sorted(both)} are held by two tasks that run: {key} and {other}")

    def problems(self, node: Node, live: Iterable[Key]) -> list[str]:
        """Differences between the hardware, the plugin and the servers, on a machine at rest.

        A device that works again stays on probation for as long as a task has it: it is tested once it is free.
        """
        live = tuple(live)
        instances = [each for group in node.node_resources.devices for each in group.instances]
        healths = {each.id: each.healthy for each in instances}
        in_use = {device for key in live for device in self.claims.get(key, ())}
        untested = {each.id for each in instances if each.health is not None and each.health.state == "probation"}
        found = [
            f"P3 {self.host}: {device} {'works' if state == WORKS else 'does not work'}, and the servers know it as "
            f"{_health_text(healths.get(device))}"
            for device, state in self.states.items()
            if healths.get(device, False) != (state == WORKS) and not (state == WORKS and device in in_use & untested)
        ]
        holding = {key for key in live if self.claims.get(key)}
        reported = {(each.alloc_id, each.task_name) for each in self.plugin_claims}
        if holding - reported:
            found.append(f"P4 {self.host}: the plugin got no report that {sorted(holding - reported)} hold devices")
        return found


def _health_text(is_healthy: bool | None) -> str:
    return "missing" if is_healthy is None else "healthy" if is_healthy else "unhealthy"


def states_of(hardware: Hardware) -> Mapping[str, str]:
    """The visible devices, each with the reason why it does not work."""
    return {device: state for device, state in hardware.states.items() if state != GONE}
