"""`operator raft info`, `logs`, `recover` and `state`: the log of a server that does not run."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from yurt.fsm import apply, snapshot
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.storage import snapshot_files
from yurt.storage.sqlite import SqliteLog
from yurt.structs.cluster import Namespace
from yurt.structs.commands import KeepAlive, RegisterNode, StageRestore, UpsertNamespaces
from yurt.testing import factories

COMMANDS = (
    UpsertNamespaces(namespaces=(Namespace(name="shop"),)),
    RegisterNode(node=replace(factories.node(), secret_id="of-the-node")),
    StageRestore(restore_id="r", number=0, data=b"of-the-state"),
    UpsertNamespaces(namespaces=(Namespace(name="late"),)),
)


async def written(path: Path, *, trims: bool) -> None:
    log = SqliteLog(path)
    await log.open()
    await log.append(1, COMMANDS[:3])
    await log.append(4, COMMANDS[3:])
    if trims:
        state = Snapshot.empty()
        for index, command in enumerate(COMMANDS, 1):
            state = apply(state, command, index=index).state
        await log.save_snapshot(4, snapshot.encode(state))
        await log.append(5, (KeepAlive(),))
        await log.save_snapshot(5, snapshot.encode(apply(state, KeepAlive(), index=5).state))
        await log.trim(5, keep=0)
    await log.close()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """That of a server by itself which has stopped."""
    asyncio.run(written(tmp_path / "server" / "log.db", trims=False))
    return tmp_path


def names(out: str) -> set[str]:
    return {row["Name"] for row in json.loads(out)["Namespaces"]}


def test_the_bounds_of_a_log_are_shown(run: Any, data_dir: Path) -> None:
    code, out, err = run("operator", "raft", "info", str(data_dir))
    path = data_dir / "server" / "log.db"
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"path:           {path}",
        "length:         4",
        "first index:    1",
        "last index:     4",
        "snapshot index: 0",
    ]


def test_the_commands_of_a_log_are_printed_without_secrets(run: Any, data_dir: Path) -> None:
    code, out, _ = run("operator", "raft", "logs", str(data_dir))
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(row["Index"], row["Type"]) for row in rows] == [
        (1, "UpsertNamespaces"),
        (2, "RegisterNode"),
        (3, "StageRestore"),
        (4, "UpsertNamespaces"),
    ]
    assert rows[1]["Command"]["Node"]["SecretID"] == "<hidden>" and rows[2]["Command"]["Data"] == "<12 bytes>"
    pretty = run("operator", "raft", "logs", "-pretty", str(data_dir / "server"))[1]
    assert pretty.startswith('{\n    "Command": {\n')


def test_the_state_of_a_log_is_that_after_an_index(run: Any, data_dir: Path) -> None:
    code, out, _ = run("operator", "raft", "state", str(data_dir))
    assert (code, json.loads(out)["Index"], names(out)) == (0, 4, {"default", "shop", "late"})
    assert "of-the-" not in out
    code, out, _ = run("operator", "raft", "state", "-last-index=2", str(data_dir))
    assert (code, json.loads(out)["Index"], names(out)) == (0, 2, {"default", "shop"})
    code, _, err = run("operator", "raft", "state", "-last-index=9", str(data_dir))
    assert (code, err) == (1, "The log ends at index 4, before 9\n")


def test_a_state_before_the_newest_snapshot_of_a_trimmed_log_is_gone(run: Any, tmp_path: Path) -> None:
    asyncio.run(written(tmp_path / "server" / "log.db", trims=True))
    code, out, _ = run("operator", "raft", "state", str(tmp_path))
    assert (code, json.loads(out)["Index"], names(out)) == (0, 5, {"default", "shop", "late"})
    code, _, err = run("operator", "raft", "state", "-last-index=2", str(tmp_path))
    assert (code, err) == (1, "The log begins at index 4, and no snapshot is of 2 or before\n")


def test_what_cannot_be_read_is_told(run: Any, tmp_path: Path, data_dir: Path) -> None:
    empty, clustered = tmp_path / "empty", tmp_path / "clustered"
    empty.mkdir()
    (clustered / "server" / "etcd").mkdir(parents=True)
    for word in ("info", "logs", "state"):
        assert "holds no log of a server" in run("operator", "raft", word, str(empty))[2]
        code, _, err = run("operator", "raft", word, str(clustered))
        assert code == 1 and "is in etcd" in err and "operator snapshot save" in err
    assert not any(empty.iterdir())


def test_a_log_in_use_is_left_alone(run: Any, data_dir: Path) -> None:
    async def while_open() -> tuple[int, str, str]:
        log = SqliteLog(data_dir / "server" / "log.db")
        await log.open()
        try:
            return await asyncio.to_thread(run, "operator", "raft", "info", str(data_dir))
        finally:
            await log.close()

    code, _, err = asyncio.run(while_open())
    assert code == 1 and "is in use by another process" in err


def cut_end(path: Path) -> None:
    """The last entry is gone, as when SQLite takes a damaged frame for the end of the log."""
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM entries WHERE first_index = 4")
    connection.close()


def test_a_whole_log_has_nothing_to_recover(run: Any, data_dir: Path) -> None:
    code, out, err = run("operator", "raft", "recover", "-accept-loss", str(data_dir))
    assert (code, err) == (0, "")
    assert "is whole up to index 4; there is nothing to recover" in out


def test_what_a_damaged_log_has_lost_is_shown_and_nothing_is_changed(run: Any, data_dir: Path) -> None:
    cut_end(data_dir / "server" / "log.db")
    code, out, err = run("operator", "raft", "recover", str(data_dir))
    assert (code, err) == (1, "")
    assert "acknowledged:   4" in out
    assert "given up:       1 commands, 4 to 4" in out
    code, _, err = run("operator", "raft", "info", str(data_dir))
    assert code == 1
    assert "command 4 is missing" in err


def test_a_recovered_log_goes_on_above_all_that_was_acknowledged(run: Any, data_dir: Path) -> None:
    path = data_dir / "server" / "log.db"
    cut_end(path)
    code, out, _ = run("operator", "raft", "recover", "-accept-loss", str(data_dir))
    assert code == 0
    assert "the snapshot at index 5" in out
    _, out, _ = run("operator", "raft", "state", str(data_dir))
    assert names(out) == {"default", "shop"}
    code, out, _ = run("operator", "raft", "info", str(data_dir))
    assert (code, out.splitlines()[3:]) == (0, ["last index:     5", "snapshot index: 5"])
    assert (data_dir / "server" / "damaged-5" / "log.db").exists()


def test_a_log_that_is_gone_leaves_its_snapshot(run: Any, tmp_path: Path) -> None:
    asyncio.run(written(tmp_path / "server" / "log.db", trims=True))
    (tmp_path / "server" / "log.db").unlink()
    snapshot_files.newest_whole(tmp_path / "server" / "snapshots").unlink()
    code, out, _ = run("operator", "raft", "recover", "-accept-loss", str(tmp_path))
    assert code == 0
    assert "given up:       1 commands, 5 to 5" in out
    _, out, _ = run("operator", "raft", "state", str(tmp_path))
    assert names(out) == {"default", "late", "shop"}


def test_a_damaged_commit_index_alone_gives_up_nothing_that_is_known(run: Any, data_dir: Path) -> None:
    (data_dir / "server" / "commit-index").write_bytes(b"x" * 8192)
    code, out, _ = run("operator", "raft", "recover", "-accept-loss", str(data_dir))
    assert code == 0
    assert "given up:       commands acknowledged after index 4, if any" in out
    _, out, _ = run("operator", "raft", "state", str(data_dir))
    assert names(out) == {"default", "late", "shop"}
