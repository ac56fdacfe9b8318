"""Runs seeds of small clusters with a third party's driver or device plugin, under faults."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Final

from yurt.sdk.errors import Invalid
from yurt.testing.sim.foreign.devices import SimulatedDevices
from yurt.testing.sim.foreign.drivers import SimulatedDriver
from yurt.testing.sim.foreign.plugins import Foreign
from yurt.testing.sim.plan import Plan, draw
from yurt.testing.sim.run import Report, run_plan

FEATURES: Final = ("service", "batch", "update", "stop", "alloc-stop")
OF_AGENTS: Final = ("kill-client", "power-client", "pause-client", "cut-client", "slow-disk", "reset-connections")
OF_DRIVERS: Final = (*OF_AGENTS[:-1], "driver-fails", "driver-slow", OF_AGENTS[-1])
OF_DEVICES: Final = (*OF_AGENTS, "device-breaks", "device-fails")
"""What a plugin may notice; faults of servers are left out."""
SIZES: Final = {"servers": 3, "clients": 2, "users": 2, "user_pause_s": 1.0, "fault_pause_s": 3.0, "calm_s": 200.0}


def load(name: str) -> Foreign:
    """Load the object `MODULE:NAME` of a package; raises Invalid with the reason."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise Invalid(f'"{name}" names no object; write MODULE:NAME, for example my_driver.simulated:SIMULATED')
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise Invalid(f"{name} cannot be loaded: {error}") from None
    if isinstance(found, SimulatedDriver):
        return Foreign(driver=found)
    if isinstance(found, SimulatedDevices):
        return Foreign(devices=found)
    raise Invalid(
        f"{name} is a {type(found).__name__}; give a yurt.testing.sim.foreign.drivers.SimulatedDriver or a "
        "yurt.testing.sim.foreign.devices.SimulatedDevices"
    )


def faults_of(foreign: Foreign, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The faults of a run, by default all that a plugin can notice; raises Invalid for unknown ones."""
    able = OF_DEVICES if foreign.devices is not None else OF_DRIVERS
    unknown = sorted(set(wanted) - set(able))
    if unknown:
        raise Invalid(f"there is no fault {', '.join(unknown)}; there are: {', '.join(able)}")
    return wanted or able


def plan_of(seed: int, *, active_s: float, faults: tuple[str, ...]) -> Plan:
    """The plan of a seed."""
    return draw(seed, **SIZES, features=FEATURES, faults=faults, has_acl=False, active_s=active_s)


def reports(foreign: Foreign, seeds: range, *, active_s: float, faults: tuple[str, ...] = ()) -> Iterator[Report]:
    """Run seeds in order; ends after the first that fails."""
    wanted = faults_of(foreign, faults)
    for seed in seeds:
        report = run_plan(plan_of(seed, active_s=active_s, faults=wanted), foreign)
        yield report
        if not report.is_clean:
            return
