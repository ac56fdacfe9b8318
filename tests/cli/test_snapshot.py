"""`yurt operator snapshot` against fixed answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from yurt.api.encode import to_wire
from yurt.sdk.value import replace
from yurt.server.log.restore import RestoredAccess
from yurt.state import Snapshot, Tables
from yurt.storage.archive import write_archive
from yurt.structs.variable import EncryptedVariable, VariableLock
from yurt.structs.volumes.csi import CSIVolume
from yurt.testing import factories


def test_an_archive_without_a_fitting_digest_is_not_written(api: Any, run: Any, tmp_path: Path) -> None:
    api.answers["/v1/operator/snapshot"] = b"archive"
    code, _, err = run("operator", "snapshot", "save", str(tmp_path / "a.snap"))
    assert code == 1
    assert "damaged on its way" in err
    assert not (tmp_path / "a.snap").exists()


def test_a_missing_file_is_told(run: Any, tmp_path: Path) -> None:
    code, _, err = run("operator", "snapshot", "restore", str(tmp_path / "none"))
    assert (code, err) == (1, f"{tmp_path / 'none'}: cannot be read: No such file or directory\n")


def test_what_the_agent_refuses_is_told(api: Any, run: Any, tmp_path: Path) -> None:
    api.answers["/v1/operator/snapshot"] = (400, "the file is not a snapshot of Yurt")
    assert "not a snapshot of Yurt" in run("operator", "snapshot", "save", str(tmp_path / "x"))[2]


def test_a_file_that_is_no_snapshot_is_named_with_its_fault(api: Any, run: Any, tmp_path: Path) -> None:
    fault = "the file is not a snapshot of Yurt: it is text"
    api.answers["/v1/operator/snapshot"] = (400, fault)
    (tmp_path / "x").write_text("{}")
    code, _, err = run("operator", "snapshot", "restore", str(tmp_path / "x"))
    assert code == 1 and f"{tmp_path}/x: {fault}\n" in err


def test_a_restore_names_what_it_changed_in_access_control(api: Any, run: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.snap"
    file.write_text("{}")
    api.answers["/v1/operator/snapshot"] = b""
    assert run("operator", "snapshot", "restore", str(file)) == (0, "Snapshot Restored\n", "")
    named = RestoredAccess(acl_tokens=("t1", "t2"), acl_policies=("ops",), count=1203)
    api.answers["/v1/operator/snapshot"] = {"RestoredAccess": to_wire(named)}
    lines = run("operator", "snapshot", "restore", str(file))[1].splitlines()
    assert lines[2:] == [
        "Warning: 1203 objects of access control are as they were in the snapshot.",
        "Revoke or change what must not be valid:",
        "  tokens that became valid: t1, t2",
        "  policies: ops",
    ]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A snapshot with secrets of a node, a volume and a lock."""
    edit = Snapshot.empty().edit(40)
    node = replace(factories.node(), name="one", secret_id="of-the-node")
    edit.put(Tables.nodes, node.id, node)
    for name in ("web", "batch"):
        job = factories.job(name)
        edit.put(Tables.jobs, job.key, job)
    edit.put(Tables.csi_volumes, ("default", "data"), CSIVolume(id="data", secrets={"password": "of-the-volume"}))
    lock = VariableLock(id="of-the-lock")
    edit.put(Tables.variables, ("default", "a/b"), EncryptedVariable(path="a/b", data=b"sealed", lock=lock))
    path = tmp_path / "a.snap"
    with path.open("wb") as file:
        write_archive(edit.commit(), file, version="1", term=7)
    return path


def test_the_term_of_a_snapshot_is_shown(run: Any, archive: Path) -> None:
    facts = json.loads(run("operator", "snapshot", "inspect", "-json", str(archive))[1])
    assert (facts["ID"], facts["Index"], facts["Term"]) == ("7-40", 40, 7)
    assert "Term    = 7\n" in run("operator", "snapshot", "inspect", str(archive))[1]


def test_the_state_in_a_snapshot_is_printed_without_secrets(run: Any, archive: Path) -> None:
    code, out, err = run("operator", "snapshot", "state", str(archive))
    found = json.loads(out)
    assert (code, err, found["Index"]) == (0, "", 40)
    assert sorted(row["ID"] for row in found["Jobs"]) == ["batch", "web"]
    assert found["Nodes"][0]["Name"] == "one" and found["Variables"][0]["Path"] == "a/b"
    assert found["CSIVolumes"][0]["Secrets"] == {"password": "<hidden>"}
    assert "of-the-" not in out


def test_rows_of_a_snapshot_are_chosen_by_filters(run: Any, archive: Path) -> None:
    words = ("operator", "snapshot", "state", "-filter", 'ID == "web"', "-filter", 'Type == "service"')
    code, out, _ = run(*words, str(archive))
    assert code == 0
    assert {name: len(rows) for name, rows in json.loads(out).items() if name != "Index"} == {"Jobs": 1}
    code, _, err = run("operator", "snapshot", "state", "-filter", "Nonsense == 1", str(archive))
    assert code == 1 and "Nonsense" in err
    code, _, err = run("operator", "snapshot", "state", "-filter", "(", str(archive))
    assert code == 1 and "failed to read filter expression" in err


def test_a_file_that_is_no_snapshot_has_no_state(run: Any, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing")
    for path, text in ((tmp_path / "x", "is not a snapshot of Yurt"), (tmp_path / "y", "cannot be read: No such file")):
        code, out, err = run("operator", "snapshot", "state", str(path))
        assert (code, out) == (1, "") and text in err
