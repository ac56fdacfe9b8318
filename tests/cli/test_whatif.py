"""`yurt whatif` on a snapshot file and on a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.value import replace
from yurt.state import Snapshot, Tables
from yurt.storage.archive import write_archive
from yurt.testing import factories

JOB = """
job "train" {
  type = "batch"
  group "g" {
    count = %d
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        cpu    = 1000
        memory = 64
      }
    }
  }
}
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A cluster of one node with room for four allocations of the job."""
    edit = Snapshot.empty().edit(40)
    node = replace(factories.node(factories.number_id(1)), name="one")
    edit.put(Tables.nodes, node.id, node)
    path = tmp_path / "state.snap"
    with path.open("wb") as file:
        write_archive(edit.commit(), file, version="1")
    return path


@pytest.fixture
def job(tmp_path: Path) -> Any:
    def made(count: int) -> str:
        path = tmp_path / f"train-{count}.nomad.hcl"
        path.write_text(JOB % count)
        return str(path)

    return made


def test_a_job_that_fits_makes_nothing_worse(run: Any, archive: Path, job: Any) -> None:
    code, out, err = run("whatif", "-snapshot", str(archive), "-job", job(4), "-json")
    assert (code, err) == (0, "")
    (row,) = json.loads(out)["Jobs"]
    assert (row["JobID"], row["Running"], row["Waiting"], row["Worse"]) == ("train", 4, 0, False)


def test_a_job_that_waits_is_worse_and_told_why(run: Any, archive: Path, job: Any) -> None:
    code, out, _ = run("whatif", "-snapshot", str(archive), "-job", job(6))
    assert code == 2
    assert "train" in out
    assert "cpu exhausted on 1 node" in out
    assert run("whatif", "-snapshot", str(archive), "-job", job(6), "-add", "1:one")[0] == 0


def test_the_state_of_the_cluster_is_asked_for(api: Any, run: Any, archive: Path) -> None:
    api.answers["/v1/operator/snapshot"] = archive.read_bytes()
    api.answers["/v1/regions"] = ["global"]
    code, out, err = run("whatif", "-lose", "one")
    assert (code, out, err) == (0, "No job would run otherwise, and none waits\n", "")
    api.answers["/v1/operator/snapshot"] = (403, "Permission denied")
    code, _, err = run("whatif")
    assert code == 1
    assert "Permission denied" in err


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("-lose", "none"), "-lose none: there is no such node"),
        (("-add", "one"), "-add one: write COUNT:NODE"),
        (("-add", "\u00b2:one"), "write COUNT:NODE"),
        (("-add", "0:one"), "0 nodes cannot be added"),
        (("-job", "missing.hcl"), "there is no such file"),
        (("-quota", "missing.hcl"), "missing.hcl"),
    ],
)
def test_what_is_wrong_is_said(run: Any, archive: Path, flags: tuple[str, ...], problem: str) -> None:
    code, out, err = run("whatif", "-snapshot", str(archive), *flags)
    assert (code, out) == (1, "")
    assert problem in err


def test_a_file_that_is_no_snapshot_is_told(run: Any, tmp_path: Path) -> None:
    (tmp_path / "x.snap").write_text("no archive")
    assert run("whatif", "-snapshot", str(tmp_path / "x.snap"))[0] == 1
    assert "cannot be read" in run("whatif", "-snapshot", str(tmp_path / "none.snap"))[2]


@pytest.mark.parametrize(
    ("flag", "name", "content", "said"),
    [
        ("-pool", "p.json", {"Name": "default", "BatchQueue": {"Fifo": {}}}, "modifying node pool"),
        ("-pool", "p.json", {"Name": "a b"}, "invalid name"),
        ("-pool", "p.json", {"Name": "gpu", "Idle": {"Window": 1}}, "idle window"),
        ("-pool", "p.json", {"Name": "gpu", "Idle": {"Windw": "2h"}}, "Windw"),
        ("-pool", "p.json", {"Name": "gpu", "BatchQueue": {"FairShare": {"Reservations": 65}}}, "eservations"),
        ("-quota", "q.json", {"Name": "q", "Parent": "none", "Limits": [{"Region": "global"}]}, "none"),
        ("-quota", "q.json", {"Name": "a b", "Limits": []}, "invalid name"),
        ("-job", "j.json", {"ID": "j", "TaskGroups": []}, "Missing job task groups"),
    ],
)
def test_a_file_that_the_server_would_refuse_is_refused(
    run: Any, archive: Path, tmp_path: Path, flag: str, name: str, content: dict[str, Any], said: str
) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(content))
    code, out, err = run("whatif", "-snapshot", str(archive), flag, str(path))
    assert (code, out) == (1, "")
    assert f"{path}: " in err
    assert said in err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('type = "batch"', 'type = "batch"\n  namespace = "gone"', 'in nonexistent namespace "gone"'),
        ('type = "batch"', 'type = "batch"\n  node_pool = "gone"', 'in nonexistent node pool "gone"'),
        ('type = "batch"', 'type = "batch"\n  priority = 5000', "priority must be between [1, 100]"),
        ("count = 1", "count = 200000", "job_max_count"),
        (
            'driver = "raw_exec"',
            'driver = ""',
            "Task group g validation failed: Task t validation failed: Missing task",
        ),
    ],
)
def test_a_job_that_the_servers_would_refuse_is_refused(
    run: Any, archive: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    path = tmp_path / "job.nomad.hcl"
    path.write_text((JOB % 1).replace(old, new))
    code, _, err = run("whatif", "-snapshot", str(archive), "-job", str(path))
    assert (code, said in err) == (1, True), err
    assert all(each.isprintable() or each == "\n" for each in err)


def test_a_job_may_be_in_a_pool_that_is_applied_too(run: Any, archive: Path, tmp_path: Path) -> None:
    path, pool = tmp_path / "job.nomad.hcl", tmp_path / "pool.hcl"
    path.write_text((JOB % 1).replace('type = "batch"', 'type = "batch"\n  node_pool = "new"'))
    pool.write_text('node_pool "new" {\n}\n')
    code, _, err = run("whatif", "-snapshot", str(archive), "-job", str(path), "-pool", str(pool), "-json")
    assert (code, err) == (2, "")


def test_a_redirect_is_no_snapshot(api: Any, run: Any) -> None:
    api.answers["/v1/operator/snapshot"] = (307, "elsewhere")
    code, _, err = run("whatif")
    assert (code, "The agent redirects" in err) == (1, True), err
