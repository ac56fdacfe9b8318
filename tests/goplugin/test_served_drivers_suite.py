"""Our drivers, offered over Nomad's plugin protocol and driven over it, do what every driver does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from yurt.goplugin.driver import BinaryDriver, DriverFacts, ask_facts
from yurt.goplugin.plugin import BinaryPlugin
from yurt.goplugin.process import PluginSpec
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import PluginContext
from yurt.testing.driver_suite import DriverBench, DriverCases, DriverFactory, DriverSuite
from yurt.testing.driver_suite.lifecycle import LifecycleTests
from yurt.testing.driver_suite.output import OutputTests
from yurt.testing.driver_suite.recovery import RecoveryTests

FACTS: dict[str, DriverFacts] = {}


class Served:
    """A plugin process of its own for each test."""

    name: str
    config: dict[str, Any] = {}  # noqa: RUF012 - a constant of the subclass

    @pytest.fixture
    async def make_driver(self, serve_script: Callable[[str], str], tmp_path: Path) -> DriverFactory:
        path = serve_script(self.name)
        spec = PluginSpec(name=self.name, path=path, folder=str(tmp_path / "host"), config=self.config)
        if self.name not in FACTS:
            plugin = BinaryPlugin(spec, RealEnv())
            await plugin.connect()
            FACTS[self.name] = await ask_facts(plugin)
            await plugin.close(keeps_process=False)

        def make(_context: PluginContext) -> BinaryDriver:
            plugin = BinaryPlugin(spec, RealEnv())
            plugin.background.start("connect", plugin.connect)
            return BinaryDriver(plugin, RealEnv(), FACTS[self.name])

        return make

    @pytest_asyncio.fixture
    async def bench(self, make_driver: DriverFactory, tmp_path: Path) -> AsyncIterator[DriverBench]:
        bench = DriverBench(make_driver, tmp_path)
        yield bench
        await bench.close()

    async def test_a_task_outlives_an_agent_that_is_killed(self) -> None:
        pytest.skip("gRPC does not work across a fork; e2e/test_go_plugins.py kills a whole agent instead")


class TestServedMock(Served, LifecycleTests, RecoveryTests, OutputTests):
    name = "mock_driver"

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


def shell(script: str) -> dict[str, Any]:
    return {"command": "/bin/sh", "args": ["-c", script]}


class TestServedRawExec(Served, DriverSuite):
    name = "raw_exec"
    config = {"enabled": True}  # noqa: RUF012 - a constant

    @pytest.fixture
    def cases(self) -> DriverCases:
        return DriverCases(
            ends=lambda code: shell(f"exit {code}"),
            runs={"command": "sleep", "args": ["3600"]},
            prints=lambda text: shell(f"echo '{text}'"),
            floods=lambda size: shell(f"for i in $(seq {size // 50}); do echo {'x' * 49}; done"),
            ignores_signals=shell("trap '' TERM INT; echo deaf; while :; do sleep 0.2; done"),
            ignores_when="deaf",
            cannot_start={"command": "/no/such/program"},
            start_error="/no/such/program",
            executes={"command": "sleep", "args": ["3600"]},
        )
