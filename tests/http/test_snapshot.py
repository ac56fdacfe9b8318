"""Snapshots of a running server: saved, inspected, restored over HTTP."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.msgpack import encode
from yurt.cli.main import main
from yurt.http.call import CONTEXT
from yurt.runtime.env import RealEnv
from yurt.server.config import ServerConfig
from yurt.server.log.restore import restore
from yurt.server.server import Server
from yurt.storage.archive import FREE_BYTES, MEMORY_FREE, MEMORY_RATIO, unpack
from yurt.storage.sqlite import SqliteLog
from yurt.structs.commands import SetNodeStatus
from yurt.testing.fakes import eventually
from yurt.testing.http_api import NODE_ID, Api


async def saved(api: Api) -> bytes:
    async with api.client.get("/v1/operator/snapshot") as response:
        data = await response.read()
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        assert response.headers["Digest"] == f"sha-256={digest}"
        return data


def unpacked(archive: bytes) -> tuple[io.BytesIO, int]:
    """The framed state in an archive, and its size."""
    state = io.BytesIO()
    return state, unpack(io.BytesIO(archive), state).size


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
    await api.server.replica.propose(SetNodeStatus(node_id=NODE_ID, status="ready", updated_at=1))
    await api.register("after")
    (alloc,) = await api.wait_until("/v1/job/after/allocations", len)
    assert alloc["NodeID"] == NODE_ID


async def test_a_snapshot_of_a_log_that_was_further_is_taken_too(api: Api) -> None:
    other, size = unpacked(await saved(api))
    for number in range(30):
        await api.register(f"job-{number}")
    further = await saved(api)
    assert (await restore(api.server.replica, api.server.leader, other, size)).index == api.server.state.index
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


@pytest.mark.parametrize("term", [b"Infinity", b'"two"', b"null"])
async def test_a_snapshot_whose_term_is_no_number_is_refused(api: Api, term: bytes) -> None:
    answer = await api.call("PUT", "/v1/operator/snapshot", false_state(b"", term))
    assert answer.status == 400
    assert answer.text.startswith("the file is not a snapshot of Yurt: its meta.json is of another program")


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
    assert "is not a snapshot of Yurt" in capsys.readouterr().err


async def test_a_restore_survives_a_restart(tmp_path: Path, api: Api) -> None:
    await api.register("kept")
    data = await saved(api)
    path = tmp_path / "server"
    await run_server(path, data)
    assert await run_server(path, None) == ["kept"]


async def run_server(path: Path, data: bytes | None) -> list[str]:
    """Run a server on a data directory, restore there, and say which jobs it has at its end."""
    server = Server(ServerConfig(name="test"), env=RealEnv(), log=SqliteLog(path))
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run(ready=ready))
        async with asyncio.timeout(60):
            await ready.wait()
        if data is not None:
            await restore(server.replica, server.leader, *unpacked(data))
        found = [job.id for job in server.state.jobs.values()]
        await server.stop()
        running.cancel()
    return found


# Archives that become larger than they look.

BOMB_BYTES = 800_000_000


def archive_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for info, body in members:
            tar.addfile(info, io.BytesIO(body))
    return gzip.compress(made.getvalue())


def member(name: str, body: bytes = b"", **changes: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(body)
    for field, value in changes.items():
        setattr(info, field, value)
    return info, body


def sparse_bomb() -> bytes:
    """A GNU sparse member: a map of a few bytes that says that 800 MB of zeros are there. 1.6 KB."""
    header = bytearray(member("state.bin", type=tarfile.GNUTYPE_SPARSE)[0].tobuf(tarfile.GNU_FORMAT))
    header[386:398] = header[398:410] = b"%011o\0" % 0
    header[483:495] = b"%011o\0" % BOMB_BYTES
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    meta = member("meta.json", b'{"Format": 1, "ID": "1-1", "Index": 1, "Term": 1, "Version": "1"}')
    plain = gzip.decompress(archive_of(meta))[: 2 * tarfile.BLOCKSIZE]
    return gzip.compress(plain + bytes(header) + bytes(2 * tarfile.BLOCKSIZE))


def zero_bomb(*, name: str = "state.bin", **changes: Any) -> bytes:
    """800 MB of zeros, well compressed: 100 times the same block. The checksum behind them is that of one block."""
    meta = member("meta.json", b'{"Format": 1, "ID": "1-1", "Index": 1, "Term": 1, "Version": "1"}')
    head = gzip.decompress(archive_of(meta))[: 2 * tarfile.BLOCKSIZE]
    zip_ = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    start = zip_.compress(head + member(name, size=BOMB_BYTES, **changes)[0].tobuf(tarfile.GNU_FORMAT))
    start += zip_.flush(zlib.Z_FULL_FLUSH)
    zeros = zip_.compress(bytes(BOMB_BYTES // 100)) + zip_.flush(zlib.Z_FULL_FLUSH)
    return start + 100 * zeros + zip_.flush()


def test_zeros_follow_the_first_block_of_a_bomb() -> None:
    opened = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    begin = 3 * BOMB_BYTES // 100
    assert len(opened.decompress(zero_bomb(), begin)) == begin
    assert opened.decompress(opened.unconsumed_tail, 1_000) == bytes(1_000)


def false_state(body: bytes, term: bytes = b"1") -> bytes:
    """An archive whose digests fit a state that is none."""
    meta = b'{"Format": 1, "ID": "1-1", "Index": 1, "Term": %b, "Version": "1"}' % term
    sums = "".join(
        f"{hashlib.sha256(part).hexdigest()}  {name}\n" for name, part in (("meta.json", meta), ("state.bin", body))
    )
    return archive_of(member("meta.json", meta), member("state.bin", body), member("SHA256SUMS", sums.encode()))


def nested_state() -> bytes:
    """A state that decodes to far more than its size: 60 MB of empty lists in a task's `config`."""
    job = {"id": "j", "task_groups": [{"name": "g", "tasks": [{"name": "t", "config": {"a": Raw(many_lists())}}]}]}
    chunks = (encode([2, 1, {}]), encode(["*jobs", [job]]), encode(["*end", 0]))
    return b"".join(len(chunk).to_bytes(8, "big") + chunk for chunk in chunks)


def many_lists(count: int = 60_000_000) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + b"\x90" * count


BOMBS: dict[str, Callable[[], bytes]] = {
    "sparse": sparse_bomb,
    "zeros": zero_bomb,
    "extended header": lambda: zero_bomb(name="x", type=tarfile.XHDTYPE),
    "long name": lambda: zero_bomb(name="x", type=tarfile.GNUTYPE_LONGNAME),
    "zeros that fit their digest": lambda: false_state(bytes(60_000_000)),
    "nested": lambda: false_state(nested_state()),
}


def checked(file: Path) -> tuple[Any, int, int]:
    """What the child says of an archive, the bytes of its memory at the most, and of the state that it has written."""
    code = (
        "import sys, resource; from yurt.storage import archive_child; archive_child.main(); "
        "print('\\n', [line.split()[1] for line in open('/proc/self/status') if 'VmHWM' in line][0])"
    )
    with file.open("rb") as source, tempfile.TemporaryFile() as state:
        fds = (source.fileno(), state.fileno())
        command = [sys.executable, "-c", code, *map(str, fds)]
        done = subprocess.run(command, pass_fds=fds, stdout=subprocess.PIPE, check=True)
        answer, kilobytes = done.stdout.split(b"\n")[:2]
        return json.loads(answer), int(kilobytes) * 1024, os.fstat(state.fileno()).st_size


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_takes_no_memory_and_leaves_nothing(api: Api, tmp_path: Path, name: str) -> None:
    file = tmp_path / "bomb"
    file.write_bytes(BOMBS[name]())
    answer, memory, written = await asyncio.to_thread(checked, file)
    assert "error" in answer
    assert written < 2 * FREE_BYTES
    assert memory < (MEMORY_FREE + MEMORY_RATIO * written if name == "nested" else 150_000_000)
    index = api.server.state.index
    refused = await api.call("PUT", "/v1/operator/snapshot", file.read_bytes())
    assert (refused.status, "snapshot" in refused.text) == (400, True)
    assert (api.server.state.index, len(api.server.state.restore_chunks)) == (index, 0)


def test_a_bomb_is_inspected_within_the_same_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bomb").write_bytes(sparse_bomb())
    assert (tmp_path / "bomb").stat().st_size < 1_600
    for command in ("inspect", "state"):
        assert main(["operator", "snapshot", command, str(tmp_path / "bomb")]) == 1
        assert "state.bin is missing" in capsys.readouterr().err


async def test_a_content_encoding_is_refused_on_this_route_too(api: Api) -> None:
    data = gzip.compress(await saved(api))
    answer = await api.call("PUT", "/v1/operator/snapshot", data, headers={"Content-Encoding": "gzip"})
    assert (answer.status, "Content-Encoding" in answer.text) == (400, True)


async def test_one_snapshot_is_restored_at_a_time(api: Api) -> None:
    data, is_begun, may_end = await saved(api), asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield data[:100]
        is_begun.set()
        await may_end.wait()
        yield data[100:]

    async with asyncio.TaskGroup() as group:
        first = group.create_task(api.client.put("/v1/operator/snapshot", data=slowly()))
        await is_begun.wait()
        await eventually(lambda: api.client.app is not None and api.client.app[CONTEXT].restores.locked())
        second = await api.call("PUT", "/v1/operator/snapshot", data)
        assert (second.status, "being restored" in second.text) == (409, True)
        may_end.set()
    async with first.result() as answer:
        assert answer.status == 200
    assert (await api.call("PUT", "/v1/operator/snapshot", data)).status == 200
