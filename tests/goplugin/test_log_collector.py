"""The collector of logs reads for tasks whatever becomes of the agent, and of itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from yurt.goplugin.log_collector import SOCKET_NAME, open_fifo
from yurt.goplugin.log_collector_client import LogCollector, TaskLogs
from yurt.sdk.driver import LogRotation
from yurt.sdk.errors import RecoverableError

LIMIT_S = 60.0


@pytest.fixture
async def collector(tmp_path: Path) -> AsyncIterator[LogCollector]:
    collector = LogCollector(str(tmp_path / "collector"))
    yield collector
    await collector.close()


def planned(collector: LogCollector, folder: Path, *, max_files: int = 3, max_bytes: int = 1000) -> TaskLogs:
    (folder / "logs").mkdir(exist_ok=True)
    rotation = LogRotation(max_files=max_files, max_bytes=max_bytes)
    return collector.plan("a/web/0", logs_dir=str(folder / "logs"), task_name="web", rotation=rotation)


def say(path: str, data: bytes) -> None:
    """Write as a task does: open, write, close."""
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, data)
    os.close(fd)


def collectors(folder: Path) -> list[psutil.Process]:
    found = psutil.Process().children()
    return [each for each in found if f"{folder}/collector" in each.cmdline()]


async def test_what_is_written_is_in_the_files_after_a_drain(collector: LogCollector, tmp_path: Path) -> None:
    logs = planned(collector, tmp_path)
    await collector.open(logs)
    say(logs.fifos[0], b"out\n")
    say(logs.fifos[1], b"err\n")
    say(logs.fifos[0], b"more\n")
    await collector.drain(logs)
    assert (tmp_path / "logs" / "web.stdout.0").read_bytes() == b"out\nmore\n"
    assert (tmp_path / "logs" / "web.stderr.0").read_bytes() == b"err\n"
    await collector.close_task(logs)
    assert [name for name in os.listdir(tmp_path / "collector") if name != SOCKET_NAME] == []


async def test_files_are_rotated(collector: LogCollector, tmp_path: Path) -> None:
    logs = planned(collector, tmp_path, max_files=2, max_bytes=100)
    await collector.open(logs)
    for number in range(20):
        say(logs.fifos[0], b"%049d\n" % number)
    await collector.drain(logs)
    files = sorted(path.name for path in (tmp_path / "logs").glob("web.stdout.*"))
    assert files == ["web.stdout.8", "web.stdout.9"]
    await collector.close_task(logs)


async def test_another_agent_takes_the_collector_over(collector: LogCollector, tmp_path: Path) -> None:
    logs = planned(collector, tmp_path)
    await collector.open(logs)
    [before] = collectors(tmp_path)
    await collector.close()
    say(logs.fifos[0], b"while no agent was there\n")
    second = LogCollector(str(tmp_path / "collector"))
    await second.open(logs)
    await second.drain(logs)
    assert [each.pid for each in collectors(tmp_path)] == [before.pid]
    assert b"while no agent was there" in (tmp_path / "logs" / "web.stdout.0").read_bytes()
    await second.close_task(logs)
    await second.close()


async def test_a_killed_collector_is_replaced_and_reads_what_waits(collector: LogCollector, tmp_path: Path) -> None:
    logs = planned(collector, tmp_path)
    await collector.open(logs)
    task = os.open(logs.fifos[0], os.O_RDWR | os.O_NONBLOCK)
    [before] = collectors(tmp_path)
    before.send_signal(signal.SIGKILL)
    os.write(task, b"nobody reads this yet\n")
    async with asyncio.timeout(LIMIT_S):
        await collector.drain(logs)
    os.close(task)
    assert (tmp_path / "logs" / "web.stdout.0").read_bytes() == b"nobody reads this yet\n"
    await collector.close_task(logs)


async def test_a_folder_that_is_not_there_is_told(collector: LogCollector, tmp_path: Path) -> None:
    logs = collector.plan("t", logs_dir=str(tmp_path / "absent"), task_name="web", rotation=LogRotation())
    with pytest.raises(RecoverableError, match="absent"):
        await collector.open(logs)


async def test_something_else_at_the_place_of_a_fifo_is_refused(collector: LogCollector, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("file", "link"):
        with pytest.raises(OSError, match=r"FIFO|symbolic links"):
            open_fifo(str(tmp_path / name))
    assert (tmp_path / "file").read_text() == "precious"


async def test_only_the_owner_may_ask(collector: LogCollector, tmp_path: Path) -> None:
    logs = planned(collector, tmp_path)
    await collector.open(logs)
    assert (tmp_path / "collector").stat().st_mode & 0o077 == 0
    assert (tmp_path / "collector" / SOCKET_NAME).is_socket()
    await collector.close_task(logs)
