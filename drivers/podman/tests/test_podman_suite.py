"""podman does what every driver does."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import replace
from yurt.testing.driver_suite import Config, DriverCases, DriverFactory, DriverSuite
from yurt_driver_podman.plugin import yurt_task_drivers

IMAGE = "localhost/yurt-test/busybox:1"


def shell(script: str) -> Config:
    """A task that runs a shell script."""
    return {"image": IMAGE, "command": "sh", "args": ["-c", script], "network_mode": "none"}


class TestPodman(DriverSuite):
    @pytest.fixture
    def make_driver(self, engine: Any) -> DriverFactory:
        config = {"socket_path": str(engine.socket)}
        return lambda context: yurt_task_drivers(replace(context, config=config))[0]

    @pytest.fixture
    def cases(self) -> DriverCases:
        return DriverCases(
            ends=lambda code: shell(f"exit {code}"),
            runs=shell("trap 'exit 1' TERM; while true; do sleep 0.1; done"),
            joins={"image": IMAGE, "command": "sleep", "args": ["1000"]},
            prints=lambda text: shell(f"echo {text}"),
            floods=lambda size: shell(f"i=0; while [ $i -lt {size // 50} ]; do printf '%049d\\n' $i; i=$((i+1)); done"),
            ignores_signals=shell("trap '' TERM INT; echo deaf; while true; do sleep 1; done"),
            ignores_when="deaf",
            cannot_start={"image": IMAGE, "command": "/no/such/command"},
            start_error="/no/such/command",
            executes=shell("exec sleep 1000"),
            catches=shell("trap 'echo caught' HUP; echo ready; while true; do sleep 0.1; done"),
            many=20,
        )
