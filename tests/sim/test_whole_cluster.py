"""Whole clusters of real agents from a seed: clean under faults, and the same in each run whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest
from yurt.sdk.value import replace
from yurt.testing.sim.plan import FAULTS, FEATURES, draw
from yurt.testing.sim.run import run_plan

SMALL = {"servers": 3, "clients": 2, "users": 2, "active_s": 25.0, "user_pause_s": 1.0, "fault_pause_s": 4.0}


@pytest.mark.timeout(300)
def test_a_small_cluster_under_every_fault_is_clean() -> None:
    report = run_plan(draw(11, **SMALL, features=FEATURES, faults=FAULTS))
    assert not report.problem, report.problem
    assert report.index > 50, "the run did too little"


@pytest.mark.timeout(300)
def test_a_seed_gives_the_same_digest_with_another_hash_seed() -> None:
    plan = replace(draw(5, **SMALL), active_s=12.0)
    program = (
        "import sys, msgspec\n"
        "from yurt.testing.sim.plan import Plan\n"
        "from yurt.testing.sim.run import run_plan\n"
        "report = run_plan(msgspec.json.decode(sys.argv[1], type=Plan))\n"
        "print(report.digest, report.problem)\n"
    )

    command = [sys.executable, "-c", program, msgspec.json.encode(plan).decode()]
    told = [
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        for seed in ("1", "2")
    ]
    assert told[0].stdout == told[1].stdout
    assert told[0].stdout.split()[1:] == []


def test_plans_differ_in_what_they_leave_out() -> None:
    plans = [draw(seed) for seed in range(200)]
    assert all(plan.features and plan.faults for plan in plans)
    for name in FEATURES:
        assert any(name in plan.features for plan in plans) and any(name not in plan.features for plan in plans)
    for name in FAULTS:
        assert any(name in plan.faults for plan in plans) and any(name not in plan.faults for plan in plans)
    assert draw(3) == draw(3) and draw(3) != draw(4)
