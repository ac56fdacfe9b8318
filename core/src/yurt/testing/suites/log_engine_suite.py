"""Conformance suite for log engines: subclass it and create engines.

    class TestMine(LogEngineSuite):
        def make(self) -> LogEngine:
            return Mine()

The suite tests an engine against the contract in `yurt.sdk.log_engines`: reopening, a writer that is killed while it
appends, and damage of every file that the engine wrote.
"""

# ruff: noqa: ASYNC222, ASYNC240 - small files of a test

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from yurt.sdk.errors import Conflict
from yurt.sdk.log_engines import OWN_ENGINES, LogBatch, LogContent, LogEngine
from yurt.testing.suites.steps import NAME

KILL_AFTER: int = 20
"""Batches that the child acknowledges before it is killed."""


async def _all(engine: LogEngine, after: int = 0) -> list[LogBatch]:
    return [LogBatch(batch.first_index, list(batch.commands)) async for batch in engine.read(after)]


class LogEngineSuite:
    """The tests of a log engine's contract."""

    def make(self) -> LogEngine:
        """A new engine that is not open yet."""
        raise NotImplementedError

    def test_its_name_is_valid(self) -> None:
        engine = self.make()
        assert isinstance(engine, LogEngine)
        assert NAME.fullmatch(engine.name) and engine.name not in OWN_ENGINES

    async def test_it_begins_empty_and_closes_at_any_time(self, tmp_path: Path) -> None:
        engine = self.make()
        await engine.close()
        assert await engine.open(str(tmp_path)) == LogContent()
        assert await _all(engine) == [] and await engine.load_snapshot(None) is None
        await engine.close()
        await engine.close()

    async def test_batches_come_back_after_a_restart(self, tmp_path: Path) -> None:
        batches = [LogBatch(1, [b"a"]), LogBatch(2, [b"b", bytes(range(256))]), LogBatch(4, [b"\n\0"])]
        engine = self.make()
        await engine.open(str(tmp_path))
        for batch in batches:
            await engine.append(batch)
        assert await _all(engine) == batches
        assert await _all(engine, after=2) == batches[1:]
        await engine.close()

        again = self.make()
        assert await again.open(str(tmp_path)) == LogContent(last_index=4, first_index=1)
        assert await _all(again) == batches
        await again.close()

    async def test_a_gap_is_refused(self, tmp_path: Path) -> None:
        engine = self.make()
        await engine.open(str(tmp_path))
        await engine.append(LogBatch(1, [b"a"]))
        for index in (1, 3):
            with pytest.raises(Conflict):
                await engine.append(LogBatch(index, [b"b"]))
        assert await _all(engine) == [LogBatch(1, [b"a"])]
        await engine.close()

    async def test_one_process_locks_the_folder(self, tmp_path: Path) -> None:
        engine, other = self.make(), self.make()
        await engine.open(str(tmp_path))
        with pytest.raises(Conflict):
            await other.open(str(tmp_path))
        await engine.close()

    async def test_the_newest_snapshot_that_fits_comes_back(self, tmp_path: Path) -> None:
        engine = self.make()
        await engine.open(str(tmp_path))
        await engine.append(LogBatch(1, [b"a", b"b", b"c"]))
        await engine.save_snapshot(1, iter([b"one"]))
        await engine.save_snapshot(3, iter([b"th", b"ree"]))
        await engine.trim(4)
        await engine.close()

        again = self.make()
        content = await again.open(str(tmp_path))
        assert (content.last_index, content.snapshot_index) == (3, 3)
        newest, older = await again.load_snapshot(None), await again.load_snapshot(2)
        assert newest is not None and (newest[0], b"".join(newest[1])) == (3, b"three")
        assert older is not None and (older[0], b"".join(older[1])) == (1, b"one")
        await again.append(LogBatch(4, [b"d"]))
        assert (await _all(again, after=3)) == [LogBatch(4, [b"d"])]
        await again.close()

    async def test_what_was_acknowledged_survives_a_kill(self, tmp_path: Path) -> None:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            asyncio.set_event_loop(None)
            _append_for_ever(self.make(), str(tmp_path), writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as acknowledged:
            count = len(acknowledged.read(KILL_AFTER))
            os.kill(child, signal.SIGKILL)
            count += len(acknowledged.read())
        os.waitpid(child, 0)

        engine = self.make()
        content = await engine.open(str(tmp_path))
        assert content.last_index >= count >= KILL_AFTER
        assert [batch.first_index for batch in await _all(engine)] == list(range(1, content.last_index + 1))
        await engine.close()

    async def test_damage_is_never_passed_over(self, tmp_path: Path) -> None:
        engine = self.make()
        await engine.open(str(tmp_path))
        batches = [LogBatch(number, [f"command {number}".encode() * 8]) for number in range(1, 6)]
        for batch in batches:
            await engine.append(batch)
        await engine.close()
        for path in [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]:
            whole = path.read_bytes()
            for at in {*range(0, len(whole), max(1, len(whole) // 16)), len(whole) - 1}:
                path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
                assert await self._refuses_or_has(tmp_path, batches), f"damage of {path.name} at byte {at}"
                path.write_bytes(whole[:at])
                assert await self._refuses_or_has(tmp_path, batches), f"{path.name} was cut at byte {at}"
            path.write_bytes(whole)

    async def _refuses_or_has(self, folder: Path, batches: list[LogBatch]) -> bool:
        """Whether the engine raises Conflict, or still has everything that it acknowledged."""
        engine = self.make()
        try:
            await engine.open(str(folder))
            return await _all(engine) == batches and await engine.scrub() == ""
        except Conflict:
            return True
        finally:
            await engine.close()


def _append_for_ever(engine: LogEngine, folder: str, writer: int) -> None:
    """Entry point of the child process: write one byte for each acknowledged batch, until killed."""

    async def append() -> None:
        await engine.open(folder)
        for index in range(1, 10_000):
            await engine.append(LogBatch(index, [b"x" * 100]))
            os.write(writer, b"+")

    try:
        asyncio.new_event_loop().run_until_complete(append())
    finally:
        os._exit(1)
