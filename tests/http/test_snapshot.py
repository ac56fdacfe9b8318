"""Snapshots of a running server: saved, inspected, restored over HTTP."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest
from yurt.cli.main import main
from yurt.runtime.env import RealEnv
from yurt.server.config import ServerConfig
from yurt.server.restore import restore
from yurt.server.server import Server
from yurt.storage.archive import read_archive
from yurt.storage.sqlite import SqliteLog
from yurt.structs.commands import SetNodeStatus
from yurt.testing.http_api import NODE_ID, Api


async def saved(api: Api) -> bytes:
    async with api.client.get("/v1/operator/snapshot") as response:
        data = await response.read()
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        assert response.headers["Digest"] == f"sha-256={digest}"
        return data


async def test_a_saved_state_comes_back(api_with_node: Api) -> None:
    api = api_with_node
    await api.register("old")
    await api.wait_until("/v1/job/old/allocations", len)
    data = await saved(api)
    await api.register("new")
    await api.put("/v1/namespace", {"Name": "ops"})
    answer = await api.call("PUT", "/v1/operator/snapshot", data)
    assert (answer.status, answer.index) == (200, api.server.state.index)
    assert [job["ID"] for job in (await api.get("/v1/jobs")).json] == ["old"]
    assert [space["Name"] for space in (await api.get("/v1/namespaces")).json] == ["default"]


async def test_the_restored_server_goes_on_scheduling(api_with_node: Api) -> None:
    api = api_with_node
    data = await saved(api)
    await api.register("gone")
    assert (await api.call("PUT", "/v1/operator/snapshot", data)).status == 200
    assert (await api.get(f"/v1/node/{NODE_ID}")).json["Status"] == "initializing"
    await api.server.propose(SetNodeStatus(node_id=NODE_ID, status="ready", updated_at=1))
    await api.register("after")
    (alloc,) = await api.wait_until("/v1/job/after/allocations", len)
    assert alloc["NodeID"] == NODE_ID


async def test_a_snapshot_of_a_log_that_was_further_is_taken_too(api: Api) -> None:
    other = read_archive(io.BytesIO(await saved(api)))
    for number in range(30):
        await api.register(f"job-{number}")
    further = await saved(api)
    assert (await restore(api.server, other.data)) == api.server.state.index
    assert (await api.get("/v1/jobs")).json == []
    assert (await api.call("PUT", "/v1/operator/snapshot", further)).status == 200
    answer = await api.get("/v1/jobs")
    assert len(answer.json) == 30
    assert all(job["ModifyIndex"] <= answer.index for job in answer.json)


@pytest.mark.parametrize(
    "body",
    [b"", b"x", gzip.compress(b"x" * 100), gzip.compress(b"\0" * 10_000_000)],
    ids=["nothing", "too short", "a text", "many zeros"],
)
async def test_what_is_no_snapshot_is_refused(api: Api, body: bytes) -> None:
    await api.register()
    answer = await api.call("PUT", "/v1/operator/snapshot", body)
    assert answer.status == 400
    assert "snapshot" in answer.text
    assert len((await api.get("/v1/jobs")).json) == 1


async def test_a_damaged_snapshot_is_refused(api: Api) -> None:
    data, forged = await saved(api), io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as old, tarfile.open(fileobj=forged, mode="w:gz") as new:
        for member in old.getmembers():
            body = old.extractfile(member)
            assert body is not None
            text = body.read()
            new.addfile(member, io.BytesIO(text[:-1] + b"\x00" if member.name == "state.bin" else text))
    answer = await api.call("PUT", "/v1/operator/snapshot", forged.getvalue())
    assert (answer.status, answer.text) == (400, "the snapshot is damaged: its digests do not fit")


async def test_a_snapshot_is_inspected_without_an_agent(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await api.register()
    file = tmp_path / "a.snap"
    file.write_bytes(await saved(api))
    assert main(["operator", "snapshot", "inspect", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("Index   = ")
    assert ["jobs", "1"] in [line.split() for line in lines]
    file.write_bytes(b"nonsense")
    assert main(["operator", "snapshot", "inspect", str(file)]) == 1
    assert "is no snapshot of Yurt" in capsys.readouterr().err


async def test_a_restore_survives_a_restart(tmp_path: Path, api: Api) -> None:
    await api.register("kept")
    data = read_archive(io.BytesIO(await saved(api))).data
    path = tmp_path / "server"
    await run_server(path, data)
    assert await run_server(path, None) == ["kept"]


async def run_server(path: Path, data: bytes | None) -> list[str]:
    """Run a server on a data directory, restore there, and say which jobs it has at its end."""
    import asyncio

    server = Server(ServerConfig(name="test"), env=RealEnv(), log=SqliteLog(path))
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run(ready=ready))
        async with asyncio.timeout(60):
            await ready.wait()
        if data is not None:
            await restore(server, data)
        found = [job.id for job in server.state.jobs.values()]
        await server.stop()
        running.cancel()
    return found
