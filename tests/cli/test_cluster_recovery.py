"""`yurt operator raft recover` on the directory of a killed server of a cluster, with its etcd member's files."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.fsm import apply, snapshot
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Unavailable
from yurt.state import Snapshot
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.key_layout import KeyLayout
from yurt.storage.etcd.log import EtcdLog
from yurt.storage.etcd.member_files.bolt_file import applied_index
from yurt.storage.etcd.member_process import EtcdMember
from yurt.structs.cluster import Namespace
from yurt.structs.commands import UpsertNamespaces
from yurt.testing.agent import wait_for
from yurt.testing.services.etcd import member_configs, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is etcd")
COMMANDS = tuple(UpsertNamespaces(namespaces=(Namespace(name=f"n{number}"),)) for number in range(1, 21))
SNAPSHOT_AT = 5
WAL = "server/etcd/data/member/wal/0000000000000000-0000000000000000.wal"
DATABASE = "server/etcd/data/member/snap/db"
needs_restore = pytest.mark.skipif(
    not (shutil.which("etcdutl") or shutil.which("etcdctl")), reason="no etcdutl or etcdctl (apt install etcd-client)"
)


async def lead_and_die(data_dir: Path, scratch: Path) -> None:
    """Acknowledge the commands, then kill etcd."""
    (config,) = member_configs(1, scratch)
    member, log = EtcdMember(config, env=RealEnv()), None
    await member.start()
    try:
        log = EtcdLog(
            endpoints=(config.client_endpoint,),
            folder=data_dir / "server" / "log",
            name=config.name,
            region="global",
            env=RealEnv(),
            own_endpoint=config.client_endpoint,
        )
        await log.open()
        async for level in log.campaign():
            if level.is_leader:
                break
        state = Snapshot.empty()
        for index, command in enumerate(COMMANDS, 1):
            await log.append(index, [command])
            state = apply(state, command, index=index).state
            if index == SNAPSHOT_AT:
                await log.save_snapshot(index, snapshot.encode(state))
        database = Path(config.data_dir) / "data" / "member" / "snap" / "db"
        client = EtcdClient((config.client_endpoint,))
        written = (await client.status()).raftIndex
        await client.close()
        await asyncio.to_thread(wait_for, "etcd's database", lambda: applied_index(database) >= written)
        os.kill(member.pid, signal.SIGKILL)
        await asyncio.to_thread(wait_for, "etcd's end", lambda: not member.pid)
        shutil.copytree(Path(config.data_dir) / "data", data_dir / "server" / "etcd" / "data")
    finally:
        if log is not None:
            await log.close()
        await member.stop()


async def change_etcd(data_dir: Path, *, trims_to: int = 0, head: bytes = b"", other: bytes = b"") -> None:
    """Change what a stopped member holds."""
    with tempfile.TemporaryDirectory(prefix="etcd-", ignore_cleanup_errors=True) as made:
        (config,) = member_configs(1, Path(made))
        shutil.move(data_dir / "server" / "etcd" / "data", Path(config.data_dir) / "data")
        member, client = EtcdMember(config, env=RealEnv()), EtcdClient((config.client_endpoint,))
        await member.start()
        await eventually_answers(client)
        keys = KeyLayout("global")
        if trims_to:
            await client.delete(keys.entry(1), keys.entry(trims_to))
        if head:
            await client.put(keys.head, head)
        if other:
            await client.put(other, b"1")
        await client.close()
        await member.stop()
        shutil.move(Path(config.data_dir) / "data", data_dir / "server" / "etcd" / "data")


async def eventually_answers(client: EtcdClient) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await client.range(b"a")
                return
            except Unavailable:
                await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def killed() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="etcd-", ignore_cleanup_errors=True) as made:
        asyncio.run(lead_and_die(Path(made) / "data", Path(made)))
        yield Path(made) / "data"


@pytest.fixture
def data_dir(killed: Path, tmp_path: Path) -> Path:
    shutil.copytree(killed, tmp_path / "data")
    return tmp_path / "data"


def facts(out: str) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in out.splitlines()) if value}


def namespaces(run: Any, file: Path) -> set[str]:
    code, out, err = run("operator", "snapshot", "state", str(file))
    assert (code, err) == (0, "")
    return {row["Name"] for row in json.loads(out)["Namespaces"]} - {"default"}


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_the_state_of_a_killed_server_is_saved_and_its_files_stay(run: Any, data_dir: Path, tmp_path: Path) -> None:
    before, file = files(data_dir), tmp_path / "state.snap"
    code, out, err = run("operator", "raft", "recover", "-output", str(file), str(data_dir))
    assert (code, err) == (0, "")
    found = facts(out)
    assert found["damage"] == "none that is known"
    assert (found["snapshot index"], found["log ends at"], found["sound up to"]) == ("5", "20", "20")
    assert namespaces(run, file) == {f"n{number}" for number in range(1, 21)}
    assert file.stat().st_mode & 0o777 == 0o600
    assert files(data_dir) == before


def test_without_an_output_it_only_reports(run: Any, data_dir: Path) -> None:
    code, out, err = run("operator", "raft", "recover", str(data_dir))
    assert (code, err) == (1, "")
    assert facts(out)["sound up to"] == "20"
    assert out.splitlines()[-1] == "Nothing was changed. Save this state as a snapshot with -output FILE."


@needs_restore
def test_where_the_raft_log_is_cut_short_the_database_still_has_all_that_was_applied(
    run: Any, data_dir: Path, tmp_path: Path
) -> None:
    wal, file = data_dir / WAL, tmp_path / "state.snap"
    content = wal.read_bytes().rstrip(b"\0")
    os.truncate(wal, len(content) // 2)
    code, out, err = run("operator", "raft", "recover", "-output", str(file), str(data_dir / "server"))
    assert (code, err) == (0, "")
    assert "the raft log of this server's etcd member has lost its end" in facts(out)["damage"]
    assert str(wal) in out and "recover -output" not in out
    assert namespaces(run, file) == {f"n{number}" for number in range(1, 21)}


@needs_restore
def test_where_nothing_of_etcd_can_be_read_both_damages_are_named(run: Any, data_dir: Path) -> None:
    os.truncate(data_dir / WAL, 4096)
    database = data_dir / DATABASE
    database.write_bytes(bytes(database.stat().st_size))
    code, out, err = run("operator", "raft", "recover", str(data_dir))
    assert (code, out) == (1, "")
    assert "is damaged" in err and "Its database is damaged too: " in err and "Traceback" not in err


def test_what_the_server_knew_and_etcd_lacks_is_named(run: Any, data_dir: Path) -> None:
    from yurt.storage import commit_index

    commit_index.create(data_dir / "server" / "log", commit_index.Mark(index=25))
    _, out, _ = run("operator", "raft", "recover", str(data_dir))
    assert facts(out)["given up"] == "5 commands that this server knew, 21 to 25, and what followed"


def test_nothing_is_saved_where_nothing_can_be_recovered(run: Any, data_dir: Path, tmp_path: Path) -> None:
    shutil.rmtree(data_dir / "server" / "log" / "snapshots")
    asyncio.run(change_etcd(data_dir, trims_to=3))
    file = tmp_path / "state.snap"
    code, out, err = run("operator", "raft", "recover", "-output", str(file), str(data_dir))
    assert (code, out) == (1, "") and not file.exists()
    assert "nothing can be recovered: there is no whole snapshot, and the command log begins at index 3" in err


def test_the_snapshot_is_saved_where_the_end_of_the_log_cannot_be_read(
    run: Any, data_dir: Path, tmp_path: Path
) -> None:
    asyncio.run(change_etcd(data_dir, head=b"x"))
    file = tmp_path / "state.snap"
    code, out, err = run("operator", "raft", "recover", "-output", str(file), str(data_dir))
    assert (code, err) == (0, "")
    assert "the end of the log in etcd can not be read" in facts(out)["damage"]
    assert facts(out)["sound up to"] == str(SNAPSHOT_AT)
    assert namespaces(run, file) == {f"n{number}" for number in range(1, SNAPSHOT_AT + 1)}


def test_a_second_region_is_refused(run: Any, data_dir: Path) -> None:
    asyncio.run(change_etcd(data_dir, other=b"/yurt/glob\xe1l/log/00000000000000000001"))
    code, out, err = run("operator", "raft", "recover", str(data_dir))
    assert (code, out) == (1, "") and "keys of more than one region" in err


def test_a_loss_is_accepted_only_by_a_new_cluster(run: Any, data_dir: Path, tmp_path: Path) -> None:
    code, _, err = run("operator", "raft", "recover", "-accept-loss", str(data_dir))
    assert code == 1 and "Save what this server of a cluster knows with -output FILE" in err
    taken = tmp_path / "taken"
    taken.touch()
    code, _, err = run("operator", "raft", "recover", "-output", str(taken), str(data_dir))
    assert code == 1 and "File exists" in err and not taken.read_bytes()
    shutil.rmtree(data_dir / "server" / "etcd")
    code, _, err = run("operator", "raft", "recover", str(data_dir))
    assert code == 1 and "its cluster uses an etcd that stands by itself" in err
