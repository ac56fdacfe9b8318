"""The use of a shared card by one task: its own processes where the plugin tells them apart, else the card's."""

from __future__ import annotations

import os

from yurt.client.devices.process_owners import LiveTask
from yurt.client.devices.task_stats import WHOLE_CARD, is_attributed, own_uses
from yurt.sdk.device import (
    GPU_UTILIZATION,
    MEMORY_UTILIZATION,
    SM_UTILIZATION,
    DeviceProcess,
    DeviceUse,
    Stat,
)
from yurt.sdk.value import UnixNano, replace

MIB = 1 << 20
FOREIGN_PID = 1
TASK = LiveTask(alloc_id="a", task_name="t", task_id="a/t", pid=os.getpid())


def card(*processes: DeviceProcess) -> DeviceUse:
    """A card that is busy for 90 % of the time."""
    stats = {
        GPU_UTILIZATION: Stat(value=90, unit="%", description="busy"),
        SM_UTILIZATION: Stat(value=60.0, unit="%", description="multiprocessors"),
        MEMORY_UTILIZATION: Stat(value=40, unit="%", description="memory"),
    }
    return DeviceUse(at=UnixNano(1), summary=Stat(value=0, unit="MiB"), stats=stats, processes=processes)


def own_stats(use: DeviceUse) -> dict[str, float | str]:
    """The task's figures of its half of the card."""
    stats = own_uses(TASK, {"g0": 1024}, {"g0": use})["g0"].stats
    return {name: stats[name].value for name in (GPU_UTILIZATION, SM_UTILIZATION, MEMORY_UTILIZATION)}


def test_the_load_of_other_processes_is_not_the_tasks() -> None:
    mine = DeviceProcess(pid=os.getpid(), memory_bytes=100 * MIB, busy_percent=20.0, memory_percent=10.0)
    other = DeviceProcess(pid=FOREIGN_PID, memory_bytes=200 * MIB, busy_percent=60.0, memory_percent=30.0)

    assert own_stats(card(mine, other)) == {GPU_UTILIZATION: 20.0, SM_UTILIZATION: 15.0, MEMORY_UTILIZATION: 10.0}
    assert own_stats(card(other)) == {GPU_UTILIZATION: 0.0, SM_UTILIZATION: 0.0, MEMORY_UTILIZATION: 0.0}


def test_a_shared_card_that_nothing_uses_is_attributed() -> None:
    zero = {name: replace(stat, value=0) for name, stat in card().stats.items()}
    quiet = replace(card(), stats=zero)

    assert is_attributed(quiet) and own_stats(quiet) == dict.fromkeys(own_stats(quiet), 0.0)
    assert WHOLE_CARD not in own_uses(TASK, {"g0": 1024}, {"g0": quiet})["g0"].stats[GPU_UTILIZATION].description
    assert not is_attributed(card()), "its load is of processes that are not seen"


def test_without_figures_by_process_the_cards_are_shown_and_say_so() -> None:
    mine = DeviceProcess(pid=os.getpid(), memory_bytes=100 * MIB)
    found = own_uses(TASK, {"g0": 1024}, {"g0": card(mine)})["g0"]

    assert found.summary.value == 100
    assert (found.stats[GPU_UTILIZATION].value, found.stats[SM_UTILIZATION].value) == (90, 60.0)
    assert found.stats[GPU_UTILIZATION].description == f"busy; {WHOLE_CARD}"
