"""What waits for the leader is interrupted in the order in which it came, in each run of a seed."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

from yurt.runtime.env import RealEnv
from yurt.server.failures import LeaderMoved
from yurt.server.log.current_leader import CurrentLeader
from yurt.storage.log import Leadership


async def test_calls_to_a_deposed_leader_are_interrupted_in_the_order_in_which_they_were_made() -> None:
    leader = CurrentLeader("own", command_log=Mock(), writer=Mock(), peers=Mock(), env=RealEnv())
    leader.learn(Leadership(is_leader=False, leader="first"))
    moved: list[int] = []

    async def call(number: int) -> None:
        try:
            async with leader.while_led_by("first"):
                await asyncio.Event().wait()
        except LeaderMoved:
            moved.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(call(number))
            await asyncio.sleep(0)
        leader.learn(Leadership(is_leader=False, leader="second"))
        leader.announce()
    assert moved == list(range(200))
