"""What tasks, devices and the host used in the last minutes is kept within bounds, and only for what runs."""

from __future__ import annotations

import pytest
from yurt.client import usage_history
from yurt.client.allocations.memory_pressure import MemoryPressure
from yurt.client.sample_ring import SAMPLES_MAX, SampleRing
from yurt.client.usage_history import UsageSamples, busy_share, device_figures
from yurt.sdk.driver import ExitResult, TaskStats
from yurt.sdk.errors import NotFound
from yurt.structs.rpc import DeviceGroupStats, DeviceStats, StatObject, StatValue
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING, JOB_BATCH
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fake_devices import FakeDevices
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

from tests.client.conftest import MakeClient
from tests.client.devices.test_client_devices import MIB, given

BUSY = DeviceStats(
    summary=StatValue(int_numerator_val=512, int_denominator_val=1024, unit="MiB"),
    stats=StatObject(attributes={"GPU utilization": StatValue(int_numerator_val=37, unit="%")}),
)


def test_a_ring_drops_the_oldest_sample_and_knows_what_is_missing() -> None:
    ring = SampleRing(1)
    for at in range(SAMPLES_MAX + 2):
        ring.add(at, None if at == 2 else at / 2)

    assert (ring.at[0], len(ring.at)) == (2, SAMPLES_MAX)
    assert ring.column(0)[:2] == (None, 1.5)


def test_a_series_has_the_devices_that_were_there_at_each_time() -> None:
    series = UsageSamples()
    series.add(1, cpu_mhz=10.0, memory_bytes=5, devices=())
    series.add(2, cpu_mhz=20.0, memory_bytes=6, devices=[DeviceGroupStats(name="H100", instance_stats={"g0": BUSY})])
    sent = series.value()

    assert (sent.at, sent.cpu, sent.memory_bytes) == ((1, 2), (10.0, 20.0), (5.0, 6.0))
    assert (sent.devices["g0"].at, sent.devices["g0"].memory_mb, sent.devices["g0"].busy_percent) == (
        (2,),
        (512.0,),
        (37.0,),
    )


def test_a_device_without_figures_has_none() -> None:
    assert device_figures(DeviceStats(summary=StatValue(float_numerator_val=3.5, unit="W"))) == (None, None)


def test_the_processors_work_where_they_neither_idle_nor_wait() -> None:
    before = {"user": 10.0, "idle": 10.0, "iowait": 0.0, "guest": 5.0}
    after = {"user": 13.0, "idle": 15.0, "iowait": 2.0, "guest": 8.0}

    assert busy_share(before, after) == pytest.approx(0.3)
    assert busy_share(after, after) == 0.0


async def test_a_client_keeps_samples_of_what_runs(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    plugin = FakeDevices("f0")
    plugin.use("f0", {7: 3 * MIB})
    async with run_client(devices={"fake": plugin}) as client:
        alloc = given(placed(client.node_id, job=factories.job(type=JOB_BATCH)), "f0")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        await client.calls.history.sample()
        kept = await client.calls.alloc_usage_history(alloc.id, "")
        host = (await client.calls.host_usage_history()).host
        with pytest.raises(NotFound):
            await client.calls.alloc_usage_history(alloc.id, "nobody")
        driver.finish(driver.host.starts[0], ExitResult(exit_code=0))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        await eventually(lambda: all(runner.is_over for runner in client.allocs.live.values()))
        await client.calls.history.sample()
        after = await client.calls.alloc_usage_history(alloc.id, "")

    (series,) = kept.tasks.values()
    assert series.at and set(series.devices["f0"].memory_mb) == {3.0}
    assert host.memory_bytes[0] and host.devices["f0"].at
    assert after.tasks == {}


async def test_a_driver_that_fails_once_costs_one_sample(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_history, "INTERVAL_S", 0.01)
    stats, calls = driver.task_stats, [0]

    async def failing_once(task_id: str) -> TaskStats:
        calls[0] += 1
        if calls[0] == 1:
            raise ValueError("no JSON")
        return await stats(task_id)

    monkeypatch.setattr(driver, "task_stats", failing_once)
    async with run_client() as client:
        server.put_alloc(placed(client.node_id))
        await eventually(lambda: calls[0] > 1)


async def test_a_task_about_which_its_driver_fails_costs_no_other_its_usage(
    run_client: MakeClient,
    server: FakeServerPort,
    driver: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with run_client() as client:
        allocs = [placed(client.node_id) for _ in range(3)]
        for alloc in allocs:
            server.put_alloc(alloc)
        await eventually(lambda: all(server.status_of(alloc.id) == CLIENT_RUNNING for alloc in allocs))
        stats, bad = driver.task_stats, client.allocs.live[allocs[0].id].tasks["web"].task_id(0)

        async def failing(task_id: str) -> TaskStats:
            if task_id == bad:
                raise ValueError("no JSON")
            return await stats(task_id)

        monkeypatch.setattr(driver, "task_stats", failing)
        for _ in range(3):
            await client.calls.history.sample()
        measured = [alloc for alloc in allocs if (await client.calls.alloc_usage_history(alloc.id, "")).tasks]
        assert measured == allocs[1:] and (await client.calls.host_usage_history()).host.at
    assert caplog.text.count("usage of task web") == 1, "it is logged once"


async def test_an_option_keeps_nothing(run_client: MakeClient) -> None:
    async with run_client(options={"usage_history": "off"}) as client:
        assert (await client.calls.host_usage_history()).host.at == ()


@pytest.mark.parametrize("is_off", [False, True])
async def test_memory_pressure_is_looked_for_unless_an_option_says_off(
    run_client: MakeClient, server: FakeServerPort, monkeypatch: pytest.MonkeyPatch, is_off: bool
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(MemoryPressure, "take", lambda self, runner, *_: seen.append(runner.name))
    async with run_client(options={"memory_pressure": "off"} if is_off else {}) as client:
        alloc = placed(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        seen.clear()
        await client.calls.history.sample()
    assert bool(seen) is not is_off


async def test_devices_are_not_asked_where_nothing_keeps_their_use(
    run_client: MakeClient, server: FakeServerPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    async def counted(*arguments: object) -> tuple[DeviceGroupStats, ...]:
        asked.append(arguments)
        return ()

    monkeypatch.setattr("yurt.client.allocations.usage.task_device_stats", counted)
    async with run_client(options={"usage_history": "off"}) as client:
        alloc = placed(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        assert await client.calls.history.sample(keeps=False) == 1
    assert not asked
