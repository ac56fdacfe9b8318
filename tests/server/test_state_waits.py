"""Waits for an event with a limit on time, as the loops of a leader's duties make them."""

from __future__ import annotations

import asyncio

import pytest
from yurt.server.log.state_waits import wait_for
from yurt.testing.fakes import FakeEnv, settle


async def test_a_wait_ends_at_its_limit_with_the_event_set() -> None:
    env, event = FakeEnv(), asyncio.Event()
    waiting = asyncio.ensure_future(wait_for(env, event, 5.0))
    await env.advance(4.0)
    assert not waiting.done()
    await env.advance(1.0)
    assert waiting.done() and event.is_set()


async def test_a_wait_ends_with_its_event_and_leaves_no_timer() -> None:
    env, event = FakeEnv(), asyncio.Event()
    waiting = asyncio.ensure_future(wait_for(env, event, 5.0))
    await settle()
    event.set()
    await waiting
    event.clear()
    await env.advance(10.0)
    assert not event.is_set()


@pytest.mark.parametrize("delay_s", [5.0, None])
async def test_a_wait_makes_no_task_of_its_own(delay_s: float | None) -> None:
    env, event, before = FakeEnv(), asyncio.Event(), len(asyncio.all_tasks())
    waiting = asyncio.ensure_future(wait_for(env, event, delay_s))
    await settle()
    assert len(asyncio.all_tasks()) == before + 1
    event.set()
    await waiting


async def test_a_wait_without_time_left_sets_its_event_at_once() -> None:
    event = asyncio.Event()
    await wait_for(FakeEnv(), event, 0.0)
    assert event.is_set()
