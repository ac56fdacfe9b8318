"""A dev agent that was killed leaves a folder; the next one removes it, and never that of a living agent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from yurt.agent.data_dir import open_data_dir, remove_left_behind
from yurt.storage.data_dir import DataDir as OwnedFolder


def dead_folder(folder: Path, name: str) -> Path:
    """A data directory whose owner has died."""
    root = folder / name
    OwnedFolder(root).close()
    (root / "alloc").mkdir()
    (root / "alloc" / "file").write_text("x")
    return root


def test_folders_of_dead_agents_are_removed(tmp_path: Path) -> None:
    dead, other = dead_folder(tmp_path, "yurt-dev-dead"), dead_folder(tmp_path, "mine")
    remove_left_behind(tmp_path)
    assert not dead.exists()
    assert (other / "alloc" / "file").exists()


def test_the_folder_of_a_living_agent_stays(tmp_path: Path) -> None:
    living = tmp_path / "yurt-dev-living"
    hold = (
        "import sys; from pathlib import Path; from yurt.storage.data_dir import DataDir;"
        "held = DataDir(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(living)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == b"held\n"
        remove_left_behind(tmp_path)
        assert (living / "lock").exists()
        owner.kill()
        owner.wait()
    remove_left_behind(tmp_path)
    assert not living.exists()


def test_a_folder_that_just_begins_stays(tmp_path: Path) -> None:
    (tmp_path / "yurt-dev-new").mkdir()
    (tmp_path / "yurt-dev-newer").mkdir()
    (tmp_path / "yurt-dev-newer" / "lock").touch()
    remove_left_behind(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_an_agent_that_just_begins_is_not_kept_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "yurt-dev-new"
    root.mkdir()
    (root / "lock").touch()
    taken = []

    def look_while_it_takes_its_folder(file: int, length: int, offset: int) -> bytes:
        monkeypatch.undo()
        taken.append(OwnedFolder(root))
        return os.pread(file, length, offset)

    monkeypatch.setattr(os, "pread", look_while_it_takes_its_folder)

    remove_left_behind(tmp_path)

    assert (root / "lock").read_text() == f"{os.getpid()}\n"
    taken[0].close()


def test_what_is_mounted_or_linked_is_left_alone(tmp_path: Path) -> None:
    target = dead_folder(tmp_path, "elsewhere")
    os.symlink(target, tmp_path / "yurt-dev-link")
    mounted = dead_folder(tmp_path, "yurt-dev-mounted")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / {mounted}/alloc/volume rw - tmpfs none rw\n")
    remove_left_behind(tmp_path, str(mounts))
    assert (target / "lock").exists() and (mounted / "lock").exists()


def test_a_new_temporary_folder_clears_the_old_ones_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = dead_folder(tmp_path, "yurt-dev-dead")
    opened = open_data_dir("")
    assert not dead.exists() and opened.root.parent == tmp_path
    opened.close()
    assert not opened.root.exists()
