"""`operator client-state`: the records of a client that does not run."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.driver import TaskHandle
from yurt.storage.client_db import NODE_TOKEN, ClientDatabase, DynamicMeta, HostVolumeRecord, NodeIdentity, TaskRecord
from yurt.structs.alloc import TaskState
from yurt.structs.volumes.host import HostVolume
from yurt.testing import factories

HANDLE = TaskHandle(driver="exec", task_id="a/web/2", pid=17, state={"cgroup": "/x"})
TASKS: Mapping[str, TaskRecord] = {"web": TaskRecord(state=TaskState(state="running"), run=2, handle=HANDLE)}
VOLUME = HostVolume(id="vol-1", name="data", node_id="n-1")


async def written(path: Path) -> None:
    database = ClientDatabase(path)
    await database.put_identity(NodeIdentity(node_id="n-1", secret_id="of-the-node"))
    await database.put_text(NODE_TOKEN, "of-the-servers")
    await database.put_node_meta(DynamicMeta(values={"rack": "r1", "gone": None}))
    await database.put_host_volumes((HostVolumeRecord(volume=VOLUME),))
    await database.put_seen_index(8)
    await database.put_alloc(factories.alloc(id="a"))
    await database.put_tasks("a", TASKS, None)
    await database.put_alloc(factories.alloc(id="b"))
    await database.close()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """That of an agent which has stopped."""
    asyncio.run(written(tmp_path / "client" / "client.db"))
    return tmp_path


@pytest.mark.parametrize("folder", ["", "client"])
def test_the_records_are_printed_without_secrets(run: Any, data_dir: Path, folder: str) -> None:
    code, out, err = run("operator", "client-state", str(data_dir / folder))
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["NodeID"], found["SeenIndex"]) == ("n-1", 8)
    assert found["DynamicMeta"] == {"rack": "r1", "gone": None}
    assert found["HostVolumes"][0]["Volume"]["ID"] == VOLUME.id
    first, second = found["Allocations"]["a"], found["Allocations"]["b"]
    assert first["Alloc"]["ID"] == "a" and first["Error"] == ""
    assert (first["Tasks"]["web"]["Run"], first["Tasks"]["web"]["State"]["State"]) == (2, "running")
    assert (first["Tasks"]["web"]["Handle"]["TaskID"], first["Tasks"]["web"]["Handle"]["Pid"]) == ("a/web/2", 17)
    assert second["Tasks"] is None
    assert "of-the-" not in out


def test_a_broken_record_says_so_beside_the_others(run: Any, data_dir: Path) -> None:
    for name in ("client.db", "client-copy.db"):
        with closing(sqlite3.connect(data_dir / "client" / name)) as connection:
            connection.execute("UPDATE allocs SET alloc = x'00' WHERE id = 'a'")
            connection.commit()
    code, out, _ = run("operator", "client-state", str(data_dir))
    found = json.loads(out)["Allocations"]
    assert code == 0
    assert (found["a"]["Alloc"], found["b"]["Error"]) == (None, "")
    assert "its content does not fit its digest" in found["a"]["Error"]


def test_a_client_that_runs_keeps_its_records(run: Any, tmp_path: Path) -> None:
    async def ask() -> tuple[int, str, str]:
        database = ClientDatabase(tmp_path / "client" / "client.db")
        try:
            answer: tuple[int, str, str] = await asyncio.to_thread(run, "operator", "client-state", str(tmp_path))
            return answer
        finally:
            await database.close()

    code, out, err = asyncio.run(ask())
    assert (code, out) == (1, "")
    assert "is in use by another process" in err


def test_a_directory_without_records_is_told(run: Any, tmp_path: Path) -> None:
    code, _, err = run("operator", "client-state", str(tmp_path))
    assert code == 1
    assert err == f"{tmp_path} holds no state of a client: {tmp_path / 'client' / 'client.db'} does not exist\n"
