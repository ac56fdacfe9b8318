"""`stop_on_client_after` counts from the last contact, also when it is shorter than the usual pause of the watch."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.allocations.assignments import Assignments
from yurt.client.allocations.disconnection import DisconnectionWatch
from yurt.lifecycle.alloc_list import Changes
from yurt.lifecycle.heartbeats import Contact
from yurt.sdk.value import seconds
from yurt.structs.policies import DisconnectStrategy
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv


async def test_an_allocation_with_a_short_limit_ends_although_it_began_after_a_check() -> None:
    env = FakeEnv()
    table, stops = AllocTable(env), list[Any]()
    begin_s = env.monotonic()
    watch = DisconnectionWatch(table, env, contact=lambda: Contact(last_ok_s=begin_s + 1))
    group = factories.group(disconnect=DisconnectStrategy(stop_on_client_after=seconds(2)))
    runner: Any = SimpleNamespace(
        alloc=SimpleNamespace(id="a", job=factories.job("b")), task_group=group, is_live=True, stop=stops.append
    )
    running = asyncio.ensure_future(watch.run())
    try:
        await env.advance(1.5)
        table.begin(runner)
        await env.advance(1)
        assert not stops
        await env.advance(2)
        assert stops, "the pause without limits would have ended at 6 s"
    finally:
        running.cancel()


async def test_a_limit_that_an_allocation_gets_later_counts() -> None:
    env = FakeEnv()
    table, stops = AllocTable(env), list[Any]()
    begin_s = env.monotonic()
    watch = DisconnectionWatch(table, env, contact=lambda: Contact(last_ok_s=begin_s))
    runner: Any = SimpleNamespace(
        alloc=SimpleNamespace(id="a", job=factories.job("b")), task_group=factories.group(), is_live=True,
        stop=stops.append,
    )  # fmt: skip
    table.begin(runner)
    running = asyncio.ensure_future(watch.run())
    try:
        await env.advance(60)
        assert not stops
        runner.task_group = factories.group(disconnect=DisconnectStrategy(stop_on_client_after=seconds(2)))
        table.has_changed.set()
        await env.advance(2)
        assert stops
    finally:
        running.cancel()


async def test_an_allocation_that_the_servers_changed_is_looked_at_again() -> None:
    table = AllocTable(FakeEnv())
    runner: Any = SimpleNamespace(alloc=SimpleNamespace(id="a"), take_over=lambda alloc: None)
    table.begin(runner)
    table.has_changed.clear()
    part: Any = SimpleNamespace(unclaimed=lambda: None, begin=lambda gone: None, open=lambda: None)

    assignments = Assignments(table, part, removals=part, reporter=part, lost=part)
    await assignments.apply(Changes(fetched=(factories.alloc(id="a"),)))

    assert table.has_changed.is_set()


async def test_the_watch_sleeps_while_no_allocation_has_a_limit() -> None:
    env = FakeEnv()
    asked = list[float]()

    def contact() -> Contact:
        asked.append(env.monotonic())
        return Contact(last_ok_s=env.monotonic())

    running = asyncio.ensure_future(DisconnectionWatch(AllocTable(env), env, contact=contact).run())
    try:
        await env.advance(600)
        assert len(asked) == 1
    finally:
        running.cancel()
