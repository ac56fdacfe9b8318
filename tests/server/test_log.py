"""The one writer: batches, refusals, restarts, leadership."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from yurt.fsm.snapshot import digest
from yurt.sdk.errors import NotFound, Unavailable
from yurt.server.log import snapshots
from yurt.server.log.event_buffer import Event, EventBuffer
from yurt.server.log.log_writer import LogWriter
from yurt.server.results import ConfigurationSet
from yurt.storage import snapshot_files
from yurt.storage.log import Leadership
from yurt.storage.memory import MemoryLog
from yurt.storage.sqlite import SqliteLog
from yurt.structs.cluster import SchedulerConfiguration
from yurt.structs.commands import (
    AnyCommand,
    KeepAlive,
    RegisterJob,
    SetJobStability,
    SetSchedulerConfiguration,
)
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv, eventually


class FailingLog(MemoryLog):
    """A log whose disk fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.sizes: list[int] = []

    async def append(
        self, first_index: int, commands: Sequence[AnyCommand], encoded: Sequence[msgspec.Raw] = ()
    ) -> None:
        if self.failure is not None:
            raise self.failure
        await asyncio.sleep(0)
        self.sizes.append(len(commands))
        await super().append(first_index, commands, encoded)


class FlappingLog(MemoryLog):
    """A log whose leadership the test gives and takes."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: asyncio.Queue[bool] = asyncio.Queue()

    async def campaign(self) -> AsyncIterator[Leadership]:
        yield Leadership(is_leader=True)
        while True:
            yield Leadership(is_leader=await self.turns.get())


async def test_proposals_that_wait_are_stored_together_in_order() -> None:
    log, env_changes = FailingLog(), []
    writer = LogWriter(log, on_applied=lambda c, *_: env_changes.append(c), on_batch=lambda _: None, on_failed=print)
    writer.open()
    async with asyncio.TaskGroup() as group:
        run = group.create_task(writer.run())
        tasks = [group.create_task(writer.propose(KeepAlive())) for _ in range(50)]
        await asyncio.wait(tasks)
        run.cancel()
    assert [task.result().index for task in tasks] == list(range(1, 51))
    assert len(log.sizes) <= 2
    assert len(env_changes) == 50


async def test_a_rejected_command_is_raised_as_its_kind_and_takes_its_index(bench: Any) -> None:
    before = bench.server.state.index
    with pytest.raises(NotFound):
        await bench.server.replica.propose(SetJobStability(namespace="default", job_id="none", version=0, stable=True))
    assert bench.server.state.index == before + 1
    configuration = SchedulerConfiguration(scheduler_algorithm="spread")
    done = await bench.server.resources.system.set_scheduler_config(configuration, check_index=99)
    assert done == ConfigurationSet(is_updated=False, index=before + 2)


async def test_a_log_that_failed_once_acknowledges_nothing_more(run_server: Any) -> None:
    log = FailingLog()
    async with run_server(log, dev=True) as bench:
        log.failure = OSError("no space left on device")
        with pytest.raises(Unavailable, match="no space left"):
            await bench.server.replica.propose(KeepAlive())
        log.failure = None
        with pytest.raises(Unavailable, match="restart the agent"):
            await bench.server.replica.propose(KeepAlive())
        await eventually(lambda: not bench.server.is_leader)


async def test_losing_and_gaining_leadership_again_leaves_one_set_of_duties(run_server: Any) -> None:
    log = FlappingLog()
    async with run_server(log, dev=True) as bench:
        for leads in (False, True, False):
            log.turns.put_nowait(leads)
        await eventually(lambda: not bench.server.is_leader)
        with pytest.raises(Unavailable, match="No cluster leader"):
            await bench.server.replica.propose(KeepAlive())
        log.turns.put_nowait(True)
        await eventually(lambda: bench.server.is_leader)
        await bench.add_node()
        await bench.server.resources.jobs.register(factories.job())
        await bench.until(lambda: len(bench.live()) == 1)
        loops = [task.get_name() for task in asyncio.all_tasks()]
        assert loops.count("plan applier") == 1


async def test_a_restarted_server_has_the_same_state_and_goes_on(run_server: Any) -> None:
    log, env = MemoryLog(), FakeEnv()
    async with run_server(log, env) as bench:
        await bench.server.resources.jobs.register(factories.job())
        await bench.idle()
        before = digest(bench.server.state)
    async with run_server(log, env) as bench:
        assert digest(bench.server.state) == before
        await bench.add_node()
        await bench.until(lambda: len(bench.live()) == 1)


async def test_what_was_acknowledged_survives_a_restart_from_disk(run_server: Any, tmp_path: Path) -> None:
    env = FakeEnv()
    async with run_server(SqliteLog(tmp_path / "log.db"), env, data_dir=str(tmp_path)) as bench:
        await bench.add_node()
        await bench.server.resources.jobs.register(factories.job())
        await bench.until(lambda: len(bench.live()) == 1)
        # The evaluation ends after its plan, and the leader makes the first root key beside all else.
        await bench.idle()
        await bench.until(lambda: len(bench.server.state.root_keys) == 1)
        before = digest(bench.server.state)
    async with run_server(SqliteLog(tmp_path / "log.db"), env, data_dir=str(tmp_path)) as bench:
        assert digest(bench.server.state) == before


async def test_a_blocking_query_answers_with_what_is_newer_or_when_its_time_is_over(bench: Any) -> None:
    server = bench.server

    def index_of(state: Any) -> int:
        return int(state.jobs.index)

    start = index_of(server.state)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(server.replica.wait_past([("jobs",)], index_of, min_index=start, timeout_s=5))
        await server.replica.propose(KeepAlive())
        assert not waiting.done()
        await server.replica.propose(RegisterJob(job=factories.job()))
    assert index_of(waiting.result()) > start
    late = await server.replica.wait_past([("jobs",)], index_of, min_index=10_000, timeout_s=0.01)
    assert index_of(late) <= 10_000


async def test_indexes_never_go_down_for_a_reader(bench: Any) -> None:
    seen: list[int] = []
    async with asyncio.TaskGroup() as group:

        async def read() -> None:
            while len(seen) < 200:
                seen.append(bench.server.state.index)
                await asyncio.sleep(0)

        group.create_task(read())
        for _ in range(40):
            await bench.server.replica.propose(KeepAlive())
    assert seen == sorted(seen)


async def test_configured_scheduler_settings_hold_until_others_are_stored(run_server: Any) -> None:
    configured = SchedulerConfiguration(scheduler_algorithm="spread")
    log = MemoryLog()
    async with run_server(log, scheduler_config=configured) as bench:
        assert bench.server.state.scheduler_config.scheduler_algorithm == "spread"
        await bench.server.replica.propose(SetSchedulerConfiguration(configuration=SchedulerConfiguration()))
    async with run_server(log, scheduler_config=configured) as bench:
        assert bench.server.state.scheduler_config.scheduler_algorithm == "binpack"


async def test_a_subscriber_gets_the_buffer_first_and_then_what_comes() -> None:
    buffer = EventBuffer(3)
    for index in range(1, 6):
        buffer.add(Event(index, (), None))
    stream = buffer.subscribe(0)
    assert [(await anext(stream)).index for _ in range(3)] == [3, 4, 5]
    async with asyncio.TaskGroup() as group:
        following = group.create_task(anext(stream))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        buffer.add(Event(6, (), None))
    assert following.result().index == 6
    from_four = buffer.subscribe(5)
    assert (await anext(from_four)).index == 5
    await stream.aclose()  # type: ignore[attr-defined]
    await from_four.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("trailing", "first"), [(5, 51), (80, 21)])
async def test_a_snapshot_leaves_what_is_configured_and_what_the_snapshot_before_it_needs(
    run_server: Any, tmp_path: Path, trailing: int, first: int
) -> None:
    for _ in range(2):
        async with run_server(SqliteLog(tmp_path / "log.db"), trailing_entries=trailing) as bench:
            for _ in range(50):
                await bench.server.replica.propose(KeepAlive())

    reopened = SqliteLog(tmp_path / "log.db")
    found = await reopened.open()
    await reopened.close()
    # The first entry is the ID of the cluster.
    assert (found.snapshot_index, found.last_index, found.first_index) == (101, 101, first)


async def test_damage_on_disk_has_the_state_saved_again(
    run_server: Any, tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An hour of virtual time wakes thousands of other sleepers first.
    monkeypatch.setattr(snapshots, "SCRUB_INTERVAL_S", 10.0)
    async with run_server(SqliteLog(tmp_path / "log.db")) as bench:
        for _ in range(50):
            await bench.server.replica.propose(KeepAlive())
        with closing(sqlite3.connect(tmp_path / "log.db")) as connection, connection:
            connection.execute("UPDATE entries SET digest = x'00' WHERE first_index = 20")
        for _ in range(100):  # the first scrub may begin to wait after the first step of the clock
            await bench.env.advance(10.0)
            # Only named: to ask for the newest whole one removes what the server is writing.
            if any(int(path.stem) >= 50 for path in (tmp_path / "snapshots").glob("*.snapshot")):
                break
            await asyncio.sleep(0.05)
    assert snapshot_files.newest_index(tmp_path / "snapshots") >= 50
    assert "the log is damaged at index 20" in caplog.text
    async with run_server(SqliteLog(tmp_path / "log.db")) as bench:
        assert bench.server.state.index >= 50
