"""Ids: fresh ones each time, in each thread and each process."""

from __future__ import annotations

import asyncio
import os
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from yurt.runtime.env import DRAWN_IDS, RealEnv
from yurt.testing.fakes import FakeEnv


def test_ids_are_random_uuids() -> None:
    for _ in range(2 * DRAWN_IDS):
        text = RealEnv().uuid()
        found = uuid.UUID(text)
        assert (str(found), found.version, found.variant) == (text, 4, uuid.RFC_4122)


def test_threads_never_get_the_same_id() -> None:
    with ThreadPoolExecutor(4) as threads:
        parts = threads.map(lambda _: [RealEnv().uuid() for _ in range(2000)], range(4))
        found = [each for part in parts for each in part]
    assert len(set(found)) == len(found) == 8000


def test_a_forked_process_draws_ids_of_its_own() -> None:
    RealEnv().uuid()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, RealEnv().uuid().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 36).decode()
    os.close(reader)
    os.close(writer)
    assert theirs not in {RealEnv().uuid() for _ in range(DRAWN_IDS)}


def test_random_numbers_are_spread_over_the_unit_interval() -> None:
    drawn = [RealEnv().random() for _ in range(4000)]
    assert all(0 <= each < 1 for each in drawn)
    assert len(set(drawn)) == len(drawn)
    assert 0.4 < sum(drawn) / len(drawn) < 0.6


def test_random_numbers_are_drawn_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    urandom = os.urandom

    def counted(size: int) -> bytes:
        calls.append(size)
        return urandom(size)

    monkeypatch.setattr(os, "urandom", counted)
    for _ in range(DRAWN_IDS):
        RealEnv().random()
    assert len(calls) <= 1


async def test_a_time_out_on_a_virtual_clock_ends_its_block_when_the_clock_is_moved() -> None:
    env, reached = FakeEnv(), asyncio.Event()

    async def wait() -> str:
        try:
            async with env.timeout(30):
                reached.set()
                await asyncio.Event().wait()
        except TimeoutError:
            return "over"
        return "not over"

    waiting = asyncio.ensure_future(wait())
    await reached.wait()
    await env.advance(29)
    assert not waiting.done()
    await env.advance(1)
    assert await waiting == "over"


async def test_a_time_out_whose_block_has_ended_does_nothing_later() -> None:
    env = FakeEnv()
    async with env.timeout(30):
        pass
    await env.advance(60)


async def test_a_blocking_call_gives_its_result_in_both_worlds() -> None:
    for env in (RealEnv(), FakeEnv()):
        assert await env.in_thread(int, "20", base=16) == 32
