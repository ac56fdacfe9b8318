"""docker does what every driver does."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import replace
from yurt.testing.driver_suite import Config, DriverCases, DriverFactory, DriverSuite
from yurt_driver_docker.plugin import yurt_task_drivers

IMAGE = "yurt-test/busybox:1"


def shell(script: str) -> Config:
    """A task that runs a shell script."""
    return {"image": IMAGE, "command": "sh", "args": ["-c", script]}


class TestDocker(DriverSuite):
    @pytest.fixture
    def make_driver(self, engine: Any) -> DriverFactory:
        return lambda context: yurt_task_drivers(replace(context, config={"endpoint": engine.endpoint}))[0]

    @pytest.fixture
    def cases(self) -> DriverCases:
        return DriverCases(
            ends=lambda code: shell(f"exit {code}"),
            runs={"image": IMAGE, "command": "sleep", "args": ["1000"], "init": True},
            prints=lambda text: shell(f"echo {text}"),
            floods=lambda size: shell(f"i=0; while [ $i -lt {size // 50} ]; do printf '%049d\\n' $i; i=$((i+1)); done"),
            ignores_signals=shell("trap '' TERM INT; echo deaf; while true; do sleep 1; done"),
            ignores_when="deaf",
            cannot_start={"image": IMAGE, "command": "/no/such/command"},
            start_error="/no/such/command",
            executes={"image": IMAGE, "command": "sleep", "args": ["1000"]},
            catches=shell("trap 'echo caught' HUP; echo ready; while true; do sleep 0.1; done"),
            many=20,
        )
