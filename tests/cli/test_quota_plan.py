"""`yurt quota plan`: whom a quota would affect, on a snapshot file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.sdk.value import UnixNano
from yurt.state import Snapshot
from yurt.storage.archive import write_archive
from yurt.structs import commands as c
from yurt.structs.cluster import Namespace
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.quotas import QUOTAS, quota

SLOT = 1000
"""MHz of one slot; the node has four."""


def job_of(name: str, namespace: str, count: int) -> Job:
    task = factories.task(resources=Resources(cpu=SLOT, memory_mb=10))
    group = factories.group(count=count, tasks=(task,), update=None)
    return factories.job(name, namespace=namespace, type="batch", task_groups=(group,))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Namespace `a` uses a node of four slots whole; a job of two slots of `b` waits."""
    state = Snapshot.empty()
    specs = (quota("a", cpu=4 * SLOT), quota("b", cpu=4 * SLOT))
    jobs = (job_of("borrower", "a", 4), job_of("owner", "b", 2))
    namespaces = tuple(Namespace(name=spec.name, quota=spec.name) for spec in specs)
    made: list[c.AnyCommand] = [
        c.RegisterNode(node=factories.node()), c.UpsertQuotas(quotas=specs), c.UpsertNamespaces(namespaces=namespaces),
        *(c.RegisterJob(job=job) for job in jobs),
    ]  # fmt: skip
    for command in made:
        state = apply(state, command, index=state.index + 1).state
    for job in jobs:
        evaluation = Evaluation(
            id=f"eval-{job.id}", namespace=job.namespace, job_id=job.id, type="batch", triggered_by="job-register",
        )  # fmt: skip
        found = scheduler.attempt(state, evaluation, now=UnixNano(1), seed=1, limits=QUOTAS)
        ended: list[c.AnyCommand] = [
            c.ApplyPlan(plan=found.plan), c.UpsertEvaluations(evaluations=found.outcome.created),
        ]  # fmt: skip
        for command in ended if not found.plan.is_empty else ended[1:]:
            state = apply(state, command, index=state.index + 1).state
    path = tmp_path / "state.snap"
    with path.open("wb") as file:
        write_archive(state, file, version="1")
    return path


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "q.hcl"
    path.write_text(text)
    return str(path)


GUARANTEE = """name = "b"
limit {
  region = "global"
  region_limit { cpu = 4000 }
  guaranteed { cpu = 2000 }
}
"""


def test_a_guarantee_shows_whom_it_takes_from(run: Any, archive: Path, tmp_path: Path) -> None:
    code, out, err = run("quota", "plan", "-snapshot", str(archive), "-json", written(tmp_path, GUARANTEE))
    assert (code, err) == (2, "")
    plan = json.loads(out)
    assert (plan["Name"], plan["IsNew"], plan["Namespaces"], plan["AboveLimit"]) == ("b", False, ["b"], [])
    jobs = {row["JobID"]: (row["RunningBefore"], row["Running"], row["Preempted"]) for row in plan["Jobs"]}
    assert jobs == {"borrower": (4, 2, 2), "owner": (0, 2, 0)}
    _, out, _ = run("quota", "plan", "-snapshot", str(archive), written(tmp_path, GUARANTEE))
    assert "b (changed)" in out and "4 -> 2" in out


def test_a_limit_below_use_ends_nothing_and_says_so(run: Any, archive: Path, tmp_path: Path) -> None:
    text = 'name = "a"\nlimit {\n  region = "global"\n  region_limit { cpu = 3000 }\n}\n'
    code, out, _ = run("quota", "plan", "-snapshot", str(archive), written(tmp_path, text))
    assert code == 0 and "cpu: 4000 used, 3000 allowed" in out and "Nothing of it ends" in out


def test_what_apply_would_refuse_is_refused_at_its_place(run: Any, archive: Path, tmp_path: Path) -> None:
    text = GUARANTEE.replace('name = "b"', 'name = "b"\nparent = "none"')
    code, _, err = run("quota", "plan", "-snapshot", str(archive), written(tmp_path, text))
    assert code == 1 and "q.hcl:2" in err and 'quota "none" does not exist' in err


def test_the_region_is_that_of_the_quotas_unless_there_are_several(run: Any, archive: Path, tmp_path: Path) -> None:
    other = GUARANTEE.replace('"global"', '"eu"')
    code, _, err = run("quota", "plan", "-snapshot", str(archive), written(tmp_path, other))
    assert code == 1 and "regions eu, global: choose one with -region" in err
    code, out, _ = run("quota", "plan", "-snapshot", str(archive), "-region", "eu", "-json", written(tmp_path, other))
    assert code == 2 and [row["Preempted"] for row in json.loads(out)["Jobs"] if row["JobID"] == "borrower"] == [2]
