"""raw_exec does what every driver does."""

from __future__ import annotations

import pytest
from yurt.sdk.executor import ProcessExecutor
from yurt.sdk.value import replace
from yurt.testing.driver_suite import Config, DriverCases, DriverFactory, DriverSuite
from yurt_driver_raw_exec.config import plugin_config
from yurt_driver_raw_exec.driver import raw_exec_driver


def shell(script: str) -> Config:
    """A task that runs a shell script."""
    return {"command": "sh", "args": ["-c", script]}


class TestRawExec(DriverSuite):
    @pytest.fixture
    def make_driver(self) -> DriverFactory:
        return lambda context: raw_exec_driver(
            plugin_config(replace(context, config={"enabled": True})), ProcessExecutor.from_context(context)
        )

    @pytest.fixture
    def cases(self) -> DriverCases:
        return DriverCases(
            ends=lambda code: shell(f"exit {code}"),
            runs={"command": "sleep", "args": ["1000"]},
            prints=lambda text: shell(f"echo {text}"),
            floods=lambda size: shell(f"i=0; while [ $i -lt {size // 50} ]; do printf '%049d\\n' $i; i=$((i+1)); done"),
            ignores_signals=shell("trap '' TERM INT; echo deaf; while true; do sleep 1; done"),
            ignores_when="deaf",
            cannot_start={"command": "/no/such/command"},
            start_error='"/no/such/command": No such file or directory (ENOENT)',
            executes={"command": "sleep", "args": ["1000"]},
            catches=shell("trap 'echo caught' HUP; echo ready; while true; do sleep 0.1; done"),
        )
