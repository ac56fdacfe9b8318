"""The client's records: durable, one owner, and a broken one spoils itself only."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from yurt.sdk.driver import TaskHandle
from yurt.sdk.errors import Conflict, Unavailable
from yurt.storage.client_db import AllocRecord, ClientDatabase, NodeIdentity, TaskRecord
from yurt.structs.alloc import AllocDeploymentStatus, TaskEvent, TaskState
from yurt.testing import factories

ALLOC = factories.alloc(id="a")
TASKS = {
    "web": TaskRecord(
        state=TaskState(state="running", events=(TaskEvent(type="Started", time=factories.NOW),)),
        run=2,
        handle=TaskHandle(driver="mock_driver", task_id="a/web/2", pid=17, state={"cgroup": "/x"}),
    )
}
HEALTH = AllocDeploymentStatus(healthy=True, timestamp=5)


@pytest.fixture(params=["memory", "file"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ClientDatabase]:
    made = ClientDatabase(None if request.param == "memory" else tmp_path / "client" / "client.db")
    yield made
    await made.close()


async def test_a_new_database_knows_nothing(database: ClientDatabase) -> None:
    assert await database.identity() is None
    assert await database.seen_index() == 0
    assert await database.allocs() == ()


async def test_what_was_put_comes_back(database: ClientDatabase) -> None:
    await database.put_identity(NodeIdentity(node_id="n", secret_id="s"))
    await database.put_seen_index(7)
    await database.put_seen_index(8)
    await database.put_alloc(ALLOC)
    await database.put_tasks("a", TASKS, HEALTH)
    await database.put_alloc(ALLOC)
    assert await database.identity() == NodeIdentity(node_id="n", secret_id="s")
    assert await database.seen_index() == 8
    assert await database.allocs() == (AllocRecord(id="a", alloc=ALLOC, tasks=TASKS, deployment_status=HEALTH),)


async def test_a_forgotten_allocation_stays_so(database: ClientDatabase) -> None:
    await database.put_alloc(ALLOC)
    await database.delete_alloc("a")
    await database.put_tasks("a", TASKS, None)
    assert await database.allocs() == ()


async def test_a_closed_database_refuses(database: ClientDatabase) -> None:
    await database.close()
    with pytest.raises(Unavailable, match="closed"):
        await database.put_seen_index(1)


async def test_records_outlive_the_process_that_wrote_them(tmp_path: Path) -> None:
    first = ClientDatabase(tmp_path / "client.db")
    await first.put_alloc(ALLOC)
    await first.put_tasks("a", TASKS, HEALTH)
    await first.close()
    second = ClientDatabase(tmp_path / "client.db")
    (record,) = await second.allocs()
    await second.close()
    assert record.tasks == TASKS


async def filled(path: Path) -> None:
    """Two allocations of a node that is known."""
    database = ClientDatabase(path)
    await database.put_identity(NodeIdentity(node_id="n", secret_id="s"))
    for alloc_id in ("a", "b"):
        await database.put_alloc(factories.alloc(id=alloc_id))
        await database.put_tasks(alloc_id, TASKS, None)
    await database.close()


async def read(path: Path) -> tuple[tuple[AllocRecord, ...], str, bool]:
    """The records, and what is told of damage."""
    database = ClientDatabase(path)
    records = await database.allocs()
    await database.close()
    return records, database.damage, database.is_incomplete


def spoil(path: Path, column: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE allocs SET {column} = CAST({column} || x'00' AS BLOB) WHERE id = 'a'")
    connection.close()


@pytest.mark.parametrize("column", ["alloc", "progress"])
async def test_a_broken_record_is_restored_from_the_copy(tmp_path: Path, column: str) -> None:
    await filled(tmp_path / "client.db")
    spoil(tmp_path / "client.db", column)
    records, damage, is_incomplete = await read(tmp_path / "client.db")
    assert [(record.error, record.tasks) for record in records] == [("", TASKS)] * 2
    assert "restored from its copy" in damage
    assert not is_incomplete


@pytest.mark.parametrize("column", ["alloc", "progress"])
async def test_a_record_that_is_broken_in_both_copies_spoils_itself_only(tmp_path: Path, column: str) -> None:
    await filled(tmp_path / "client.db")
    for name in ("client.db", "client-copy.db"):
        spoil(tmp_path / name, column)
    (broken, whole), damage, is_incomplete = await read(tmp_path / "client.db")
    assert "can not be read" in broken.error
    assert (whole.error, whole.tasks) == ("", TASKS)
    assert "its copy is damaged too" in damage
    assert is_incomplete


@pytest.mark.parametrize("name", ["client.db", "client.db-wal", "client-copy.db", "client-copy.db-wal"])
async def test_a_killed_client_finds_all_records_though_a_file_is_gone(tmp_path: Path, name: str) -> None:
    live = ClientDatabase(tmp_path / "live" / "client.db")
    await live.put_identity(NodeIdentity(node_id="n", secret_id="s"))
    await live.put_alloc(ALLOC)
    await live.put_tasks("a", TASKS, HEALTH)
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    await live.close()
    (tmp_path / "killed" / name).unlink()
    records, _, is_incomplete = await read(tmp_path / "killed" / "client.db")
    assert [record.tasks for record in records] == [TASKS]
    assert not is_incomplete


async def test_copies_that_have_both_lost_their_ends_are_told_from_whole_ones(tmp_path: Path) -> None:
    live = ClientDatabase(tmp_path / "live" / "client.db")
    await live.put_alloc(ALLOC)
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    await live.close()
    for name in ("client.db-wal", "client-copy.db-wal"):
        (tmp_path / "killed" / name).unlink()
    _, damage, is_incomplete = await read(tmp_path / "killed" / "client.db")
    assert "lack its newest changes" in damage
    assert is_incomplete
    assert await read(tmp_path / "killed" / "client.db") == ((), "", False)


async def test_the_node_keeps_its_id_when_all_of_its_database_is_gone(tmp_path: Path) -> None:
    await filled(tmp_path / "client.db")
    for name in ("client.db", "client-copy.db"):
        (tmp_path / name).unlink()
    database = ClientDatabase(tmp_path / "client.db")
    assert await database.identity() == NodeIdentity(node_id="n", secret_id="s")
    assert database.is_incomplete
    await database.close()


@pytest.mark.parametrize("damage", [b"", b"{}", b"\0" * 90])
async def test_the_file_of_the_identity_is_made_anew_from_the_database(tmp_path: Path, damage: bytes) -> None:
    await filled(tmp_path / "client.db")
    whole = (tmp_path / "identity.json").read_bytes()
    (tmp_path / "identity.json").write_bytes(damage)
    database = ClientDatabase(tmp_path / "client.db")
    assert await database.identity() == NodeIdentity(node_id="n", secret_id="s")
    await database.close()
    assert (tmp_path / "identity.json").read_bytes() == whole


async def test_a_database_of_an_earlier_version_is_adopted(tmp_path: Path) -> None:
    await filled(tmp_path / "client.db")
    with sqlite3.connect(tmp_path / "client.db") as connection:
        connection.execute("DROP TABLE stamp")
    connection.close()
    (tmp_path / "client-copy.db").unlink()
    (tmp_path / "commit-index").unlink()
    (tmp_path / "format").write_text("yurt data 1\n")
    records, damage, is_incomplete = await read(tmp_path / "client.db")
    assert [record.tasks for record in records] == [TASKS] * 2
    assert (damage, is_incomplete) == ("", False)


async def test_a_second_client_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    first = ClientDatabase(tmp_path / "client.db")
    with pytest.raises(Conflict, match="in use by another process"):
        ClientDatabase(tmp_path / "client.db")
    await first.close()


async def test_a_folder_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="can not be used"):
        ClientDatabase(tmp_path / "file" / "client.db")
