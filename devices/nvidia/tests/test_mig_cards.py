"""Cards that the plugin splits: instances come with the tasks that need them and go with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.device import MPS, WHOLE, ClaimedDevices, DeviceClaim
from yurt.sdk.driver import PluginContext
from yurt.sdk.errors import DriverError, Invalid, RecoverableError
from yurt.sdk.mig import MIG_PROFILES, MigProfile, parse_profiles
from yurt.testing.agent import wait_for
from yurt_device_nvidia import fake, plugin
from yurt_device_nvidia.mig_cards import MigCards
from yurt_device_nvidia.mig_control import MigControl

from .mig_bench import (
    HALF,
    RECORD,
    SMALL,
    MakeBench,
    card,
    claim,
    gpu,
    has_severity,
    instances,
    left_behind,
    offered,
    ready,
    restarted,
)


async def test_a_card_that_may_be_split_is_offered_whole_with_its_profiles(
    make_bench: MakeBench, machine: Path
) -> None:
    found = await ready(make_bench())
    text = offered(found, gpu(0)).attributes[MIG_PROFILES]

    assert isinstance(text, str)
    assert MigProfile(name="3g.40gb", memory_mb=40448, compute=42, size=4, starts=(0, 4)) in parse_profiles(text)
    assert [profile.name for profile in parse_profiles(text)] == [
        "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"
    ]  # fmt: skip
    assert offered(found, gpu(0)).attributes["sharing"] == "slice,mig"
    assert "sharing" not in offered(found, gpu(1)).attributes, "the operator did not allow it for this card"


async def test_an_instance_is_created_for_its_task_and_destroyed_after_it(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench()
    await ready(bench)
    one, two = claim("one", HALF, 4), claim("two", SMALL, 0)
    given = await bench.plugin.reserve(one)
    other = await bench.plugin.reserve(two)
    assert instances(machine) == [(0, 1), (4, 4)]
    again = await bench.plugin.reserve(one)
    assert again.env == given.env, "the task keeps its instance"
    assert "is used by this task again" in again.notes[0]

    first = next(each for each in card(machine)["migs"] if each["profile"] == "3g.40gb")["uuid"]
    assert given.env["CUDA_VISIBLE_DEVICES"] == first != other.env["CUDA_VISIBLE_DEVICES"]
    assert given.notes == (f"MIG instance 3g.40gb of GPU {gpu(0)} was created for this task: {first}",)
    await bench.plugin.update_claims((one, two))
    await bench.plugin.update_claims((two,))
    assert instances(machine) == [(0, 1)]
    await bench.plugin.update_claims(())
    assert instances(machine) == []


async def test_a_reservation_keeps_its_instance_until_a_report_made_after_it(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench()
    await ready(bench)
    task = claim("new", SMALL, 3)
    await bench.plugin.reserve(task)
    fake.change(machine, lambda state: state["gpus"][1].update(gone=True))
    await bench.wait_for(lambda found: not offered(found, gpu(1)).is_healthy)  # Full looks pass meanwhile.
    assert instances(machine) == [(3, 1)]
    await bench.plugin.update_claims((task,))
    assert instances(machine) == [(3, 1)]


async def test_the_slices_of_a_task_that_ended_before_the_first_report_are_free_at_that_report(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench()
    await ready(bench)
    await bench.plugin.reserve(claim("short", SMALL, 2))
    await bench.plugin.update_claims(())
    await bench.plugin.reserve(claim("next", HALF, 0))
    assert instances(machine) == [(0, 4)]


async def test_an_instance_of_another_profile_at_the_slice_of_a_claim_is_destroyed(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench()
    await ready(bench)
    old, new = claim("old", SMALL, 0), claim("new", HALF, 0)
    await bench.plugin.reserve(old)
    await bench.plugin.update_claims((old,))
    await bench.plugin.update_claims((new,))
    await bench.plugin.reserve(new)
    assert instances(machine) == [(0, 4)]


async def test_an_instance_that_a_process_uses_is_not_given_to_another_task(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench()
    await ready(bench)
    old = claim("old", SMALL, 0)
    await bench.plugin.reserve(old)
    fake.change(machine, lambda state: state["gpus"][0]["migs"][0].update(processes=[{"pid": 7, "memory_mib": 5}]))
    await bench.plugin.update_claims(())
    with pytest.raises(RecoverableError, match="a process still uses it"):
        await bench.plugin.reserve(claim("new", SMALL, 0))


async def test_an_instance_that_stays_does_not_keep_the_others(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench()
    await ready(bench)
    claims = tuple(claim(f"task{at}", SMALL, at) for at in range(3))
    for each in claims:
        await bench.plugin.reserve(each)
    fake.change(machine, lambda state: state["gpus"][0]["migs"][0].update(processes=[{"pid": 7, "memory_mib": 5}]))
    await bench.plugin.update_claims(())
    assert instances(machine) == [(0, 1)]


async def test_a_mode_that_a_process_delays_is_taken_back_and_tried_again(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench()
    await ready(bench)
    whole = claim("whole", (0, 0), share=WHOLE)
    await bench.plugin.reserve(whole)
    await bench.plugin.update_claims(())
    fake.change(machine, lambda state: state["gpus"][0].update(processes=[{"pid": 7, "memory_mib": 5}]))
    with pytest.raises(RecoverableError, match=r"turning MIG mode on .*a process still uses it"):
        await bench.plugin.reserve(claim("part", SMALL, 2))
    assert card(machine)["mig_pending"] is False


async def test_a_task_gets_one_instance_only(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench()
    await ready(bench)
    with pytest.raises(DriverError, match="a process sees one MIG instance only"):
        await bench.plugin.reserve(claim("two", SMALL, 0, 1))
    assert instances(machine) == []


async def test_whole_cards_of_which_one_stays_in_mig_mode_are_refused_to_one_task(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench("dgx-a100", mig=True)
    await ready(bench)
    devices = ClaimedDevices(vendor="nvidia", type="gpu", name="A100", ids=(gpu(0), gpu(1)))
    with pytest.raises(DriverError, match="only by a reset, and a process sees one MIG instance only"):
        await bench.plugin.reserve(DeviceClaim(alloc_id="a", task_name="both", devices=(devices,)))
    assert instances(machine) == []


async def test_a_static_cdi_specification_names_instances_by_uuid_only(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt_device_nvidia.devices.read_cdi_names", lambda: frozenset({"0:0", "0:1", "all"}))
    bench = make_bench()
    await ready(bench)
    assert (await bench.plugin.reserve(claim("task", SMALL, 5))).cdi_devices == ()


async def test_after_a_restart_instances_of_running_tasks_stay_and_others_go(
    make_bench: MakeBench, machine: Path
) -> None:
    running, ended = claim("running", HALF, 0), claim("ended", HALF, 4)
    given, _ = await left_behind(make_bench, machine, running, ended)
    async with restarted(machine, ["all"]) as (again, _):
        assert len(instances(machine)) == 2, "before the first report any may be a task's"
        await again.plugin.update_claims((running,))
        assert instances(machine) == [(0, 4)]
        assert (await again.plugin.reserve(running)).env == given.env


@pytest.mark.parametrize("damage", ["missing", "unreadable", "of another form"])
async def test_after_the_loss_of_the_record_a_running_task_keeps_its_instance(
    make_bench: MakeBench, machine: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """No process has the instance open at the moment, so the driver would let it be destroyed under the task."""
    running, ended = claim("running", HALF, 0), claim("ended", HALF, 4)
    given, _ = await left_behind(make_bench, machine, running, ended)
    record = machine.parent / RECORD
    if damage == "missing":
        record.unlink()
    else:
        record.write_text("{" if damage == "unreadable" else '{"GPU": 5}')
    async with restarted(machine, ["all"]) as (again, _):
        assert len(instances(machine)) == 2, "before the first report any may be a task's"
        await again.plugin.update_claims((running,))
        assert instances(machine) == [(0, 4)], "no task claims the other one"
        assert "MIG instance had no recorded owner, owner found by its claim" in caplog.text
        assert (await again.plugin.reserve(running)).env == given.env
    async with restarted(machine, ["all"]) as (again, _):
        await again.plugin.update_claims((running,))
        assert (await again.plugin.reserve(running)).env == given.env, "the record is there again"


async def test_after_the_loss_of_the_record_and_two_restarts_a_running_task_keeps_its_instance(
    make_bench: MakeBench, machine: Path
) -> None:
    """The first look of the first restart writes a record that has no owners yet."""
    running = claim("running", HALF, 0)
    (given,) = await left_behind(make_bench, machine, running)
    record = machine.parent / RECORD
    record.unlink()
    async with restarted(machine, ["all"]):
        assert record.exists()
    async with restarted(machine, ["all"]) as (again, _):
        await again.plugin.update_claims((running,))
        assert (await again.plugin.reserve(running)).env == given.env


async def test_a_first_report_during_a_reservation_destroys_no_instance(
    make_bench: MakeBench, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = claim("running", HALF, 0)
    (given,) = await left_behind(make_bench, machine, running, is_record_lost=True)
    look_for_owners = MigCards._find_owners

    def with_report_after_it(self: MigCards, control: MigControl) -> None:
        look_for_owners(self, control)
        self.report((running,))

    async with restarted(machine, ["all"]) as (again, _):
        with monkeypatch.context() as patched:
            patched.setattr(MigCards, "_find_owners", with_report_after_it)
            with pytest.raises(RecoverableError):
                await again.plugin.reserve(running)
        assert (await again.plugin.reserve(running)).env == given.env


async def test_after_the_loss_of_the_record_a_new_task_gets_no_instance_of_an_ended_one(
    make_bench: MakeBench, machine: Path
) -> None:
    ended = claim("ended", HALF, 0)
    (given,) = await left_behind(make_bench, machine, ended, is_record_lost=True)
    async with restarted(machine, ["all"]) as (again, _):
        new = claim("new", HALF, 0)
        with pytest.raises(RecoverableError, match="still in use by the MIG instance of another task"):
            await again.plugin.reserve(new)
        await again.plugin.update_claims(())
        assert (await again.plugin.reserve(new)).env != given.env


async def test_after_the_loss_of_the_record_a_card_that_is_not_listed_stays_as_it_is(
    make_bench: MakeBench, machine: Path
) -> None:
    """Nothing tells its instances from another tool's; that of a running task is not offered to others."""
    task = claim("task", SMALL, 0)
    (given,) = await left_behind(make_bench, machine, task, is_record_lost=True)
    async with restarted(machine, [gpu(1)]) as (again, _):
        await again.plugin.update_claims((task,))
        found = await again.wait_for(lambda found: has_severity(found, gpu(0), "degraded"))
        assert "which mig_gpu_ids does not name" in offered(found, gpu(0)).reason
        with pytest.raises(DriverError, match="may not split"):
            await again.plugin.reserve(task)
        await again.plugin.update_claims(())
        uuid = given.env["CUDA_VISIBLE_DEVICES"]
        await again.wait_for(lambda found: has_severity(found, uuid, "healthy"))
        assert instances(machine) == [(0, 1)] and card(machine)["mig"] is True


async def test_instances_made_by_hand_that_tasks_have_keep_their_card_from_being_split(
    make_bench: MakeBench, machine: Path
) -> None:
    await left_behind(make_bench, machine, claim("first", SMALL, 0), is_record_lost=True)
    uuid = card(machine)["migs"][0]["uuid"]
    devices = ClaimedDevices(vendor="nvidia", type="gpu", name="H100 MIG", ids=(uuid,))
    async with restarted(machine, ["all"]) as (again, _):
        await again.plugin.update_claims((DeviceClaim(alloc_id="x", task_name="running", devices=(devices,)),))
        assert instances(machine) == [(0, 1)]
        found = await again.wait_for(
            lambda found: any(each.id == uuid for group in found.groups for each in group.instances)
        )
        assert offered(found, uuid).severity == "suspect" and "drain the node" in offered(found, uuid).reason
        with pytest.raises(DriverError):
            await again.plugin.reserve(claim("part", SMALL, 3))
        assert instances(machine) == [(0, 1)]
        await again.plugin.update_claims(())
        assert instances(machine) == []


async def test_a_card_that_is_no_longer_listed_is_given_back_after_its_last_task(
    make_bench: MakeBench, machine: Path
) -> None:
    task = claim("task", SMALL, 0)
    (given,) = await left_behind(make_bench, machine, task)
    async with restarted(machine, []) as (again, found):
        assert offered(found, gpu(0)).severity == "degraded"
        ids = [each.id for group in found.groups for each in group.instances]
        assert given.env["CUDA_VISIBLE_DEVICES"] not in ids
        await again.plugin.update_claims((task,))
        assert (await again.plugin.reserve(task)).env == given.env
        await again.plugin.update_claims(())
        await again.wait_for(lambda found: offered(found, gpu(0)).severity == "healthy")
        assert instances(machine) == [] and card(machine)["mig"] is False


async def test_a_card_that_is_no_longer_listed_says_what_keeps_it_in_mig_mode_and_leaves_it_afterwards(
    make_bench: MakeBench, machine: Path
) -> None:
    await left_behind(make_bench, machine)
    process = {"pid": 7, "memory_mib": 5}
    fake.change(machine, lambda state: state["gpus"][0].update(processes=[process]))
    async with restarted(machine, []) as (again, _):
        await again.plugin.update_claims(())
        found = await again.wait_for(lambda found: "a process still uses it" in offered(found, gpu(0)).reason)
        assert offered(found, gpu(0)).severity == "degraded" and card(machine)["mig"] is True
        fake.change(machine, lambda state: state["gpus"][0].update(processes=[]))
        await again.wait_for(lambda found: has_severity(found, gpu(0), "healthy"))
        assert card(machine)["mig"] is False


async def test_an_instance_that_a_process_uses_stays_and_makes_its_card_suspect(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench()
    await ready(bench)
    task = claim("task", SMALL, 0)
    await bench.plugin.reserve(task)
    await bench.plugin.update_claims((task,))
    process = {"pid": 7, "memory_mib": 5}

    def use(processes: list[Any]) -> Callable[[dict[str, Any]], None]:
        return lambda state: state["gpus"][0]["migs"][0].update(processes=processes)

    fake.change(machine, use([process]))
    await bench.plugin.update_claims(())
    found = await bench.wait_for(lambda found: offered(found, gpu(0)).severity == "suspect")
    assert "a process still uses it" in offered(found, gpu(0)).reason
    assert instances(machine) == [(0, 1)]
    fake.change(machine, use([]))
    await bench.wait_for(lambda found: offered(found, gpu(0)).severity == "healthy")
    assert instances(machine) == []


async def test_a_task_with_the_whole_card_gets_it_out_of_mig_mode(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench()
    await ready(bench)
    whole = claim("whole", (0, 0), share=WHOLE)
    given = await bench.plugin.reserve(whole)

    assert given.env["CUDA_VISIBLE_DEVICES"] == gpu(0)
    assert card(machine)["mig"] is False
    await bench.plugin.update_claims((whole,))
    await bench.plugin.update_claims(())
    assert (await bench.plugin.reserve(claim("part", SMALL, 2))).env["CUDA_VISIBLE_DEVICES"].startswith("MIG-")


async def test_a_card_that_leaves_mig_mode_only_by_a_reset_gives_its_largest_instance(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench("dgx-a100", mig=True)
    await ready(bench)
    whole = claim("whole", (0, 0), share=WHOLE)
    given = await bench.plugin.reserve(whole)

    assert given.env["CUDA_VISIBLE_DEVICES"] == card(machine)["migs"][0]["uuid"]
    assert instances(machine) == [(0, 8)]
    assert (await bench.plugin.reserve(whole)).env == given.env
    await bench.plugin.update_claims((whole,))
    assert instances(machine) == [(0, 8)]
    await bench.plugin.update_claims(())
    with pytest.raises(DriverError, match="only by a reset"):
        await bench.plugin.reserve(claim("shared", (1024, 0), share=MPS))


async def test_a_card_that_comes_into_mig_mode_only_by_a_reset_is_not_split_until_then(
    make_bench: MakeBench, machine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench("dgx-a100")
    await bench.first()
    await bench.plugin.update_claims(())
    await asyncio.to_thread(wait_for, "the log", lambda: "MIG mode is not on yet; reset the card" in caplog.text)
    assert MIG_PROFILES not in offered(await bench.first(), gpu(0)).attributes

    fake.change(machine, lambda state: state["gpus"][0].update(mig=True))
    await bench.wait_for(lambda found: MIG_PROFILES in offered(found, gpu(0)).attributes)


async def test_a_place_that_another_task_has_is_refused_for_now_and_a_profile_that_is_none_for_good(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench()
    await ready(bench)
    await bench.plugin.reserve(claim("holder", HALF, 0))

    with pytest.raises(RecoverableError, match="still in use by the MIG instance of another task"):
        await bench.plugin.reserve(claim("late", SMALL, 2))
    with pytest.raises(DriverError, match="no MIG profile of 123 MiB at slice 0") as refused:
        await bench.plugin.reserve(claim("odd", (123, 14), 0))
    assert not isinstance(refused.value, RecoverableError)


async def test_a_driver_that_refuses_says_what_it_refused_and_leaves_nothing_behind(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench()
    await ready(bench)
    errors = {"nvmlGpuInstanceCreateComputeInstance": "NO_PERMISSION"}
    fake.change(machine, lambda state: state["gpus"][0].update(errors=errors))

    with pytest.raises(DriverError, match=r"compute instance of MIG instance 1g.10gb .*must run as root"):
        await bench.plugin.reserve(claim("task", SMALL, 0))
    assert instances(machine) == []


async def test_usage_of_a_split_card_has_the_processes_of_its_instances(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench()
    await ready(bench)
    await bench.plugin.reserve(claim("task", SMALL, 0))
    process = {"pid": 77, "memory_mib": 640}
    fake.change(machine, lambda state: state["gpus"][0]["migs"][0].update(processes=[process]))
    uses = await bench.plugin.stats()

    assert [each.pid for each in uses[gpu(0)].processes] == [77]
    assert not any(device.startswith("MIG-") for device in uses)


async def test_an_error_of_an_instance_lets_what_runs_on_its_card_go_on(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench()
    await ready(bench)
    await bench.plugin.reserve(claim("task", SMALL, 0))
    await bench.plugin.update_claims((claim("task", SMALL, 0),))
    number = card(machine)["gis"][0]["id"]
    event = {"seq": 1, "gpu": gpu(0), "kind": "xid", "data": 95, "gi": number}
    await bench.wait_for(lambda found: MIG_PROFILES in offered(found, gpu(0)).attributes)
    fake.change(machine, lambda state: state["events"].append(event))
    found = await bench.wait_for(lambda found: not offered(found, gpu(0)).is_healthy)

    assert offered(found, gpu(0)).severity == "degraded"
    assert offered(found, gpu(1)).is_healthy
    await bench.plugin.update_claims(())
    assert instances(machine) == []
    fake.change(machine, lambda state: state["gpus"][1].update(gone=True))
    found = await bench.wait_for(lambda found: not offered(found, gpu(1)).is_healthy)
    assert offered(found, gpu(0)).severity == "degraded", "the error counts for the quiet period"


@pytest.mark.parametrize("wrong", [["MIG-1"], ["0"]])
def test_ids_that_are_no_cards_are_refused(wrong: list[str]) -> None:
    with pytest.raises(Invalid, match=r"mig_gpu_ids = .*ids of whole cards"):
        plugin.yurt_device_plugins(PluginContext(config={"library": "fake:h200", "mig_gpu_ids": wrong}))
