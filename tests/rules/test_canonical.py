"""The API's defaults: what is filled in, what is inherited, and what is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from yurt.rules.canonical import canonicalize_job

SECOND = 10**9
CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "jobspecs"


def job_with(task: dict[str, Any] | None = None, group: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    tasks = [{"Name": "t", **(task or {})}]
    return {"ID": "j", "TaskGroups": [{"Name": "g", "Tasks": tasks, **(group or {})}], **fields}


def group_of(job: dict[str, Any]) -> dict[str, Any]:
    group: dict[str, Any] = canonicalize_job(job)["TaskGroups"][0]
    return group


def task_of(job: dict[str, Any]) -> dict[str, Any]:
    task: dict[str, Any] = group_of(job)["Tasks"][0]
    return task


def test_a_bare_job_gets_its_defaults() -> None:
    job = canonicalize_job(job_with())
    assert (job["Name"], job["Type"], job["Region"], job["Priority"]) == ("j", "service", "global", 50)
    assert job["Update"]["MaxParallel"] == 1
    group = job["TaskGroups"][0]
    assert (group["Count"], group["EphemeralDisk"]["SizeMB"], group["RestartPolicy"]["Attempts"]) == (1, 300, 2)
    task = group["Tasks"][0]
    assert (task["Resources"]["CPU"], task["Resources"]["MemoryMB"], task["KillTimeout"]) == (100, 300, 5 * SECOND)


def test_the_argument_is_left_alone_and_a_second_pass_changes_nothing() -> None:
    job = job_with()
    before = json.dumps(job)
    once = canonicalize_job(job)
    assert json.dumps(job) == before
    assert canonicalize_job(once) == once


@pytest.mark.parametrize(
    ("kind", "attempts", "unlimited", "migrates"),
    [("service", 2, True, True), ("batch", 3, False, False), ("system", 2, None, False), ("sysbatch", 3, None, False)],
)
def test_policies_depend_on_the_type(kind: str, attempts: int, unlimited: bool | None, migrates: bool) -> None:
    group = group_of(job_with(Type=kind))
    assert group["RestartPolicy"]["Attempts"] == attempts
    assert (group.get("ReschedulePolicy") or {}).get("Unlimited") == unlimited
    assert (group.get("Migrate") is not None) == migrates


def test_policies_are_inherited_field_by_field() -> None:
    job = job_with(group={"Update": {"Canary": 1}, "RestartPolicy": {"Attempts": 9}}, Update={"MaxParallel": 3})
    group = group_of(job)
    assert (group["Update"]["MaxParallel"], group["Update"]["Canary"]) == (3, 1)
    assert group["Tasks"][0]["RestartPolicy"]["Attempts"] == 9


def test_reserved_cores_replace_the_default_cpu() -> None:
    assert task_of(job_with({"Resources": {"Cores": 2}}))["Resources"]["CPU"] == 0


def test_the_minimum_of_scaling_is_the_count() -> None:
    group = group_of(job_with(group={"Scaling": {"Min": 4, "Max": 9}}))
    assert (group["Count"], group["Scaling"]["Enabled"]) == (4, True)


def test_artifacts_templates_and_vault_are_completed() -> None:
    task = task_of(
        job_with(
            {
                "Artifacts": [{"GetterSource": "https://x/a.tgz", "GetterMode": "file", "GetterOptions": {}}],
                "Templates": [{"ChangeMode": "signal", "ChangeSignal": "sigusr1"}, {}],
                "Vault": {},
            }
        )
    )
    assert task["Artifacts"][0]["RelativeDest"] == "local/a.tgz"
    assert task["Artifacts"][0]["GetterOptions"] is None
    assert [item["ChangeSignal"] for item in task["Templates"]] == ["SIGUSR1", ""]
    assert (task["Vault"]["Cluster"], task["Vault"]["ChangeMode"]) == ("default", "restart")


def test_services_are_named_and_checks_inherit() -> None:
    service = {"CheckRestart": {"Limit": 2}, "Checks": [{"Type": "tcp"}]}
    completed = task_of(job_with({"Services": [service]}))["Services"][0]
    assert (completed["Name"], completed["Provider"]) == ("j-g-t", "consul")
    assert completed["Checks"][0]["CheckRestart"] == {"Limit": 2, "Grace": SECOND, "IgnoreWarnings": False}


def pruned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: pruned(item) for key, item in value.items() if item is not None}
    return [pruned(item) for item in value] if isinstance(value, list) else value


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus of job files in ../shared beside the checkout")
def test_every_job_of_the_corpus_is_canonicalized_as_expected() -> None:
    for gold in sorted(CORPUS.glob("*/*.canon.json")):
        expected = json.loads(gold.read_text())
        given = json.loads(gold.with_name(gold.name.replace(".canon", "")).read_text())
        assert pruned(canonicalize_job(given.get("Job", given))) == pruned(expected.get("Job", expected)), gold.name
