"""mock_driver does what every driver does."""

from __future__ import annotations

import pytest
from yurt.testing.driver_suite import DriverCases, DriverFactory, DriverSuite
from yurt_driver_mock.config import PluginOptions
from yurt_driver_mock.driver import MockDriver


class TestMock(DriverSuite):
    @pytest.fixture
    def make_driver(self) -> DriverFactory:
        return lambda context: MockDriver(PluginOptions())

    @pytest.fixture
    def cases(self) -> DriverCases:
        return DriverCases(
            ends=lambda code: {"exit_code": code},
            runs={"run_for": "1h"},
            prints=lambda text: {"stdout_string": text},
            floods=lambda size: {"run_for": "500ms", "stdout_string": "x" * 49 + "\n", "stdout_repeat": size // 50},
            ignores_signals={"run_for": "1h", "kill_after": "1h"},
            cannot_start={"start_error": "the disk is on fire"},
            start_error="the disk is on fire",
            executes={"run_for": "1h", "exec_command": {"stdout_string": "inside\n", "exit_code": 4}},
            has_shell=False,
            uses_resources=False,
            leaves_traces=False,
        )
