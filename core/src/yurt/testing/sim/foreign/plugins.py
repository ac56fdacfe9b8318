"""The third-party plugins of a run."""

from __future__ import annotations

from typing import Final, NamedTuple

from yurt.testing.sim.foreign.devices import SimulatedDevices
from yurt.testing.sim.foreign.drivers import SimulatedDriver


class Foreign(NamedTuple):
    """Plugins that replace the simulator's own: a driver, a device plugin, or both."""

    driver: SimulatedDriver | None = None
    devices: SimulatedDevices | None = None


NOTHING_FOREIGN: Final = Foreign()
