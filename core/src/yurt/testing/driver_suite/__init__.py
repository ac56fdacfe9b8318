"""Conformance suite for task drivers: any driver package subclasses it for its own driver.

    class TestMyDriver(DriverSuite):
        @pytest.fixture
        def make_driver(self) -> DriverFactory:
            return lambda context: MyDriver(context)

        @pytest.fixture
        def cases(self) -> DriverCases:
            return DriverCases(ends=lambda code: {"command": "sh", "args": ["-c", f"exit {code}"]}, ...)

What does not apply to a driver is skipped, with the reason: its capabilities decide (no signals, no exec), and the
cases that it does not give. `yurt driver test` runs the suite of a package and reports.

A case is the `config` block, as a job file would give it, of a task that does a certain thing. The suite makes a
driver, starts real tasks in a temporary folder, and destroys whatever is left at the end of a test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

PARTS = ("bench", "burden", "commands", "lifecycle", "networks", "output", "recovery", "swaps")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in PARTS))

from yurt.testing.driver_suite.bench import Config, DriverBench, DriverCases, DriverFactory  # noqa: E402 - pytest explains the failures of what is imported from here on
from yurt.testing.driver_suite.commands import CommandTests  # noqa: E402
from yurt.testing.driver_suite.lifecycle import LifecycleTests  # noqa: E402
from yurt.testing.driver_suite.many_tasks import BurdenTests  # noqa: E402
from yurt.testing.driver_suite.networks import NetworkTests  # noqa: E402
from yurt.testing.driver_suite.output import OutputTests  # noqa: E402
from yurt.testing.driver_suite.recovery import RecoveryTests  # noqa: E402
from yurt.testing.driver_suite.swaps import SwappedMountTests  # noqa: E402

__all__ = ["Config", "DriverBench", "DriverCases", "DriverFactory", "DriverSuite", "SwappedMountTests"]


class DriverSuite(LifecycleTests, RecoveryTests, OutputTests, CommandTests, NetworkTests, BurdenTests):
    """Subclass it, give `make_driver` and `cases`, and let pytest collect it."""

    @pytest.fixture
    def make_driver(self) -> DriverFactory:
        """Makes the driver under test; a subclass overrides this."""
        pytest.fail("a DriverSuite needs a fixture `make_driver`")

    @pytest.fixture
    def cases(self) -> DriverCases:
        """The driver's cases; a subclass overrides this."""
        pytest.fail("a DriverSuite needs a fixture `cases`")

    @pytest_asyncio.fixture
    async def bench(self, make_driver: DriverFactory, tmp_path: Path) -> AsyncIterator[DriverBench]:
        """A new driver with an empty state folder."""
        bench = DriverBench(make_driver, tmp_path)
        yield bench
        await bench.close()
