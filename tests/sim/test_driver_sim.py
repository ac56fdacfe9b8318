"""`yurt driver sim`: a driver that is right is clean, mistakes of a first try are found, and bad input is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from yurt.sdk.errors import Invalid
from yurt.testing.sim.driver import SimHost
from yurt.testing.sim.foreign.command import faults_of, load
from yurt.testing.sim.foreign.plugins import Foreign

HERE = Path(__file__).parent


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "yurt.cli.main", "driver", "sim", *words]
    return subprocess.run(command, cwd=HERE, env=os.environ, capture_output=True, text=True, check=False)


@pytest.mark.timeout(300)
def test_a_driver_that_is_right_is_clean() -> None:
    done = run("-json", "-runs", "1", "-seconds", "20", "simulated_drivers:RIGHT")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(done.stdout)
    assert not found["problem"] and found["starts"] > 5 and found["faults"]


@pytest.mark.timeout(300)
def test_a_driver_that_lets_stopped_tasks_run_is_found() -> None:
    done = run("-seed", "2", "-runs", "1", "-seconds", "15", "-faults", "kill-client", "simulated_drivers:LEAKY")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "and the servers want stop" in done.stdout
    assert (
        "Repeat it:  yurt driver sim -seed 2 -runs 1 -seconds 15 -faults kill-client simulated_drivers:LEAKY"
        in done.stdout
    )


def test_an_object_that_is_no_driver_is_told() -> None:
    done = run("simulated_drivers:HEALTHY")
    assert done.returncode == 1
    assert "HEALTHY is a str; give a yurt.testing.sim.foreign.drivers.SimulatedDriver or a yurt" in done.stderr


def test_what_a_driver_prints_is_no_result_and_an_early_end_is_told(tmp_path: Path) -> None:
    module = tmp_path / "loud_driver.py"
    module.write_text("import os\nprint('hello')\nos._exit(3)\n")
    command = [sys.executable, "-m", "yurt.cli.main", "driver", "sim", "loud_driver:X"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ended with status 3 after 0 of 5 runs" in done.stderr and "Traceback" not in done.stderr


def test_the_timer_of_a_run_that_was_removed_ends_no_other_with_its_key() -> None:
    timers: list[Any] = []
    loop: Any = SimpleNamespace(time=lambda: 0.0, call_later=lambda _, *call: timers.append(call))
    host = SimHost(loop, "host", 1)
    request: Any = SimpleNamespace(alloc_id="a", task_name="web", namespace="default", job_id="job", mounts=())
    host.begin(request, "key", run_s=1.0, exit_code=0)
    host.crash()
    again = host.begin(request, "key", run_s=3.0, exit_code=0)
    for has_ended, (end, *words) in zip((False, True), timers, strict=True):
        end(*words)
        assert (again.result is not None) == has_ended


@pytest.mark.parametrize(("name", "reason"), [("x", "names no object"), ("no_such:X", "cannot be loaded")])
def test_a_name_that_leads_nowhere_is_told(name: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        load(name)


def test_unknown_faults_are_told_with_the_known_ones() -> None:
    with pytest.raises(Invalid, match="there is no fault earthquake; there are: kill-client, power-client"):
        faults_of(Foreign(), ("earthquake",))
