"""Runs seeds of small clusters whose tasks a third party's driver runs, under faults."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Final

from yurt.sdk.errors import Invalid
from yurt.testing.sim.foreign.drivers import SimulatedDriver
from yurt.testing.sim.plan import Plan, draw
from yurt.testing.sim.run import Report, run_plan

FEATURES: Final = ("service", "batch", "update", "stop", "alloc-stop")
FAULTS: Final = (
    "kill-client", "power-client", "pause-client", "cut-client", "slow-disk", "driver-fails", "driver-slow",
    "reset-connections",
)  # fmt: skip
"""What a driver may notice; those of servers are left out."""
SIZES: Final = {"servers": 3, "clients": 2, "users": 2, "user_pause_s": 1.0, "fault_pause_s": 3.0, "calm_s": 200.0}


def load(name: str) -> SimulatedDriver:
    """The object `MODULE:NAME` that a package gives; raises Invalid with the reason."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise Invalid(f'"{name}" names no object; write MODULE:NAME, for example my_driver.simulated:SIMULATED')
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise Invalid(f"{name} cannot be loaded: {error}") from None
    if not isinstance(found, SimulatedDriver):
        raise Invalid(f"{name} is a {type(found).__name__}; give a yurt.testing.sim.foreign.drivers.SimulatedDriver")
    return found


def plan_of(seed: int, *, active_s: float, faults: tuple[str, ...]) -> Plan:
    """The plan of a seed; raises Invalid for faults that do not exist."""
    unknown = sorted(set(faults) - set(FAULTS))
    if unknown:
        raise Invalid(f"there is no fault {', '.join(unknown)}; there are: {', '.join(FAULTS)}")
    return draw(seed, **SIZES, features=FEATURES, faults=faults, has_acl=False, active_s=active_s)


def reports(
    driver: SimulatedDriver, seeds: range, *, active_s: float, faults: tuple[str, ...] = FAULTS
) -> Iterator[Report]:
    """Run seeds one after the other; the first that fails is the last."""
    for seed in seeds:
        report = run_plan(plan_of(seed, active_s=active_s, faults=faults), driver)
        yield report
        if not report.is_clean:
            return
