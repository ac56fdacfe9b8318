"""`yurt operator snapshot` against fixed answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any


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
    api.answers["/v1/operator/snapshot"] = (400, "the file is no snapshot of Yurt")
    assert "no snapshot of Yurt" in run("operator", "snapshot", "save", str(tmp_path / "x"))[2]
