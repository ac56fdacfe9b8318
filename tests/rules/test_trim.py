"""A trimmed job is small and means the same."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.rules.canonical import canonicalize_job
from yurt.rules.trim import TASKS_MAX, trim_job, without_nulls


def job(**fields: Any) -> dict[str, Any]:
    task = {"Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/true"}}
    return {"ID": "j", "Name": "j", "Type": "service", "TaskGroups": [{"Name": "g", "Tasks": [task]}], **fields}


def test_what_a_person_wrote_comes_back_from_a_canonical_job() -> None:
    assert trim_job(canonicalize_job(job())) == job()


@pytest.mark.parametrize(
    "fields",
    [
        {"Priority": 70, "Meta": {}},
        {"Type": "batch", "Periodic": {"Spec": "@daily", "TimeZone": "UTC"}},
        {"Update": {"MaxParallel": 3}, "Reschedule": {"Delay": 7 * 10**9}},
        {"Type": "system", "Datacenters": ["*"], "AllAtOnce": False},
        {"Multiregion": {"Regions": [{"Name": "a", "Count": 1}]}},
    ],
)
def test_a_trimmed_job_means_the_same(fields: dict[str, Any]) -> None:
    canonical = canonicalize_job(job(**fields))
    trimmed = trim_job(canonical)

    assert without_nulls(canonicalize_job(trimmed)) == without_nulls(canonical)
    assert len(str(trimmed)) < len(str(canonical))


def test_a_group_that_differs_from_its_job_says_so() -> None:
    whole = job(Update={"MaxParallel": 3})
    whole["TaskGroups"][0]["Update"] = {"MaxParallel": 1}

    trimmed = trim_job(canonicalize_job(whole))

    assert trimmed["Update"] == {"MaxParallel": 3}
    assert trimmed["TaskGroups"][0]["Update"] == {"MaxParallel": 1}


def test_a_very_large_job_is_left_alone() -> None:
    tasks = [{"Name": f"t{n}", "Driver": "raw_exec"} for n in range(TASKS_MAX + 1)]
    whole = canonicalize_job(job(TaskGroups=[{"Name": "g", "Tasks": tasks}]))

    assert trim_job(whole) == without_nulls(whole)


def test_the_job_itself_stays_as_it_is() -> None:
    whole = canonicalize_job(job())
    before = str(whole)

    trim_job(whole)

    assert str(whole) == before
