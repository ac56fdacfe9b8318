"""What cards do, through the real bindings: GPM where there is one, counters of older cards, and nothing invented."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.value import UnixNano
from yurt_device_nvidia import fake
from yurt_device_nvidia.activity import CardActivity
from yurt_device_nvidia.fake.activity import FakeGpm
from yurt_device_nvidia.nvml import Nvml
from yurt_device_nvidia.usage_statistics import device_use

MakeNvml = Callable[..., Nvml]
MIB = 1 << 20


def busy(layout: str, **changes: Any) -> list[dict[str, Any]]:
    """The cards of a layout, the first changed."""
    gpus: list[dict[str, Any]] = fake.layout(layout)["gpus"]
    gpus[0] |= {"utilization": {"gpu": 100, "memory": 30, "encoder": 0, "decoder": 0}, **changes}
    return gpus


def second_measurement(opened: Nvml, uuid: str) -> CardActivity:
    """What the second of two measurements says."""
    first, _ = opened.use(uuid), time.sleep(0.02)
    assert first is not None
    use = opened.use(uuid)
    assert use is not None
    return use.activity


def test_gpm_gives_means_between_two_measurements(nvml: MakeNvml) -> None:
    gpm = {"sm": 1.5, "dram": 20, "pcie_tx": 3, "pcie_rx": 4, "nvlink_tx": 10, "nvlink_rx": 5}
    opened = nvml("h100x8", gpus=busy("h100x8", gpm=gpm))
    card = opened.look().cards[0]
    first = opened.use(card.uuid)
    assert first is not None
    assert first.activity.sm_percent is None
    second = second_measurement(opened, card.uuid)

    assert (second.sm_percent, second.dram_percent) == (1.5, 20.0)
    assert (second.pcie, second.nvlink) == (7 * MIB, 15 * MIB)


def test_samples_are_freed(nvml: MakeNvml) -> None:
    import pynvml

    opened = nvml("h100x8")
    card = opened.look().cards[0]
    for _ in range(5):
        opened.use(card.uuid)
    gpm = pynvml.nvmlLib.parts["gpm"]
    assert isinstance(gpm, FakeGpm)
    assert (gpm.allocated, len(gpm.samples)) == (5, 1)
    opened.close()
    assert gpm.samples == {}


def test_a_card_before_hopper_says_what_its_links_carry(nvml: MakeNvml) -> None:
    gpus = busy("a6000-bridged", gpm={"pcie_tx": 2, "pcie_rx": 1, "nvlink_tx": 100, "nvlink_rx": 100})
    opened = nvml("a6000-bridged", gpus=gpus)
    found = second_measurement(opened, opened.look().cards[0].uuid)

    assert (found.sm_percent, found.dram_percent, found.pcie) == (None, None, 3 * MIB)
    assert found.nvlink == pytest.approx(200 * MIB, rel=0.2)


def test_energy_grows_by_the_power(nvml: MakeNvml) -> None:
    opened = nvml("h200", gpus=busy("h200", power_w=100_000))
    card = opened.look().cards[0]
    first = opened.use(card.uuid)
    begin = time.monotonic()
    time.sleep(0.05)
    second = opened.use(card.uuid)
    joules = 100_000 * (time.monotonic() - begin)

    assert first is not None
    assert second is not None
    assert second.activity.energy_j is not None
    assert second.activity.energy_j - (first.activity.energy_j or 0.0) == pytest.approx(joules, rel=0.3)


def test_throttling_has_its_reasons(nvml: MakeNvml) -> None:
    opened = nvml("h200", gpus=busy("h200", throttle=["hw_thermal", "sw_power"]))

    assert second_measurement(opened, opened.look().cards[0].uuid).throttling == ("sw_power", "hw_thermal")


def test_an_instance_of_a_split_card_has_its_part(nvml: MakeNvml) -> None:
    gpus = busy("mig-split", gpm={"sm": 40}, power_w=100_000)
    opened = nvml("mig-split", gpus=gpus)
    card = opened.look().cards[0]
    instance = card.migs[0]
    found = second_measurement(opened, instance.uuid)
    whole = opened.use(card.uuid)

    assert found.sm_percent == 40.0
    assert found.nvlink == 0.0
    assert whole is not None
    assert found.energy_j is not None
    assert whole.activity.energy_j is not None
    assert found.energy_j < whole.activity.energy_j


def test_an_old_driver_knows_less(nvml: MakeNvml, machine: Path) -> None:
    missing = [name for name in fake.library.CALLS if "Gpm" in name or "Energy" in name or "Throughput" in name]
    opened = nvml("h200", missing_functions=[*missing, "nvmlDeviceGetCurrentClocksEventReasons"])
    found = second_measurement(opened, opened.look().cards[0].uuid)

    assert found == CardActivity()


def test_figures_have_the_names_that_the_client_reads(nvml: MakeNvml) -> None:
    opened = nvml("h100x8", gpus=busy("h100x8", gpm={"sm": 5, "dram": 12}, throttle=["sw_power"]))
    card = opened.look().cards[0]
    opened.use(card.uuid)
    use = opened.use(card.uuid)
    assert use is not None
    stats = device_use(use, UnixNano(1)).stats

    assert (stats["SM utilization"].value, stats["GPU utilization"].value) == (5.0, 100)
    assert (stats["Memory utilization"].value, stats["Throttling"].value) == (12.0, "sw_power")
    assert {"Energy", "PCIe traffic", "NVLink traffic"} <= stats.keys()
