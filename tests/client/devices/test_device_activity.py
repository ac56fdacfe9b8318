"""What cards of running allocations do is kept by the minute and in sums; what nobody reported stays unknown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given as cases
from hypothesis import strategies as st
from yurt.client.devices.activity import BUCKETS_MAX, CardHistory, card_parts, interval_of, together
from yurt.client.devices.readings import CardPart, Interval, Reading, elapsed, reading_of, with_memory, with_sample
from yurt.sdk.device import MPS, SLICE, ClaimedDevices, DeviceClaim, DeviceUse, Stat
from yurt.sdk.driver import ExitResult
from yurt.sdk.errors import DriverError, Invalid
from yurt.sdk.value import UnixNano
from yurt.structs.accounting.devices import DeviceAccounting
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING, JOB_BATCH
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fake_devices import FakeDevices
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

from tests.client.conftest import MakeClient
from tests.client.devices.test_client_devices import given

BUSY = Reading(busy_percent=100.0, sm_percent=50.0, memory_mb=1024.0, energy_j=10.0, throttling=("sw_power",))
SILENT = Reading(busy_percent=0.0, sm_percent=0.0, pcie=0.0, throttling=())


def use(**stats: Stat) -> DeviceUse:
    names = {name.replace("_", " "): stat for name, stat in stats.items()}
    return DeviceUse(at=UnixNano(1), summary=Stat(value=512, of=1024, unit="MiB"), stats=names)


def test_figures_are_read_by_name_and_unit() -> None:
    reading = reading_of(
        use(
            GPU_utilization=Stat(value=90, unit="%"),
            SM_utilization=Stat(value=12.5, unit="%"),
            Energy=Stat(value=3000, unit="mJ"),
            Throttling=Stat(value="sw_power, hw_thermal"),
            PCIe_traffic=Stat(value=5, unit="B/s"),
        )
    )

    assert (reading.busy_percent, reading.sm_percent, reading.memory_percent) == (90.0, 12.5, None)
    assert (reading.memory_mb, reading.memory_total_mb, reading.energy_j) == (512.0, 1024.0, 3.0)
    assert (reading.throttling, reading.pcie, reading.nvlink) == (("sw_power", "hw_thermal"), 5.0, None)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "much", True])
def test_nonsense_is_unknown(value: float | str) -> None:
    assert reading_of(use(GPU_utilization=Stat(value=value, unit="%"))).busy_percent is None


def test_a_full_gpu_utilization_does_not_hide_that_the_multiprocessors_rest() -> None:
    spinner = Reading(busy_percent=100.0, sm_percent=0.4, memory_percent=0.0)

    assert (spinner.active_percent, spinner.is_idle) == (0.4, True)


@pytest.mark.parametrize(
    "reading", [Reading(), Reading(memory_mb=5.0), Reading(sm_percent=0.0, pcie=2e6), Reading(sm_percent=3.0)]
)
def test_a_card_that_works_copies_or_is_unknown_is_not_idle(reading: Reading) -> None:
    assert not reading.is_idle


def test_sums_count_a_share_by_its_part() -> None:
    half = CardPart(device="g0", part=0.5, energy_part=0.25, memory_booked_mb=2048)
    total = with_sample(DeviceAccounting(), half, BUSY, Interval(seconds=10.0, energy_j=400.0))
    total = with_sample(total, half, SILENT, Interval(seconds=10.0))

    assert (total.measured_ms, total.busy_ms, total.idle_ms) == (10_000, 2_500, 5_000)
    assert (total.energy_mj, total.throttled_ms, dict(total.throttle_reasons)) == (100_000, 5_000, {"sw_power": 5_000})


def test_a_share_whose_own_load_is_known_counts_that_up_to_its_part() -> None:
    half = CardPart(device="g0", part=0.5, memory_booked_mb=2048)
    own = Reading(busy_percent=20.0, is_own=True)
    total = with_sample(DeviceAccounting(), half, own, Interval(seconds=10.0))
    assert (total.busy_ms, total.measured_ms, total.unattributed_ms) == (2_000, 5_000, 0)
    total = with_sample(total, half, Reading(busy_percent=90.0, is_own=True), Interval(seconds=10.0))
    assert (total.busy_ms, total.busy_percent) == (7_000, 70.0)


def test_the_load_of_a_whole_shared_card_is_marked_as_that() -> None:
    half = CardPart(device="g0", part=0.5, memory_booked_mb=2048)
    total = with_sample(DeviceAccounting(), half, Reading(busy_percent=100.0), Interval(seconds=10.0))
    assert (total.measured_ms, total.unattributed_ms) == (5_000, 5_000)
    whole = with_sample(DeviceAccounting(), CardPart(device="g0"), BUSY, Interval(seconds=10.0))
    assert whole.unattributed_ms == 0


def test_two_tasks_of_one_allocation_add_up_on_a_card() -> None:
    one = Reading(memory_mb=100.0, busy_percent=70.0, sm_percent=20.0, is_own=True)
    both = together(one, Reading(memory_mb=50.0, busy_percent=60.0, sm_percent=10.0, is_own=True))
    assert (both.memory_mb, both.busy_percent, both.sm_percent, both.is_own) == (150.0, 100.0, 30.0, True)
    assert not together(one, Reading(memory_mb=50.0)).is_own


def test_memory_has_its_peak_and_mean() -> None:
    total = with_memory(DeviceAccounting(), used_mb=100.0, booked_mb=400, seconds=10.0)
    total = with_memory(total, used_mb=300.0, booked_mb=400, seconds=30.0)

    assert (total.memory_booked_mb, total.memory_peak_mb, total.memory_mean_mb) == (400, 300, 250)


def test_unknown_activity_is_neither_busy_nor_idle() -> None:
    total = with_sample(DeviceAccounting(), CardPart(device="g0"), Reading(), Interval(seconds=10.0))

    assert (total.measured_ms, total.idle_ms, total.busy_percent) == (0, 0, None)


def test_energy_comes_from_the_counter_else_from_the_power() -> None:
    counter, power = Reading(energy_j=100.0), Reading(power_w=50.0)

    assert elapsed(counter, Reading(energy_j=160.0), 10.0).energy_j == 60.0
    assert elapsed(counter, Reading(energy_j=3.0), 10.0).energy_j is None
    assert elapsed(power, power, 10.0).energy_j == 500.0


def test_the_reasons_that_are_kept_are_bounded() -> None:
    many = Reading(throttling=tuple(f"reason{number}" for number in range(100)))
    total = with_sample(DeviceAccounting(), CardPart(device="g0"), many, Interval(seconds=1.0))

    assert len(total.throttle_reasons) == 17
    assert total.throttle_reasons["other"] == 84_000


@cases(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 200)), min_size=1, max_size=8))
def test_the_parts_of_a_card_never_take_more_energy_than_it(shares: list[tuple[int, int]]) -> None:
    claims = [
        DeviceClaim(alloc_id=f"a{number}", task_name="main", devices=(claimed(MPS, memory, compute),))
        for number, (compute, memory) in enumerate(shares)
    ]
    parts = card_parts(claims, {"g0": 100.0})

    assert sum(card.energy_part for cards in parts.values() for card in cards) <= 1.000001
    assert all(0.0 < card.part <= 1.0 for cards in parts.values() for card in cards)


def claimed(share: str, memory_mb: int, compute: int) -> ClaimedDevices:
    return ClaimedDevices(
        vendor="v", type="gpu", name="n", ids=("g0",), share=share, memory_mb=memory_mb, compute=compute
    )


def test_a_share_of_memory_alone_is_that_part_of_the_card() -> None:
    claim = DeviceClaim(alloc_id="a", task_name="main", devices=(claimed(SLICE, 25, 0),))

    assert card_parts([claim], {"g0": 100.0})["a"][0].part == 0.25
    assert card_parts([claim])["a"][0].part == 1.0


def test_a_history_has_means_by_the_minute_and_leaves_gaps() -> None:
    history = CardHistory(1000.0)
    history.add(10, UnixNano(1), 1000.0, (BUSY, None))
    history.add(10, UnixNano(2), 1010.0, (SILENT, 60.0))
    history.add(13, UnixNano(9), 1200.0, (Reading(), None))
    first, second = history.minutes()

    assert (first.samples, first.busy_percent, first.sm_percent, first.energy_j) == (2, 50.0, 25.0, 60.0)
    assert (first.memory_mb, first.memory_max_mb, first.throttled, first.pcie) == (1024.0, 1024.0, 0.5, 0.0)
    assert (second.at, second.clock_s, second.samples, second.active_percent) == (9, 1200.0, 1, None)


def test_a_history_is_bounded_to_a_day() -> None:
    history = CardHistory(0.0)
    for number in range(BUCKETS_MAX + 10):
        history.add(number, UnixNano(number), 60.0 * number, (SILENT, None))

    minutes = history.minutes()
    assert len(minutes) == BUCKETS_MAX + 1
    assert (minutes[0].at, minutes[-1].at) == (9, BUCKETS_MAX + 9)


def test_an_interval_that_is_no_duration_is_refused() -> None:
    assert interval_of({"usage_history.device_interval": "500ms"}) == 0.5
    with pytest.raises((Invalid, DriverError), match="device_interval"):
        interval_of({"usage_history.device_interval": "often"})


def figures(*, sm: float, joules: float) -> DeviceUse:
    return use(SM_utilization=Stat(value=sm, unit="%"), Energy=Stat(value=joules, unit="J"))


async def test_a_client_sums_what_the_devices_of_an_allocation_do(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    plugin = FakeDevices("f0")
    plugin.uses["f0"] = figures(sm=40.0, joules=10.0)
    async with run_client(devices={"fake": plugin}, options={"usage_history.device_interval": "100ms"}) as client:
        alloc = given(placed(client.node_id, job=factories.job(type=JOB_BATCH)), "f0")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        activity = client.context.activity
        await eventually(lambda: (activity.totals(alloc.id) or DeviceAccounting()).measured_ms > 0)
        (minutes,) = activity.minutes(alloc.id).values()
        usage = await client.calls.alloc_stats(alloc.id, "")
        driver.finish(driver.host.starts[0], ExitResult(exit_code=0))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        await eventually(lambda: activity.totals(alloc.id) is None)
        assert activity.minutes(alloc.id) == {}

    assert minutes[0].sm_percent == pytest.approx(40.0)
    assert usage.accounting is not None
    sent = server.last_update(alloc.id).accounting
    assert sent is not None
    assert sent.busy_ms == pytest.approx(sent.measured_ms * 0.4, abs=10)
