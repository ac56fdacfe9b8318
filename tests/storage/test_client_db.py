"""The client's records: durable, one owner, and a broken one spoils itself only."""

from __future__ import annotations

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


@pytest.mark.parametrize("column", ["alloc", "progress"])
async def test_a_broken_record_spoils_its_own_allocation_only(tmp_path: Path, column: str) -> None:
    path = tmp_path / "client.db"
    database = ClientDatabase(path)
    for alloc_id in ("a", "b"):
        await database.put_alloc(factories.alloc(id=alloc_id))
        await database.put_tasks(alloc_id, TASKS, None)
    await database.close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE allocs SET {column} = CAST({column} || x'00' AS BLOB) WHERE id = 'a'")
    connection.close()
    database = ClientDatabase(path)
    broken, whole = await database.allocs()
    await database.close()
    assert "can not be read" in broken.error
    assert (whole.error, whole.tasks) == ("", TASKS)


async def test_a_second_client_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    first = ClientDatabase(tmp_path / "client.db")
    with pytest.raises(Conflict, match="in use by another process"):
        ClientDatabase(tmp_path / "client.db")
    await first.close()


async def test_a_folder_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="can not be used"):
        ClientDatabase(tmp_path / "file" / "client.db")
