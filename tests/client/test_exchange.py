"""Drivers are exchanged while their tasks run, and stay when the new ones are of no use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from yurt.client.drivers.driver_exchange import exchange
from yurt.client.drivers.driver_table import DriverTable, passage, wait_end
from yurt.sdk.driver import ExitResult, Fingerprint, TaskHandle
from yurt.sdk.errors import Conflict, NotFound
from yurt.testing.driver_suite import DriverBench
from yurt_driver_mock.config import PluginOptions
from yurt_driver_mock.driver import MockDriver

LIMIT_S = 60.0


class Forgetful(MockDriver):
    """New code that finds no task."""

    async def recover_task(self, handle: TaskHandle) -> None:
        raise NotFound("who?")


class Sick(MockDriver):
    """New code that does not work here."""

    async def fingerprint(self):  # type: ignore[no-untyped-def]
        yield Fingerprint(health="unhealthy", description="no disk", fix="buy one")


@pytest.fixture
def bench(tmp_path: Path) -> DriverBench:
    """A mock driver and tasks for it."""
    return DriverBench(lambda context: MockDriver(PluginOptions()), tmp_path)


async def test_a_wait_goes_on_at_the_new_driver(bench: DriverBench) -> None:
    table = DriverTable({"mock_driver": bench.driver})
    handle = await bench.start({"run_for": "1h"})
    waiting = asyncio.ensure_future(wait_end(table, "mock_driver", handle.task_id))
    new = MockDriver(PluginOptions())
    await asyncio.sleep(0)

    kept = await exchange(
        table, {"mock_driver": new}, handles=lambda: {"mock_driver": [handle]}, remake=dict
    )  # fmt: skip
    assert (kept, table["mock_driver"]) == (1, new)
    assert not waiting.done()
    await new.signal_task(handle.task_id, "SIGKILL")
    assert (await asyncio.wait_for(waiting, LIMIT_S)).signal == 9


async def test_work_that_comes_meanwhile_waits_for_the_new_driver(bench: DriverBench) -> None:
    table = DriverTable({"mock_driver": bench.driver})
    seen: list[object] = []

    async def work() -> None:
        async with passage(table, "mock_driver"):
            seen.append(table["mock_driver"])

    async with table.gate("mock_driver").closed("test"):
        working = asyncio.ensure_future(work())
        await asyncio.sleep(0.01)
        assert seen == []
        new = MockDriver(PluginOptions())
        table.put({"mock_driver": new})
    await asyncio.wait_for(working, LIMIT_S)
    assert seen == [new]


@pytest.mark.parametrize(("broken", "reason"), [(Forgetful, "who?"), (Sick, "no disk")])
async def test_the_old_code_goes_on(bench: DriverBench, broken: type[MockDriver], reason: str) -> None:
    table = DriverTable({"mock_driver": bench.driver})
    handle = await bench.start({"run_for": "1h"})
    waiting = asyncio.ensure_future(wait_end(table, "mock_driver", handle.task_id))
    await asyncio.sleep(0)

    with pytest.raises(Conflict, match=reason):
        await exchange(
            table, {"mock_driver": broken(PluginOptions())}, handles=lambda: {"mock_driver": [handle]},
            remake=lambda: {"mock_driver": MockDriver(PluginOptions())},
        )  # fmt: skip
    await table["mock_driver"].signal_task(handle.task_id, "SIGKILL")
    ended: ExitResult = await asyncio.wait_for(waiting, LIMIT_S)
    assert ended.signal == 9
