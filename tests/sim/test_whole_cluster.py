"""Whole clusters of real agents from a seed: clean under faults, and the same in each run whatever the hash seed."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys

import msgspec
import pytest
from yurt.sdk.value import replace
from yurt.testing.nightly import is_nightly
from yurt.testing.sim.plan import (
    CSI_FEATURES,
    FAULTS,
    FEATURES,
    LATE_FAULTS,
    LATER_FEATURES,
    NEWEST_FEATURES,
    OF_CSI,
    RARE_FEATURES,
    draw,
)
from yurt.testing.sim.run import report_text, run_plan
from yurt.testing.sim.seeded_bugs import BUGS

SMALL = {"servers": 3, "clients": 2, "users": 2, "active_s": 25.0, "user_pause_s": 1.0, "fault_pause_s": 4.0}
OF_SERVERS = tuple(each for each in FAULTS if "client" not in each and not each.startswith("driver"))
TODAY = datetime.date.today().toordinal()
SEEDS = range(100) if is_nightly() else (739950, TODAY)
"""One that found a bug, and a new one each day; a failure prints the command that replays it."""


@pytest.mark.timeout(300)
def test_a_small_cluster_under_every_fault_is_clean() -> None:
    report = run_plan(draw(11, **SMALL, features=FEATURES, faults=FAULTS, has_acl=True))
    assert not report.problem, report_text(report)
    assert report.index > 50, "the run did too little"


@pytest.mark.timeout(300)
def test_clients_that_return_when_they_are_given_up_and_jobs_with_checkpoints_leave_it_clean() -> None:
    fixed = SMALL | {"active_s": 45.0, "failover_ttl_s": 15.0, "rest_slow_s": 0.5, "turn_s": 0.002, "schedulers": 2}
    features = ("service", "batch", "disconnect", "checkpoint", "evaluate", "scale", "alloc-stop")
    report = run_plan(draw(3, **fixed, features=features, faults=(*LATE_FAULTS, "etcd-slow")))
    assert not report.problem, report_text(report)
    lost = sum(report.coverage[f"change nodes ready {each}"] for each in ("down", "disconnected"))
    assert lost and report.coverage["change allocs pending running"] > 4


@pytest.mark.timeout(300)
def test_workers_of_followers_place_nothing_twice() -> None:
    """The seed that found that a follower attempted a job's evaluation without the plan of the one before."""
    report = run_plan(draw(10, **BUGS["follower-lacks-the-last-plan"].plan))
    assert not report.problem, report_text(report)


@pytest.mark.timeout(300)
def test_answers_are_explained_by_some_order_while_servers_fail() -> None:
    features = ("service", "lists", "histories")
    fixed = SMALL | {"active_s": 12.0, "has_acl": True, "history_pause_s": 2.0}
    report = run_plan(draw(7, **fixed, features=features, faults=OF_SERVERS))
    assert not report.problem, report_text(report)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: "today" if seed == TODAY else str(seed))
def test_a_drawn_seed_is_clean(seed: int) -> None:
    report = run_plan(draw(seed, **SMALL))
    assert not report.problem, report_text(report)


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
    for name in (*FEATURES, *LATER_FEATURES, *NEWEST_FEATURES, *RARE_FEATURES, *CSI_FEATURES):
        assert any(name in plan.features for plan in plans) and any(name not in plan.features for plan in plans)
    for name in (*FAULTS, *LATE_FAULTS, *OF_CSI):
        assert any(name in plan.faults for plan in plans) and any(name not in plan.faults for plan in plans)
    assert {plan.splits_job_types for plan in plans} == {True, False}
    assert draw(3) == draw(3) and draw(3) != draw(4)
