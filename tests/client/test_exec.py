"""Exec sessions of a client: how many start at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from yurt.client.tasks.exec_sessions import STARTS_MAX, ExecSessions
from yurt.sdk.driver import Capabilities, Driver
from yurt.sdk.errors import DriverError, PermissionDenied, RecoverableError
from yurt.sdk.exec import ExecOutput
from yurt.sdk.value import replace
from yurt.structs.exec import ExecFrame, ExecInput, ExecRequest

REQUEST = ExecRequest(alloc_id="a", task="t", command=("true",), is_node_exec_allowed=True)
LIMIT_S = 60.0


class Session:
    """A command that ends at once."""

    async def output(self) -> AsyncIterator[ExecOutput]:
        return
        yield

    async def wait(self) -> int:
        return 0

    async def write(self, data: bytes) -> None: ...
    async def close_input(self) -> None: ...
    async def resize(self, size: Any) -> None: ...
    async def close(self) -> None: ...


class Slow:
    """A driver whose commands start when they are let; some cannot be started."""

    name = "slow"
    capabilities = Capabilities(exec=True)

    def __init__(self) -> None:
        self.gate, self.full = asyncio.Event(), asyncio.Event()
        self.starting = self.most = self.count = 0

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> Session:
        self.count += 1
        number = self.count
        self.starting += 1
        self.most = max(self.most, self.starting)
        if self.starting == STARTS_MAX:
            self.full.set()
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.starting -= 1
        if number % 5 == 0:
            raise RecoverableError("no more processes")
        return Session()


async def one(sessions: ExecSessions, driver: Slow) -> list[ExecFrame]:
    return [frame async for frame in sessions.run(cast("Driver", driver), "t", REQUEST, no_input())]


async def no_input() -> AsyncIterator[ExecInput]:
    return
    yield


async def test_commands_that_are_started_at_once_wait_their_turn() -> None:
    driver, other = Slow(), Slow()
    other.name = "other"
    other.gate.set()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        sessions = ExecSessions(lambda name, work: group.create_task(work, name=name))
        running = [asyncio.ensure_future(one(sessions, driver)) for _ in range(100)]
        await driver.full.wait()
        assert (await one(sessions, other))[-1].exit_code == 0, "the commands of other drivers do not wait for it"
        driver.gate.set()
        found = await asyncio.gather(*running, return_exceptions=True)
    assert driver.most == STARTS_MAX
    assert sum(isinstance(each, list) and each[-1].exit_code == 0 for each in found) == 80
    assert sum(isinstance(each, DriverError) for each in found) == 20


async def test_a_command_beside_the_node_needs_the_right_to_it() -> None:
    driver = Slow()
    driver.gate.set()
    sessions = ExecSessions(lambda name, work: asyncio.ensure_future(work))
    refused = replace(REQUEST, is_node_exec_allowed=False)
    with pytest.raises(PermissionDenied, match="alloc-node-exec"):
        await anext(sessions.run(cast("Driver", driver), "t", refused, no_input()))
    assert driver.count == 0, "the command was not started"
    assert (await one(sessions, driver))[0] == ExecFrame(is_node_exec=True)
    driver.capabilities = Capabilities(exec=True, fs_isolation="chroot")
    isolated = [frame async for frame in sessions.run(cast("Driver", driver), "t", refused, no_input())]
    assert isolated[0] == ExecFrame()
