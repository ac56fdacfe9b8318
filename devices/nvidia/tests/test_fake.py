"""The fake itself, for those who test plugins of their own with it: by the real bindings, as they would."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pynvml
import pytest
from yurt.testing.agent import wait_for
from yurt_device_nvidia import fake
from yurt_device_nvidia.nvml import Nvml, NvmlProblem


@pytest.fixture
def installed() -> Iterator[None]:
    """Takes the fake away again."""
    yield
    fake.uninstall()


@pytest.mark.parametrize("name", sorted(fake.LAYOUTS))
def test_every_layout_is_read_whole(name: str, installed: None) -> None:
    nvml = Nvml(f"fake:{name}")
    nvml.open()
    look = nvml.look()

    assert len(look.cards) == len(fake.layout(name)["gpus"])
    assert not any(condition.lost for condition in look.conditions.values())
    assert len({card.pci_bus_id for card in look.cards}) == len(look.cards)
    assert all(nvml.use(device) for card in look.cards for device in card.devices)
    nvml.close()


def test_an_unknown_layout_names_those_that_there_are() -> None:
    with pytest.raises(KeyError, match="dgx-a100"):
        fake.layout("toaster")


def test_a_series_moves_on_with_time_and_stays_at_its_end(tmp_path: Path, installed: None) -> None:
    machine = fake.layout("h200")
    machine["gpus"][0]["temperature"] = {"series": [30, 50, 70], "step_s": 0.02}
    machine["gpus"][0]["power_w"] = {"series": [100, 200], "step_s": 0.02, "loop": True}
    fake.write(tmp_path / "machine.json", machine)
    fake.install(tmp_path / "machine.json")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    seen = [pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)]

    assert wait_for("the end", lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU) == 70)
    assert seen[0] in (30, 50, 70)
    assert [wait_for("the loop", partial(uses_power, handle, watts)) for watts in (100, 200, 100)] == [True] * 3


def uses_power(handle: Any, watts: int) -> bool:
    return bool(pynvml.nvmlDeviceGetPowerUsage(handle) == watts * 1000)


def test_handles_stay_while_other_cards_come_and_go(tmp_path: Path, installed: None) -> None:
    path = tmp_path / "machine.json"
    fake.write(path, fake.layout("l40s-pairs"))
    fake.install(path)
    pynvml.nvmlInit()
    last = pynvml.nvmlDeviceGetHandleByIndex(3)
    name = pynvml.nvmlDeviceGetUUID(last)
    fake.change(path, lambda state: state["gpus"][0].update(gone=True))

    assert pynvml.nvmlDeviceGetCount() == 3
    assert (pynvml.nvmlDeviceGetUUID(last), pynvml.nvmlDeviceGetIndex(last)) == (name, 2)


def test_a_function_can_be_missing_or_fail_for_one_card(installed: None) -> None:
    machine = fake.layout("l40s-pairs")
    machine["missing_functions"] = ["nvmlDeviceGetSerial"]
    machine["gpus"][1]["errors"] = {"nvmlDeviceGetPowerUsage": "NOT_SUPPORTED"}
    fake.install(machine)
    pynvml.nvmlInit()
    first, second = (pynvml.nvmlDeviceGetHandleByIndex(number) for number in (0, 1))

    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetSerial(first)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetPowerUsage(second)
    assert pynvml.nvmlDeviceGetPowerUsage(first) == 71_300


def test_a_waiter_on_another_thread_is_woken_by_an_event(tmp_path: Path, installed: None) -> None:
    path = tmp_path / "machine.json"
    fake.write(path, fake.layout("h200"))
    fake.install(path)
    pynvml.nvmlInit()
    events = pynvml.nvmlEventSetCreate()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    seen: list[int] = []
    waiter = threading.Thread(target=lambda: seen.append(int(pynvml.nvmlEventSetWait(events, 5000).eventData)))
    waiter.start()
    event = {"seq": 1, "gpu": pynvml.nvmlDeviceGetUUID(handle), "kind": "xid", "data": 63}
    fake.change(path, lambda state: state["events"].append(event))
    waiter.join(5)

    assert seen == [63]


def test_a_file_that_is_being_spoilt_leaves_what_was_known(tmp_path: Path, installed: None) -> None:
    path = tmp_path / "machine.json"
    fake.write(path, fake.layout("h200"))
    nvml = Nvml(f"fake:{path}")
    nvml.open()
    path.write_text("{")

    assert len(nvml.look().cards) == 1
    nvml.close()
    with pytest.raises(NvmlProblem, match="cannot be read"):
        Nvml(f"fake:{path}").open()
