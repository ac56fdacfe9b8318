"""exec does what every driver does, in real containers of runc."""

from __future__ import annotations

import os
import shutil
import sys

import pytest
from yurt.sdk.executor import ContainerExecutor
from yurt.testing.driver_suite import Config, DriverCases, DriverFactory, DriverSuite
from yurt_driver_exec.driver import exec_driver

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="isolation needs Linux"),
    pytest.mark.skipif(os.geteuid() != 0, reason="isolation takes root"),
    pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed (apt install runc)"),
]


def shell(script: str) -> Config:
    """A task that runs a shell script."""
    return {"command": "sh", "args": ["-c", script]}


WAITS = shell("trap 'exit 9' TERM INT; while true; do sleep 0.1; done")


class TestExec(DriverSuite):
    @pytest.fixture
    def make_driver(self) -> DriverFactory:
        return lambda context: exec_driver(context, ContainerExecutor.from_context(context))

    @pytest.fixture
    def cases(self) -> DriverCases:
        return DriverCases(
            ends=lambda code: shell(f"exit {code}"),
            runs=WAITS,
            prints=lambda text: shell(f"echo {text}"),
            floods=lambda size: shell(f"i=0; while [ $i -lt {size // 50} ]; do printf '%049d\\n' $i; i=$((i+1)); done"),
            ignores_signals=shell("trap '' TERM INT; echo deaf; while true; do sleep 1; done"),
            ignores_when="deaf",
            cannot_start={"command": "/no/such/command"},
            start_error='cannot run the command "/no/such/command"',
            executes=WAITS,
            catches=shell("trap 'echo caught' HUP; echo ready; while true; do sleep 0.1; done"),
            many=50,
        )
