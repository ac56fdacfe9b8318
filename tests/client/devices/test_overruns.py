"""Who takes more of a shared device than was booked, and which task a process belongs to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.client.devices.overruns import GIB, amount, find_overruns, has_slices
from yurt.client.devices.process_owners import LiveTask, ProcessOwners, read_process
from yurt.sdk.device import MPS, SLICE, ClaimedDevices, DeviceClaim, DeviceProcess, DeviceUse, Stat
from yurt.sdk.value import UnixNano

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def claim(alloc: str, *ids: str, memory_mb: int = 20480, share: str = SLICE) -> DeviceClaim:
    devices = ClaimedDevices(vendor="nvidia", type="gpu", name="H100", ids=ids, share=share, memory_mb=memory_mb)
    return DeviceClaim(alloc_id=alloc, task_name="t", devices=(devices,))


def use(**by_pid: float) -> DeviceUse:
    """Use by processes, `p7=1.5` for 1.5 GiB of process 7."""
    processes = tuple(DeviceProcess(pid=int(name[1:]), memory_bytes=int(size * GIB)) for name, size in by_pid.items())
    return DeviceUse(at=UnixNano(1), summary=Stat(value=0), processes=processes)


OWNERS = {1: ("a", "t"), 2: ("a", "t"), 3: ("b", "t")}


def test_the_processes_of_a_task_count_together_and_only_the_offender_is_named() -> None:
    uses = {"GPU-1": use(p1=15.0, p2=8.1, p3=19.9, p9=30.0)}
    (found,) = find_overruns((claim("a", "GPU-1"), claim("b", "GPU-1")), uses, OWNERS.get)

    assert (found.alloc_id, found.task_name) == ("a", "t")
    assert found.text.startswith("Memory of device nvidia/gpu/H100/GPU-1: used 23.1 of 20 GiB")


def test_each_device_is_judged_apart_and_bookings_on_one_add_up() -> None:
    uses = {"GPU-1": use(p1=25.0), "GPU-2": use(p1=19.0)}

    assert [each.device for each in find_overruns((claim("a", "GPU-1", "GPU-2"),), uses, OWNERS.get)] == [
        "nvidia/gpu/H100/GPU-1"
    ]
    assert not list(find_overruns((claim("a", "GPU-1", "GPU-1"),), uses, OWNERS.get))


@pytest.mark.parametrize(
    "other", [claim("a", "GPU-1", share=MPS), claim("a", "GPU-1", share=""), claim("a", "GPU-1", memory_mb=0)]
)
def test_only_slices_with_an_amount_are_judged(other: DeviceClaim) -> None:
    assert not has_slices((other,))
    assert not list(find_overruns((other,), {"GPU-1": use(p1=79.0)}, OWNERS.get))


@given(st.lists(st.floats(0, 40), max_size=6), st.integers(1, 40 * 1024))
def test_a_task_is_named_exactly_when_its_sum_is_over_its_booking(sizes: list[float], booked_mb: int) -> None:
    uses = {"GPU-1": use(**{f"p{number}": size for number, size in enumerate(sizes)})}
    total = sum(each.memory_bytes for each in uses["GPU-1"].processes)
    found = list(find_overruns((claim("a", "GPU-1", memory_mb=booked_mb),), uses, lambda pid: ("a", "t")))

    assert bool(found) == (total > booked_mb << 20)


def test_amounts_are_short_and_never_round_an_overrun_away() -> None:
    assert [amount(each) for each in (20 * GIB, int(23.04 * GIB), 512 << 20, 20 * GIB + 1)] == [
        "20 GiB", "23.1 GiB", "512 MiB", "20.1 GiB",
    ]  # fmt: skip


# Processes of a made-up /proc.


def process(proc: Path, pid: int, *, parent: int = 1, session: int = 0, cgroup: str = "0::/") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (a) b) S {parent} {pid} {session} 0 -1")
    (folder / "cgroup").write_text(f"{cgroup}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    process(tmp_path, os.getpid(), cgroup="0::/system.slice/yurt.service")
    return tmp_path


TASKS = (
    LiveTask(alloc_id="a", task_name="t", task_id="a/t/0", pid=100),
    LiveTask(alloc_id="b", task_name="t", task_id="b/t/0", pid=200),
)


def owner(proc: Path, pid: int) -> str:
    found = ProcessOwners(TASKS, proc=proc).task_of(pid)
    return found.alloc_id if found else ""


def test_a_cgroup_with_the_tasks_id_is_the_surest_sign(proc: Path) -> None:
    process(proc, 7, cgroup="0::/yurt.slice/b%2Ft%2F0.scope/inner", parent=100)
    process(proc, 100)

    assert owner(proc, 7) == "b"


def test_a_containers_cgroup_is_that_of_its_main_process(proc: Path) -> None:
    process(proc, 200, cgroup="0::/docker/0123")
    process(proc, 8, cgroup="0::/docker/0123/child")
    process(proc, 9, cgroup="0::/docker/01234")

    assert (owner(proc, 8), owner(proc, 9)) == ("b", "")


def test_without_cgroups_session_and_descent_tell(proc: Path) -> None:
    service = "0::/system.slice/yurt.service"
    process(proc, 100, session=100, cgroup=service)
    process(proc, 101, session=100, cgroup=service)
    process(proc, 102, session=102, parent=100, cgroup=service)
    process(proc, 103, session=103, parent=102, cgroup=service)
    process(proc, 300, session=300, cgroup=service)

    assert [owner(proc, pid) for pid in (100, 101, 103)] == ["a", "a", "a"]
    assert owner(proc, 300) == ""
    assert owner(proc, 4242) == ""


@linux
def test_a_real_child_belongs_to_the_task_that_started_it() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as main:
        assert main.stdout is not None
        child = int(main.stdout.readline())
        task = LiveTask(alloc_id="a", task_name="t", task_id="a/t/0", pid=main.pid)
        found, stranger = ProcessOwners((task,)).task_of(child), ProcessOwners((task,)).task_of(os.getpid())
        os.killpg(main.pid, 9)

    assert (found, stranger) == (task, None)
    assert read_process(2**22 + 1) is None
