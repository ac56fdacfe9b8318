"""The plugin as a client sees it: the conformance suite, and what only NVIDIA's does."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.device import MPS, SLICE, ClaimedDevices, DeviceClaim, DeviceFingerprint
from yurt.sdk.driver import AgentPaths, PluginContext
from yurt.sdk.errors import DriverError, Invalid, RecoverableError
from yurt.sdk.plugin import PluginSkipped
from yurt.sdk.value import UnixNano
from yurt.testing.agent import wait_for
from yurt.testing.device_suite import DeviceBench, DeviceCases, DeviceFactory, DeviceSuite, is_healthy
from yurt_device_nvidia import fake, plugin
from yurt_device_nvidia.mps import PROGRAM, is_alive

FAKE_MPS = """#!/bin/sh
# Stands in for NVIDIA's control program: -d leaves a daemon and its pid file, `quit` on stdin ends it.
pids="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
server="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control-server"
if [ "$1" = "-d" ]; then
  echo "$CUDA_VISIBLE_DEVICES" >> "$MPS_STARTS"
  [ -z "$MPS_FAILS" ] || { echo "Cannot find MPS control daemon process" >&2; exit 1; }
  ln -sf "$(command -v sleep)" "$server"
  setsid "$server" 60 >/dev/null 2>&1 </dev/null &
  until grep -aq "^$server" /proc/$!/cmdline; do kill -0 $! || exit 1; done
  echo $! > "$pids"
else
  read word && [ "$word" = quit ] && kill $(cat "$pids") && rm "$pids"
fi
"""


def gpu(number: int) -> str:
    return f"GPU-00000001-{number:04x}-4a5b-8c6d-{number:012x}"


def change_card(machine: Path, device: str, **changes: Any) -> None:
    def edit(state: dict[str, Any]) -> None:
        next(each for each in state["gpus"] if each["uuid"] == device).update(changes)

    fake.change(machine, edit)


def config(machine: Path, **more: Any) -> dict[str, Any]:
    return {"library": f"fake:{machine}", "health_period": "50ms", "fingerprint_period": "50ms", **more}


class TestNvidia(DeviceSuite):
    @pytest.fixture
    def make_plugin(self, machine: Path) -> DeviceFactory:
        fake.write(machine, fake.layout("l40s-pairs"))
        return lambda context: plugin.yurt_device_plugins(context)[0]

    @pytest.fixture
    def cases(self, machine: Path) -> DeviceCases:
        return DeviceCases(
            config=config(machine),
            breaks=lambda device: change_card(machine, device, lost=True),
            mends=lambda device: change_card(machine, device, lost=False),
        )


class Clock:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.now_ns = 10**18

    def __call__(self) -> UnixNano:
        return UnixNano(self.now_ns)


@pytest.fixture
def clock() -> Clock:
    return Clock()


MakeBench = Callable[..., DeviceBench]


@pytest.fixture
async def make_bench(machine: Path, clock: Clock, tmp_path: Path) -> AsyncIterator[MakeBench]:
    made: list[tuple[DeviceBench, asyncio.Future[None]]] = []

    def make(layout: str, **options: Any) -> DeviceBench:
        fake.write(machine, fake.layout(layout))
        paths = AgentPaths(state_dir=str(tmp_path), run_dir=str(tmp_path / "run"))
        context = PluginContext(dev=True, config=config(machine, **options), paths=paths, now=clock)
        bench = DeviceBench(plugin.yurt_device_plugins(context)[0])
        made.append((bench, asyncio.ensure_future(bench.follow())))
        return bench

    yield make
    for bench, following in made:
        await bench.plugin.close()
        following.cancel()
        await asyncio.wait({following})
    fake.uninstall()


def claim(*ids: str, **share: Any) -> DeviceClaim:
    devices = ClaimedDevices(vendor="nvidia", type="gpu", name="any", ids=ids, **share)
    return DeviceClaim(alloc_id="a", task_name="t", devices=(devices,))


async def test_an_xid_error_makes_one_card_unhealthy_until_it_was_quiet(
    make_bench: MakeBench, machine: Path, clock: Clock
) -> None:
    bench = make_bench("l40s-pairs", xid_quiet_period="1m")
    await bench.first()
    fake.change(machine, lambda state: state["events"].append({"seq": 1, "gpu": gpu(2), "kind": "xid", "data": 119}))
    found = await bench.wait_for(lambda found: not is_healthy(found, gpu(2)))

    assert [is_healthy(found, gpu(each)) for each in range(4)] == [True, True, False, True]
    clock.now_ns += 60 * 10**9
    assert await bench.wait_for(lambda found: is_healthy(found, gpu(2)))


async def test_a_programs_own_error_leaves_its_card_healthy(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench("l40s-pairs")
    await bench.first()
    events = [{"seq": n, "gpu": gpu(n), "kind": "xid", "data": data} for n, data in ((1, 31), (2, 79))]
    fake.change(machine, lambda state: state["events"].extend(events))
    found = await bench.wait_for(lambda found: not is_healthy(found, gpu(2)))

    assert is_healthy(found, gpu(1))


async def test_a_link_that_goes_down_makes_its_card_unhealthy_and_one_that_never_was_up_does_not(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench("h100x8")
    links = fake.layout("h100x8")["gpus"][0]["nvlinks"]
    unused = [*links[:-1], {**links[-1], "down": True}]
    change_card(machine, gpu(1), nvlinks=unused)
    first = await bench.first()
    assert all(is_healthy(first, gpu(number)) for number in range(8))
    change_card(machine, gpu(0), nvlinks=[links[0], {**links[1], "down": True}, *links[2:]])
    found = await bench.wait_for(lambda found: not is_healthy(found, gpu(0)))

    assert reason(found, gpu(0)).startswith("NVLink 1 is down")
    assert [number for number in range(8) if not is_healthy(found, gpu(number))] == [0]
    change_card(machine, gpu(0), nvlinks=links)
    assert await bench.wait_for(lambda found: is_healthy(found, gpu(0)))


async def test_why_a_card_was_lost_is_told_until_it_is_back(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench("l40s-pairs")
    await bench.first()
    change_card(machine, gpu(2), lost=True)
    found = await bench.wait_for(lambda found: not is_healthy(found, gpu(2)))
    assert reason(found, gpu(2)) == "it does not answer: GPU is lost"

    change_card(machine, gpu(2), gone=True)
    for other in (0, 1):
        change_card(machine, gpu(other), gone=True)
        found = await bench.wait_for(lambda found, other=other: not is_healthy(found, gpu(other)))
    assert reason(found, gpu(2)) == "it does not answer: GPU is lost"
    change_card(machine, gpu(2), gone=False, lost=False)
    assert reason(await bench.wait_for(lambda found: is_healthy(found, gpu(2))), gpu(2)) == ""


def reason(found: DeviceFingerprint, device: str) -> str:
    """Why a device is unhealthy."""
    return next(each.reason for group in found.groups for each in group.instances if each.id == device)


async def test_errors_of_a_card_that_came_later_are_heard(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench("l40s-pairs")
    change_card(machine, gpu(3), gone=True)
    await bench.wait_for(lambda found: len(found.groups[0].instances) == 3 or not is_healthy(found, gpu(3)))
    change_card(machine, gpu(3), gone=False)
    await bench.wait_for(lambda found: is_healthy(found, gpu(3)))
    fake.change(machine, lambda state: state["events"].append({"seq": 1, "gpu": gpu(3), "kind": "xid", "data": 79}))

    assert await bench.wait_for(lambda found: not is_healthy(found, gpu(3)))


async def test_an_error_of_one_mig_instance_leaves_the_others_healthy(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench("mig-split")
    first = await bench.first()
    migs = [each.id for group in first.groups for each in group.instances if each.id.startswith("MIG-")]
    fake.change(
        machine, lambda state: state["events"].append({"seq": 1, "gpu": gpu(0), "kind": "xid", "data": 95, "gi": 2})
    )
    hit = state_of(machine, "migs", 1)
    found = await bench.wait_for(lambda found: not is_healthy(found, hit))

    assert [each for each in migs if not is_healthy(found, each)] == [hit]
    assert is_healthy(found, gpu(1))


def state_of(machine: Path, field: str, number: int) -> str:
    """The id of a MIG instance of the first card."""
    return str(json.loads(machine.read_text())["gpus"][0][field][number]["uuid"])


async def test_a_card_that_the_driver_lists_no_more_stays_as_unhealthy_and_comes_back(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench("l40s-pairs")
    await bench.first()
    change_card(machine, gpu(3), gone=True)
    found = await bench.wait_for(lambda found: not is_healthy(found, gpu(3)))

    assert [each.reason for group in found.groups for each in group.instances if each.id == gpu(3)]
    change_card(machine, gpu(3), gone=False)
    assert await bench.wait_for(lambda found: is_healthy(found, gpu(3)))


async def test_new_mig_instances_are_offered_as_they_come(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench("h200")
    await bench.first()
    split = fake.layout("mig-split")["gpus"][0]["migs"]
    change_card(machine, gpu(0), mig=True, migs=split)
    found = await bench.wait_for(lambda found: len(found.groups) == 2)

    assert {each.id for group in found.groups for each in group.instances} == {each["uuid"] for each in split}


async def test_a_driver_that_is_loaded_later_is_found_later(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench("h200")
    fake.change(machine, lambda state: state.update(init_error="DRIVER_NOT_LOADED"))
    found = await bench.wait_for(lambda found: not found.groups or not is_healthy(found, gpu(0)))

    assert found.description or found.groups
    fake.change(machine, lambda state: state.update(init_error=""))
    assert await bench.wait_for(lambda found: is_healthy(found, gpu(0)))


async def test_a_driver_that_hangs_is_given_up_in_time_and_its_cards_return_with_it(
    make_bench: MakeBench, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt_device_nvidia.devices.CALL_LIMIT_S", 0.3)
    bench = make_bench("l40s-pairs")
    await bench.first()
    fake.change(machine, lambda state: state.update(hangs=True))
    try:
        found = await bench.wait_for(lambda found: not is_healthy(found, gpu(0)))

        instances = [each for group in found.groups for each in group.instances]
        assert [each.severity for each in instances] == ["degraded"] * 4, "what runs may go on"
        assert reason(found, gpu(0)) == "the driver has not come back from a call within 0.3 s"
        assert found.fix == "restart the machine"
        with pytest.raises(RecoverableError, match="has not come back"):
            await bench.plugin.self_test(gpu(0))
        with pytest.raises(DriverError, match="has not come back"):
            await bench.plugin.stats()
    finally:
        fake.change(machine, lambda state: state.update(hangs=False))
    assert await bench.wait_for(lambda found: all(is_healthy(found, gpu(number)) for number in range(4)))


def test_a_machine_without_card_and_driver_is_skipped_with_the_reason() -> None:
    context = PluginContext(config={"library": "libno-such-thing.so.1"})
    with pytest.raises(PluginSkipped, match="no NVIDIA card"):
        plugin.yurt_device_plugins(context)
    with pytest.raises(PluginSkipped, match="enabled = false"):
        plugin.yurt_device_plugins(PluginContext(config={"enabled": False}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"sharing": ["half"]},
        {"fingerprint_period": "soon"},
        {"no_such": 1},
        {"library": "fake:toaster"},
        {"library": "fake:/no/file"},
    ],
)
def test_a_wrong_configuration_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=next(iter(wrong))):
        plugin.yurt_device_plugins(PluginContext(config=wrong))


async def test_a_slice_tells_the_task_its_memory(make_bench: MakeBench) -> None:
    bench = make_bench("l40s-pairs")
    await bench.first()
    found = await bench.plugin.reserve(claim(gpu(1), share=SLICE, memory_mb=20480))

    assert found.env["YURT_GPU_MEMORY_MB"] == "20480"
    assert found.env["CUDA_VISIBLE_DEVICES"] == gpu(1)


# MPS, with a stand-in for NVIDIA's control program.


@pytest.fixture
def mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts the stand-in on PATH; the file in which it notes its starts."""
    program = tmp_path / "bin" / PROGRAM
    program.parent.mkdir()
    program.write_text(FAKE_MPS)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("MPS_STARTS", str(tmp_path / "starts"))
    return tmp_path / "starts"


def started(notes: Path) -> list[str]:
    """The cards whose daemons were started, in order."""
    return notes.read_text().split()


def kill(pid_file: Path) -> None:
    """End a daemon behind the plugin's back."""
    os.kill(int(pid_file.read_text()), 9)
    wait_for("its end", lambda: not is_alive(pid_file))


async def test_tasks_that_share_by_mps_have_one_daemon_a_card_and_their_limits(
    make_bench: MakeBench, mps: Path, tmp_path: Path
) -> None:
    bench = make_bench("l40s-pairs")
    await bench.first()
    one = await bench.plugin.reserve(claim(gpu(1), share=MPS, memory_mb=20480, compute=30))
    two = await bench.plugin.reserve(claim(gpu(1), share=MPS, memory_mb=10240))
    pipes = str(tmp_path / "run" / "nvidia-mps" / gpu(1)[-12:] / "pipe")

    assert started(mps) == [gpu(1)]
    assert one.env["CUDA_MPS_PIPE_DIRECTORY"] == two.env["CUDA_MPS_PIPE_DIRECTORY"] == pipes
    assert one.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=20480M"
    assert one.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in two.env
    assert {(each.host_path, each.task_path) for each in one.mounts} == {(pipes, pipes), ("/dev/shm", "/dev/shm")}


async def test_a_daemon_quits_after_its_last_holder_and_one_that_died_is_started_again(
    make_bench: MakeBench, mps: Path, tmp_path: Path
) -> None:
    bench = make_bench("l40s-pairs")
    await bench.first()
    holder = claim(gpu(0), share=MPS, memory_mb=1024)
    folder = tmp_path / "run" / "nvidia-mps" / gpu(0)[-12:]
    await bench.plugin.update_claims((holder,))
    pids = folder / "pipe" / f"{PROGRAM}.pid"
    assert is_alive(pids)
    kill(pids)
    await bench.plugin.update_claims((holder,))
    await bench.plugin.update_claims(())

    assert started(mps) == [gpu(0), gpu(0)]
    assert not folder.exists()


async def test_mps_takes_one_card_and_a_daemon_that_starts(
    make_bench: MakeBench, mps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench("l40s-pairs")
    await bench.first()
    with pytest.raises(DriverError, match="one card"):
        await bench.plugin.reserve(claim(gpu(0), gpu(1), share=MPS))
    monkeypatch.setenv("MPS_FAILS", "1")
    with pytest.raises(DriverError, match="Cannot find MPS"):
        await bench.plugin.reserve(claim(gpu(0), share=MPS))


async def test_modes_that_cannot_work_here_are_not_offered(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = await make_bench("h200").first()

    assert found.groups[0].attributes["sharing"] == "slice"


async def test_a_daemon_of_a_card_that_is_not_known_is_left_as_it_is(
    make_bench: MakeBench, mps: Path, tmp_path: Path
) -> None:
    """After a restart of the agent holders are reported before a slow driver has named its cards."""
    bench = make_bench("l40s-pairs")
    await bench.first()
    await bench.plugin.update_claims((claim(gpu(0), share=MPS), claim("GPU-elsewhere", share=MPS)))

    assert started(mps) == [gpu(0)]
    fake.change(tmp_path / "machine.json", lambda state: state.update(init_error="DRIVER_NOT_LOADED"))
    await bench.plugin.update_claims((claim(gpu(0), share=MPS),))
    assert is_alive(tmp_path / "run" / "nvidia-mps" / gpu(0)[-12:] / "pipe" / f"{PROGRAM}.pid")
