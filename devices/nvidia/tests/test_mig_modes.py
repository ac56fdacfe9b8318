"""Cards that the plugin splits: their mode, instances made by hand, and places without a profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from yurt.sdk.device import MIG, WHOLE, ClaimedDevices, DeviceClaim
from yurt.sdk.errors import RecoverableError
from yurt.sdk.mig import MIG_PROFILES, MigProfile
from yurt.testing.device_suite import DeviceBench
from yurt_device_nvidia import fake
from yurt_device_nvidia.mig_cards import profile_of
from yurt_device_nvidia.mig_claims import MigPlace, places_of
from yurt_device_nvidia.mig_control import CardProfile

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

# The mode of a card changes only when nothing is in the way.


async def several_looks(bench: DeviceBench, machine: Path) -> None:
    """Wait until the plugin has looked at all cards again: it sees that another one has gone."""
    fake.change(machine, lambda state: state["gpus"][1].update(gone=True))
    await bench.wait_for(lambda found: not offered(found, gpu(1)).is_healthy)


async def test_before_the_first_report_no_card_changes_its_mode(make_bench: MakeBench, machine: Path) -> None:
    """A task that runs may have the whole card."""
    bench = make_bench()
    await bench.first()
    await several_looks(bench, machine)
    assert card(machine)["mig"] is False


async def test_a_card_that_a_task_has_as_a_whole_does_not_enter_mig_mode(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench()
    await bench.first()
    await bench.plugin.update_claims((claim("whole", (0, 0), share=WHOLE),))
    await several_looks(bench, machine)
    assert card(machine)["mig"] is False
    with pytest.raises(RecoverableError):
        await bench.plugin.reserve(claim("part", SMALL, 0))
    assert card(machine)["mig"] is False


async def test_a_card_of_known_profiles_enters_mig_mode_for_a_task_only(make_bench: MakeBench, machine: Path) -> None:
    """After a restart the record names them: the mode need not change to learn them."""
    await left_behind(make_bench, machine, claim("whole", (0, 0), share=WHOLE))
    assert card(machine)["mig"] is False
    async with restarted(machine, ["all"]) as (again, _):
        await again.plugin.update_claims(())
        await several_looks(again, machine)
        assert card(machine)["mig"] is False
        await again.plugin.reserve(claim("part", SMALL, 0))
        assert card(machine)["mig"] is True


async def test_a_task_waits_for_a_card_that_another_one_has_as_a_whole(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench()
    await ready(bench)
    await bench.plugin.reserve(claim("whole", (0, 0), share=WHOLE))
    with pytest.raises(RecoverableError, match="still in use by another task as a whole"):
        await bench.plugin.reserve(claim("part", SMALL, 0))
    assert card(machine)["mig"] is False
    await bench.plugin.update_claims(())
    await bench.plugin.reserve(claim("part", SMALL, 0))
    assert instances(machine) == [(0, 1)]


async def test_a_mode_that_needs_a_reset_is_taken_back(make_bench: MakeBench, machine: Path) -> None:
    """Else the next reset, for whatever reason, would take the card out of MIG mode under its tasks."""
    bench = make_bench("dgx-a100", mig=True)
    await ready(bench)
    await bench.plugin.reserve(claim("whole", (0, 0), share=WHOLE))
    assert (card(machine)["mig"], card(machine).get("mig_pending", True)) == (True, True)


async def with_instances_by_hand(make_bench: MakeBench, machine: Path, *, is_recorded: bool) -> list[DeviceClaim]:
    """Two instances that no task of the plugin has, the first claimed as a device."""
    await left_behind(make_bench, machine, claim("one", SMALL, 0), claim("two", SMALL, 1))
    record = machine.parent / RECORD
    if is_recorded:
        record.write_text(json.dumps({gpu(0): json.loads(record.read_text())[gpu(0)] | {"Owners": []}}))
    else:
        record.unlink()
    uuid = card(machine)["migs"][0]["uuid"]
    devices = ClaimedDevices(vendor="nvidia", type="gpu", name="H100 MIG", ids=(uuid,))
    return [DeviceClaim(alloc_id="x", task_name="running", devices=(devices,))]


async def test_a_card_with_an_instance_by_hand_that_a_task_has_keeps_the_others_too(
    make_bench: MakeBench, machine: Path
) -> None:
    claims = await with_instances_by_hand(make_bench, machine, is_recorded=False)
    async with restarted(machine, ["all"]) as (again, _):
        await again.plugin.update_claims(claims)
        assert instances(machine) == [(0, 1), (1, 1)]


async def test_a_retired_card_with_instances_by_hand_stays_as_it_is_and_offers_them(
    make_bench: MakeBench, machine: Path
) -> None:
    claims = await with_instances_by_hand(make_bench, machine, is_recorded=True)
    async with restarted(machine, []) as (again, _):
        await again.plugin.update_claims(claims)
        (uuid,) = claims[0].ids
        await again.wait_for(lambda found: has_severity(found, uuid, "healthy"))
        await again.plugin.update_claims(())
        await several_looks(again, machine)
    async with restarted(machine, []) as (again, found):
        assert has_severity(found, uuid, "healthy"), "the record does not name the card any more"
        assert (instances(machine), card(machine)["mig"]) == ([(0, 1), (1, 1)], True)


async def test_a_card_that_is_not_listed_and_has_instances_by_hand_is_healthy(
    make_bench: MakeBench, machine: Path
) -> None:
    claims = await with_instances_by_hand(make_bench, machine, is_recorded=False)
    (uuid,) = claims[0].ids
    async with restarted(machine, []) as (again, _):
        await again.plugin.update_claims(claims)
        await several_looks(again, machine)
        found = await again.wait_for(lambda found: has_severity(found, uuid, "healthy"))
        assert MIG_PROFILES not in offered(found, uuid).attributes
        assert instances(machine) == [(0, 1), (1, 1)]


async def test_the_whole_card_waits_for_instances_by_hand_that_tasks_have(make_bench: MakeBench, machine: Path) -> None:
    claims = await with_instances_by_hand(make_bench, machine, is_recorded=False)
    async with restarted(machine, ["all"]) as (again, _):
        await again.plugin.update_claims(claims)
        with pytest.raises(RecoverableError, match="still in use by the MIG instance of another task"):
            await again.plugin.reserve(claim("whole", (0, 0), share=WHOLE))
        assert instances(machine) == [(0, 1), (1, 1)]


async def test_an_instance_by_hand_that_the_driver_does_not_list_now_is_not_destroyed(
    make_bench: MakeBench, machine: Path
) -> None:
    """It has a GPU instance, and its compute instance is missing for a moment: any may be the one that a task has."""
    claims = await with_instances_by_hand(make_bench, machine, is_recorded=True)
    gone = card(machine)["migs"][0]
    fake.change(machine, lambda state: state["gpus"][0].update(migs=state["gpus"][0]["migs"][1:]))
    async with restarted(machine, ["all"]) as (again, _):
        await again.plugin.update_claims(claims)
        assert (0, 1) in instances(machine), gone


@pytest.mark.parametrize("place", [MigPlace(gpu(0), 4, 9856, 14), MigPlace(gpu(0), 0, 9856, 42)])
def test_a_place_that_a_profile_does_not_have_has_none(place: MigPlace) -> None:
    profile = MigProfile(name="1g.10gb", memory_mb=9856, compute=14, size=1, starts=(0, 1))
    known = (CardProfile(id=19, slices=1, offered=profile),)
    assert profile_of(place, known) is None
    assert profile_of(MigPlace(gpu(0), 1, 9856, 14), known) == known[0]


# The record of owners.


async def test_a_card_that_a_process_uses_is_not_asked_to_change_its_mode(
    make_bench: MakeBench, machine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver would take the mode over at some later time."""
    bench = make_bench(processes=[{"pid": 7, "memory_mib": 5}])
    await bench.first()
    await bench.plugin.update_claims(())
    await several_looks(bench, machine)
    assert card(machine)["mig"] is False
    assert "cannot be split" not in caplog.text


async def test_an_instance_with_the_number_of_another_place_is_not_the_recorded_one(
    make_bench: MakeBench, machine: Path
) -> None:
    """Drivers give numbers again."""
    task = claim("one", HALF, 4)
    (given,) = await left_behind(make_bench, machine, task)
    record = machine.parent / RECORD
    written = json.loads(record.read_text())
    written[gpu(0)]["Owners"][0]["Start"] = 0
    record.write_text(json.dumps(written))
    async with restarted(machine, ["all"]) as (again, _):
        await again.plugin.update_claims((task,))
        assert (await again.plugin.reserve(task)).env != given.env


async def test_the_record_is_written_when_it_changes(make_bench: MakeBench, machine: Path) -> None:
    """Each write waits for the disk, and the plugin looks at its cards every few seconds."""
    bench = make_bench()
    await ready(bench)
    await bench.plugin.reserve(claim("one", SMALL, 0))
    await bench.plugin.update_claims((claim("one", SMALL, 0),))  # It has the UUID of the new instance.
    before = (machine.parent / RECORD).stat().st_ino
    await several_looks(bench, machine)
    assert (machine.parent / RECORD).stat().st_ino == before


async def test_owners_are_looked_for_again_when_the_driver_did_not_answer(make_bench: MakeBench, machine: Path) -> None:
    running = claim("running", HALF, 0)
    (given,) = await left_behind(make_bench, machine, running, is_record_lost=True)
    fake.change(machine, lambda state: state["gpus"][0].update(errors={"nvmlDeviceGetMigMode": "UNKNOWN"}))
    async with restarted(machine, ["all"]) as (again, _):
        await again.plugin.update_claims((running,))
        fake.change(machine, lambda state: state["gpus"][0].update(errors={}))
        await again.wait_for(lambda found: has_severity(found, gpu(0), "healthy"))
        assert (await again.plugin.reserve(running)).env == given.env


def test_a_booking_without_a_number_is_no_place() -> None:
    devices = ClaimedDevices(vendor="nvidia", type="gpu", name="H100", ids=(gpu(0),) * 2, share=MIG, numbers=("x", "3"))
    assert [place.start for place in places_of(devices)] == [3]


async def test_an_instance_without_its_compute_instance_gets_one(make_bench: MakeBench, machine: Path) -> None:
    """As after a crash between the two steps of its creation."""
    bench = make_bench()
    await ready(bench)
    task = claim("one", SMALL, 0)
    await bench.plugin.reserve(task)
    fake.change(machine, lambda state: state["gpus"][0].update(migs=[]))
    again = await bench.plugin.reserve(task)
    assert again.env["CUDA_VISIBLE_DEVICES"] == card(machine)["migs"][0]["uuid"]
    assert instances(machine) == [(0, 1)]
