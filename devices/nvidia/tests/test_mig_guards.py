"""What the plugin does not do on cards that it may split: its answers without a look at the driver, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from yurt.sdk.device import MIG, MPS, WHOLE, ClaimedDevices, DeviceClaim
from yurt.sdk.errors import DriverError, RecoverableError
from yurt_device_nvidia import fake
from yurt_device_nvidia.mig_cards import BOTH_KINDS, UNLISTED, MigCards
from yurt_device_nvidia.mig_claims import places_of
from yurt_device_nvidia.mig_control import MigControl, MigProblem
from yurt_device_nvidia.mig_record import InstanceOwner, MigRecord, RecordedCard

from .conftest import MakeNvml
from .mig_bench import (
    HALF,
    RECORD,
    SMALL,
    MakeBench,
    card,
    claim,
    gpu,
    instances,
    left_behind,
    ready,
    restarted,
)

NO_DRIVER = cast("MigControl", None)
"""Any question to the driver is an error."""


def cards_of(*listed: str) -> MigCards:
    """Cards without a record."""
    return MigCards(listed, MigRecord(""))


def by_hand(uuid: str = "MIG-1") -> DeviceClaim:
    """A claim on an instance that was made by hand."""
    devices = ClaimedDevices(vendor="nvidia", type="gpu", name="H100 MIG", ids=(uuid,))
    return DeviceClaim(alloc_id="x", task_name="by hand", devices=(devices,))


def test_a_card_that_is_not_listed_is_managed_and_degraded_while_a_task_has_an_instance_of_it() -> None:
    cards = cards_of(gpu(1))
    assert not cards.manages(gpu(0)) and cards.verdict(gpu(0)) is None
    cards.reserve(claim("running", SMALL, 0))
    assert cards.manages(gpu(0))
    verdict = cards.verdict(gpu(0))
    assert verdict is not None and (verdict.severity, verdict.reason) == ("degraded", UNLISTED)


def test_without_listed_and_recorded_cards_the_plugin_leaves_all_instances_alone() -> None:
    cards = cards_of()
    cards.report((claim("running", SMALL, 0),))
    assert not cards.is_used
    assert not cards.keep(NO_DRIVER)


def test_a_card_with_instances_of_both_kinds_says_so() -> None:
    cards = cards_of(gpu(0))
    cards.see({"MIG-1": (gpu(0), 1)})
    cards.report((by_hand(), claim("running", SMALL, 4)))
    verdict = cards.verdict(gpu(0))
    assert verdict is not None and (verdict.severity, verdict.reason) == ("degraded", BOTH_KINDS)
    assert cards.manages(gpu(0)), "the card that the running task has booked is offered"


def test_a_whole_card_that_may_not_be_split_is_left_alone() -> None:
    cards, whole = cards_of(gpu(1)), claim("whole", (0, 0), share=WHOLE)
    cards.reserve(whole)
    assert cards.prepare(NO_DRIVER, whole) == {}


async def test_a_card_that_may_not_be_split_keeps_its_mode_and_gets_no_instance(
    make_bench: MakeBench, machine: Path
) -> None:
    """It is in MIG mode by hand, so its driver names profiles; the claim of an old plan is no permission."""
    await left_behind(make_bench, machine, claim("ended", HALF, 4), is_record_lost=True)
    async with restarted(machine, [gpu(1)]) as (again, _):
        with pytest.raises(DriverError, match=r"may not split GPU .* \(mig_gpu_ids\)"):
            await again.plugin.reserve(claim("new", SMALL, 0))
        assert instances(machine) == [(4, 4)]


@pytest.mark.parametrize("listed", [[gpu(1)], []], ids=["another card is listed", "no card is listed"])
@pytest.mark.parametrize("place", [(SMALL, 0), (HALF, 4)], ids=["another place", "the same place"])
async def test_a_card_that_may_not_be_split_keeps_its_instances_and_mode_when_a_claim_on_it_is_reported(
    make_bench: MakeBench, machine: Path, listed: list[str], place: tuple[tuple[int, int], int]
) -> None:
    await left_behind(make_bench, machine, claim("by another tool", HALF, 4), is_record_lost=True)
    for _ in range(2):
        async with restarted(machine, listed) as (again, _):
            await again.plugin.update_claims((claim("new", *place),))
            with pytest.raises(DriverError, match="may not split"):
                await again.plugin.reserve(claim("new", *place))
            await again.plugin.update_claims(())
            assert instances(machine) == [(4, 4)] and card(machine)["mig"] is True


async def test_a_retired_card_out_of_mig_mode_stays_out_of_it(make_bench: MakeBench, machine: Path) -> None:
    await left_behind(make_bench, machine, claim("whole", (0, 0), share=WHOLE))
    assert card(machine)["mig"] is False
    async with restarted(machine, [gpu(1)]) as (again, _):
        with pytest.raises(DriverError):
            await again.plugin.reserve(claim("new", SMALL, 0))
        assert card(machine)["mig"] is False


async def test_the_largest_instance_stands_for_a_whole_card_only(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench("dgx-a100", mig=True)
    await ready(bench)
    await bench.plugin.reserve(claim("task", (0, 0), share=WHOLE))
    assert instances(machine) == [(0, 8)]
    with pytest.raises(DriverError, match='share = "mps"'):
        await bench.plugin.reserve(claim("task", (1024, 0), share=MPS))


async def test_an_instance_beside_another_gpu_of_one_task_is_refused(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench()
    await ready(bench)
    whole = ClaimedDevices(vendor="nvidia", type="gpu", name="H100", ids=(gpu(1),))
    both = DeviceClaim(alloc_id="a", task_name="both", devices=(*claim("both", SMALL, 0).devices, whole))
    with pytest.raises(DriverError, match="a process sees one MIG instance only"):
        await bench.plugin.reserve(both)
    assert instances(machine) == []


def test_an_instance_that_was_made_by_hand_is_no_place_of_a_new_one() -> None:
    devices = ClaimedDevices(vendor="nvidia", type="gpu", name="H100", ids=("MIG-1",), share=MIG, numbers=("0",))
    assert places_of(devices) == []


def recorded_owners(machine: Path) -> list[str]:
    """The tasks that own instances of the first card by the record."""
    found = json.loads((machine.parent / RECORD).read_text())
    return [each["TaskName"] for each in found[gpu(0)].get("Owners", ())]


async def test_a_card_that_is_neither_listed_nor_claimed_is_not_recorded(make_bench: MakeBench, machine: Path) -> None:
    """A recorded card that is not listed counts as retired: without instances it would leave MIG mode."""
    await left_behind(make_bench, machine, claim("by another tool", SMALL, 0), is_record_lost=True)
    async with restarted(machine, [gpu(1)]) as (again, _):
        await again.plugin.update_claims(())
    async with restarted(machine, [gpu(1)]) as (again, _):
        await again.plugin.update_claims(())
        assert instances(machine) == [(0, 1)]


async def test_the_owner_of_an_instance_that_is_gone_is_forgotten(make_bench: MakeBench, machine: Path) -> None:
    """Drivers give numbers again: another tool's instance would be the task's."""
    bench = make_bench()
    await ready(bench)
    await bench.plugin.reserve(claim("task", SMALL, 0))
    assert recorded_owners(machine) == ["task"]
    fake.change(machine, lambda state: state["gpus"][0].update(gis=[], migs=[]))
    await bench.plugin.update_claims((claim("task", SMALL, 0),))
    assert recorded_owners(machine) == []


async def test_the_owner_of_an_instance_that_makes_way_is_forgotten(make_bench: MakeBench, machine: Path) -> None:
    bench = make_bench()
    await ready(bench)
    await bench.plugin.reserve(claim("old", SMALL, 1))
    use = [{"pid": 7, "memory_mib": 5}]
    fake.change(machine, lambda state: state["gpus"][0]["migs"][0].update(processes=use))
    await bench.plugin.update_claims(())
    fake.change(machine, lambda state: state["gpus"][0]["migs"][0].update(processes=[]))
    await bench.plugin.reserve(claim("new", HALF, 0))
    assert recorded_owners(machine) == ["new"]


QUESTIONS = [
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGpuInstances",
    "nvmlGpuInstanceGetInfo",
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    "nvmlGpuInstanceGetComputeInstances",
]


def fail(machine: Path, **errors: str) -> None:
    """Let these functions of the first card fail."""
    fake.change(machine, lambda state: state["gpus"][0].update(errors=errors))


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_question_that_fails_is_not_taken_for_no_instances(
    make_bench: MakeBench, machine: Path, question: str
) -> None:
    bench = make_bench()
    await ready(bench)
    await bench.plugin.reserve(claim("task", SMALL, 0))
    fail(machine, **{question: "UNKNOWN"})
    with pytest.raises(RecoverableError, match="failed: Unknown Error"):
        await bench.plugin.reserve(claim("task", SMALL, 0))
    await bench.plugin.update_claims(())
    assert instances(machine) == [(0, 1)], "nothing is destroyed while the driver does not answer"
    fail(machine)
    await bench.plugin.update_claims(())
    assert instances(machine) == [], "its owner was not forgotten meanwhile"


@pytest.mark.parametrize("question", QUESTIONS[:4])
async def test_no_instance_is_created_over_an_unknown_list(make_bench: MakeBench, machine: Path, question: str) -> None:
    bench = make_bench()
    await ready(bench)
    await bench.plugin.reserve(claim("other", SMALL, 0))
    fail(machine, **{question: "UNKNOWN"})
    with pytest.raises(RecoverableError, match="failed: Unknown Error"):
        await bench.plugin.reserve(claim("task", SMALL, 1))
    assert instances(machine) == [(0, 1)]


@pytest.mark.parametrize("question", [QUESTIONS[1], "nvmlDeviceGetGpuInstancePossiblePlacements_v2"])
def test_part_of_the_profiles_is_no_answer(nvml: MakeNvml, machine: Path, question: str) -> None:
    """The plugin asks once: a card would offer only these until the agent starts again."""
    driver = nvml("h100x8")
    driver.look()
    control = driver.mig_control()
    assert control.profiles(gpu(0)) == (), "drivers answer in MIG mode only"
    control.set_mode(gpu(0), is_on=True)
    assert control.profiles(gpu(0))
    fail(machine, **{question: "UNKNOWN"})
    with pytest.raises(MigProblem, match=r"profile.* failed: Unknown Error"):
        control.profiles(gpu(0))


@pytest.mark.parametrize("error", ["NO_PERMISSION", "NOT_SUPPORTED", "FUNCTION_NOT_FOUND"])
async def test_a_question_that_the_driver_refuses_for_good_fails_the_task(
    make_bench: MakeBench, machine: Path, error: str
) -> None:
    bench = make_bench()
    await ready(bench)
    fail(machine, nvmlDeviceGetGpuInstances=error)
    with pytest.raises(DriverError, match=r"asking GPU .* for its MIG instances failed") as caught:
        await bench.plugin.reserve(claim("task", SMALL, 0))
    assert not isinstance(caught.value, RecoverableError) and instances(machine) == []


async def test_a_card_in_mig_mode_whose_driver_names_no_profile_has_an_unknown_list(
    make_bench: MakeBench, machine: Path
) -> None:
    bench = make_bench()
    await ready(bench)
    await bench.plugin.reserve(claim("task", SMALL, 0))
    fail(machine, nvmlDeviceGetGpuInstanceProfileInfoV="NOT_SUPPORTED")
    with pytest.raises(RecoverableError, match="names no MIG profiles now"):
        await bench.plugin.reserve(claim("task", SMALL, 0))
    await bench.plugin.update_claims(())
    assert instances(machine) == [(0, 1)] and recorded_owners(machine) == ["task"]


async def test_an_instance_of_another_uuid_at_the_place_of_a_task_is_not_the_tasks(
    make_bench: MakeBench, machine: Path
) -> None:
    """It has the number and the first slice of the instance of a task that ended while the agent was down."""
    await left_behind(make_bench, machine, claim("ended", SMALL, 0))

    def made_by_another_tool(state: dict[str, Any]) -> None:
        state["gpus"][0]["migs"][0].update(uuid="MIG-other")

    async with restarted(machine, [gpu(0)]) as (again, _):
        await again.plugin.update_claims((claim("ended", SMALL, 0),))
    fake.change(machine, made_by_another_tool)
    async with restarted(machine, [gpu(1)]) as (again, _):
        await again.plugin.update_claims(())
        assert instances(machine) == [(0, 1)] and card(machine)["mig"] is True


def test_owners_of_an_earlier_boot_are_forgotten_and_their_cards_are_not(tmp_path: Path) -> None:
    """A restart of the machine ends all instances, so those found afterwards belong to another tool."""
    owner = InstanceOwner(number=1, start=0, alloc_id="a", task_name="task")
    MigRecord(str(tmp_path), "boot-1").write({gpu(0): RecordedCard(owners=(owner,))})
    assert MigRecord(str(tmp_path), "boot-1").read()[gpu(0)].owners == (owner,)
    assert MigRecord(str(tmp_path), "").read()[gpu(0)].owners == (owner,)
    assert MigRecord(str(tmp_path), "boot-2").read()[gpu(0)].owners == ()


async def test_the_owners_of_a_record_without_uuids_and_boot_are_kept_and_completed(
    make_bench: MakeBench, machine: Path
) -> None:
    """Earlier versions of the plugin wrote neither."""
    await left_behind(make_bench, machine, claim("running", SMALL, 0), claim("ended", SMALL, 1))
    record = machine.parent / RECORD
    found = json.loads(record.read_text())
    assert found[gpu(0)].pop("BootID")
    for each in found[gpu(0)]["Owners"]:
        each.pop("Uuid", None)
    record.write_text(json.dumps(found))
    async with restarted(machine, [gpu(0)]) as (again, _):
        await again.plugin.update_claims((claim("running", SMALL, 0),))
        assert instances(machine) == [(0, 1)] and recorded_owners(machine) == ["running"]
        written = json.loads(record.read_text())[gpu(0)]
        assert written["BootID"] and written["Owners"][0]["Uuid"] == card(machine)["migs"][0]["uuid"]
        given = await again.plugin.reserve(claim("running", SMALL, 0))
        assert given.env["NVIDIA_VISIBLE_DEVICES"] == written["Owners"][0]["Uuid"]
