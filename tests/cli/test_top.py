"""`yurt top`: rows from API documents, pictures that fit the terminal, keys, and one picture without a terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.cli.views.top.frame import Choice, Sample, frame, pressed
from yurt.cli.views.top.usage_rows import UsageRow, alloc_row, job_rows, node_row, ordered

GPU = {"Name": "H100", "InstanceStats": {"g0": {
    "Summary": {"IntNumeratorVal": 512, "IntDenominatorVal": 81920, "Unit": "MiB"},
    "Stats": {"Attributes": {
        "GPU utilization": {"IntNumeratorVal": 100}, "SM utilization": {"FloatNumeratorVal": 25.0},
        "Power usage": {"FloatNumeratorVal": 300.5}}}}}}  # fmt: skip
STUB = {
    "ID": "aaaaaaaa-1", "Name": "train.w[0]", "Namespace": "vision", "ClientStatus": "running", "NodeID": "n" * 36,
    "NodeName": "n1", "JobID": "train",
    "AllocatedResources": {"Tasks": {"main": {
        "Cpu": {"CpuShares": 500}, "Memory": {"MemoryMB": 300},
        "Devices": [{"DeviceIDs": ["g0"]}, {"DeviceIDs": ["g1"], "Share": "mps", "Compute": 50, "MemoryMB": 1000}],
    }}},
}  # fmt: skip
STATS = {"ResourceUsage": {
    "CpuStats": {"TotalTicks": 250.0}, "MemoryStats": {"RSS": 100 << 20}, "DeviceStats": [GPU]}}  # fmt: skip


def row(name: str = "a", **fields: Any) -> UsageRow:
    return UsageRow(id=name, name=name, namespace="default", status="running", place="n1", **fields)


def test_an_allocation_is_what_it_uses_of_what_it_booked() -> None:
    found = alloc_row(STUB, STATS)

    assert (found.cpu_mhz, found.cpu_booked_mhz, found.memory_mb, found.memory_booked_mb) == (250.0, 500, 100.0, 300)
    assert (found.gpus, found.gpu_percent, found.vram_mb, found.power_w) == (1.5, 25.0, 512.0, 300.5)


def test_one_that_was_not_measured_is_unknown_and_last() -> None:
    unknown = alloc_row(STUB, None)

    assert (unknown.cpu_mhz, unknown.gpu_percent, unknown.vram_mb) == (None, None, None)
    for is_reversed in (False, True):
        assert ordered([unknown, row(cpu_mhz=0.0)], "cpu", is_reversed=is_reversed)[-1] is unknown


def test_jobs_add_up_their_allocations() -> None:
    members = [row("a", cpu_mhz=1.0, gpus=1.0, gpu_percent=100.0), row("b", cpu_mhz=2.0, gpus=3.0, gpu_percent=0.0)]
    (found,) = job_rows(members, {"a": "train", "b": "train"})

    assert (found.name, found.place, found.cpu_mhz, found.gpus, found.gpu_percent) == ("train", "2", 3.0, 4.0, 25.0)


def test_a_node_is_its_host() -> None:
    stub = {
        "ID": "n1",
        "Name": "n1",
        "Status": "ready",
        "NodeResources": {"Devices": [{"Type": "gpu", "Instances": [1]}]},
    }
    found = node_row(stub, {"CPUTicksConsumed": 5.0, "Memory": {"Used": 3 << 20}, "DeviceStats": [GPU]})

    assert (found.cpu_mhz, found.memory_mb, found.gpus, found.vram_booked_mb) == (5.0, 3.0, 1.0, 81920.0)


@given(st.integers(1, 300), st.integers(1, 80), st.integers(0, 60), st.integers(0, 100))
def test_a_picture_fits_its_terminal(width: int, height: int, count: int, first: int) -> None:
    rows = tuple(row(f"job-{number}\x1b[2J", cpu_mhz=1.0) for number in range(count))
    lines = frame(Sample(rows, "now", "measured 1 of 2"), Choice(first=first), (width, height))

    assert len(lines) == max(height, 6)
    assert all(len(line) <= max(width, 20) for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_keys_choose_sort_scroll_hold_and_end() -> None:
    choice: Choice | None = Choice()
    for key in ("j", "m", "down", "down", "up", " ", "r", "x"):
        assert choice is not None
        choice = pressed(choice, key, page=10)

    assert choice == Choice(view="jobs", sort="memory", is_reversed=True, is_frozen=True, first=1)
    assert pressed(Choice(), "q", page=10) is None


@pytest.fixture
def cluster(api: Any) -> Any:
    api.answers |= {
        "/v1/allocations": [STUB, STUB | {"ID": "bbbbbbbb-2", "Name": "train.w[1]"}],
        "/v1/client/allocation/aaaaaaaa-1/stats": STATS,
        "/v1/nodes": [],
    }
    return api


def test_without_a_terminal_there_is_one_picture(cluster: Any, run: Any) -> None:
    code, out, _ = run("top", "-sort=cpu")

    assert code == 0
    assert "250/500" in out and "[||        ]  25%" in out and "300 W" in out
    assert "measured 1 of 2, - is unknown" in out


def test_json_has_the_rows(cluster: Any, run: Any) -> None:
    code, out, _ = run("top", "-json", "-view=jobs")
    document = json.loads(out)

    assert code == 0
    assert [(each["ID"], each["CPUMHz"], each["GPUs"]) for each in document["Rows"]] == [("train", 250.0, 3.0)]


def test_a_wrong_word_has_the_right_ones(api: Any, run: Any) -> None:
    code, _, err = run("top", "-view=node")
    assert code == 1
    assert "-view=node is unknown" in err and "allocs, jobs, nodes" in err
    code, _, err = run("top", "-interval=fast")
    assert code == 1 and '"fast" is not a duration' in err
