"""Whether any job has a scaling policy is known without a look at every job."""

from __future__ import annotations

from typing import cast

import pytest
from yurt.access import Access
from yurt.sdk.value import replace
from yurt.server.views.jobs import JobRows
from yurt.state import Snapshot, Tables
from yurt.state.persistent_table import Table
from yurt.structs.job import Job
from yurt.structs.task import ScalingPolicy
from yurt.testing import factories

JOBS = 50


def with_jobs(state: Snapshot, *jobs: Job) -> Snapshot:
    edit = state.edit(state.index + 1)
    for job in jobs:
        edit.put(Tables.jobs, job.key, job)
    return edit.commit()


def has_policies(state: Snapshot) -> bool:
    return JobRows(state, cast(Access, None)).has_policies  # All jobs count, whoever asks.


def test_whether_a_job_has_a_policy_costs_no_look_at_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [replace(factories.job(), id=f"job-{number}") for number in range(JOBS)]
    (group,) = plain[0].task_groups
    scaled = replace(plain[0], task_groups=(group, replace(group, name="scaled", scaling=ScalingPolicy(max=3))))
    states = [with_jobs(Snapshot.empty(), *plain)]
    for job in (scaled, replace(scaled, stop=True), plain[0]):
        states.append(with_jobs(states[-1], job))
    monkeypatch.setattr(Table, "values", lambda _: pytest.fail("all rows are read"))

    assert [has_policies(state) for state in states] == [False, True, True, False]
