"""The agent's log file is exported with its rotated predecessors, and followed over a rotation."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from yurt.agent.process.logs import FileLog, LogSettings
from yurt.runtime.log_files import log_file_pieces, log_path
from yurt.sdk.errors import Invalid


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    """The file of an agent that logs there."""
    path = tmp_path / "yurt.log"
    handler = FileLog(LogSettings(file=str(path)), time.time_ns)
    logging.getLogger().addHandler(handler)
    yield path
    logging.getLogger().removeHandler(handler)
    handler.close()


def older(log_file: Path, name: str, text: str, *, age_s: float) -> None:
    path = log_file.with_name(name)
    path.write_text(text)
    at = time.time() - age_s
    os.utime(path, (at, at))


def put(path: Path, text: str) -> None:
    path.write_text(text)


def rotate(log_file: Path) -> None:
    """Lines come and the file gets another name between two looks."""
    with log_file.open("a") as file:
        file.write("two\n")
    log_file.rename(log_file.with_name("yurt-20260101T000000.000000000Z.log"))
    log_file.write_text("three\n")


def link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


async def exported(since_s: float) -> bytes:
    async with aclosing(log_file_pieces(since_s, follow=False)) as pieces:
        return b"".join([piece async for piece in pieces])


async def test_files_come_oldest_first_without_those_before_the_asked_time(log_file: Path) -> None:
    put(log_file, "now\n")
    older(log_file, "yurt-20260101T000000.000000000Z.log", "ancient\n", age_s=7200)
    older(log_file, "yurt-20260102T000000.000000000Z.log", "old\n", age_s=1800)
    older(log_file, "yurt-20260103T000000.000000000Z.log", "newer\n", age_s=600)
    older(log_file, "other.log", "other\n", age_s=0)
    assert log_path() == log_file
    assert await exported(3600) == b"old\nnewer\nnow\n"


async def test_no_link_is_followed(log_file: Path, tmp_path: Path) -> None:
    put(tmp_path / "secret", "secret\n")
    link(log_file.with_name("yurt-20260101T000000.000000000Z.log"), tmp_path / "secret")
    put(log_file, "now\n")
    assert await exported(3600) == b"now\n"
    link(log_file, tmp_path / "secret")
    with pytest.raises(Invalid, match="cannot be read"):
        await exported(3600)


async def test_a_file_is_followed_over_its_rotation(log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.runtime.log_files.QUIET_S", 0.001)
    put(log_file, "one\n")
    found = b""
    async with asyncio.timeout(60), aclosing(log_file_pieces(3600, follow=True)) as pieces:
        async for piece in pieces:
            found += piece
            if found == b"one\n" and not piece:
                rotate(log_file)
            if found == b"one\ntwo\nthree\n":
                return


async def test_an_agent_without_a_file_says_so() -> None:
    with pytest.raises(Invalid, match="writes no log file: set log_file"):
        await exported(3600)
