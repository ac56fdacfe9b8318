"""From facts to groups, links, health and variables: pure steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from yurt.sdk.device import ClaimedDevices, DeviceClaim, Quantity
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano
from yurt_device_nvidia.condition import condition_of
from yurt_device_nvidia.facts import Condition
from yurt_device_nvidia.groups import GroupOffer, nvlink_counts, ranges
from yurt_device_nvidia.health import (
    ConditionSample,
    HealthRules,
    SeenXid,
    Verdict,
    sampled,
    signs_of_fault,
    verdict_against,
)
from yurt_device_nvidia.nvml import Nvml
from yurt_device_nvidia.options import seconds
from yurt_device_nvidia.reservation import read_cdi_names, reservation

MakeNvml = Callable[..., Nvml]
SECOND = 1_000_000_000


def reason_of(condition: Condition, xid: SeenXid | None, *, now: UnixNano, rules: HealthRules) -> str:
    verdict = verdict_against(condition, xid, now=now, rules=rules)
    return verdict.reason if verdict is not None else ""


def gpu(number: int) -> str:
    return f"GPU-00000001-{number:04x}-4a5b-8c6d-{number:012x}"


def test_cards_of_one_name_are_a_group_with_nomads_attributes(nvml: MakeNvml) -> None:
    look = nvml("h100x8").look()
    (group,) = GroupOffer(look.system, look.cards, reasons={}, modes=("mps", "slice")).groups()

    assert (group.vendor, group.type, group.name, len(group.instances)) == ("nvidia", "gpu", "NVIDIA H100 80GB HBM3", 8)
    nomads = {name: group.attributes[name] for name in ("memory", "power", "bar1", "cores_clock", "memory_clock",
              "pci_bandwidth", "driver_version", "display_state", "persistence_mode")}  # fmt: skip
    assert nomads == {
        "memory": Quantity(value=81559, unit="MiB"), "power": Quantity(value=700, unit="W"),
        "bar1": Quantity(value=131072, unit="MiB"), "cores_clock": Quantity(value=1980, unit="MHz"),
        "memory_clock": Quantity(value=2619, unit="MHz"), "pci_bandwidth": Quantity(value=63008, unit="MB/s"),
        "driver_version": "550.54.15", "display_state": "Disabled", "persistence_mode": "Enabled",
    }  # fmt: skip
    assert (group.attributes["sharing"], group.attributes["nvlink_count"]) == ("mps,slice", 18)


def test_a_split_card_is_offered_by_its_instances_alone(nvml: MakeNvml) -> None:
    look = nvml("mig-split").look()
    groups = {group.name: group for group in GroupOffer(look.system, look.cards, reasons={}).groups()}
    small = groups["NVIDIA H100 80GB HBM3 MIG 1g.10gb"]

    assert {name: len(group.instances) for name, group in groups.items()} == {
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb": 2, "NVIDIA H100 80GB HBM3 MIG 1g.10gb": 1, "NVIDIA H100 80GB HBM3": 1,
    }  # fmt: skip
    assert (small.attributes["mig_profile"], small.attributes["sharing"]) == ("1g.10gb", "mig")
    assert small.instances[0].attributes["mig_parent"] == gpu(0)


def test_a_reason_makes_one_card_unhealthy_and_all_instances_of_a_split_one(nvml: MakeNvml) -> None:
    look = nvml("mig-split").look()
    groups = GroupOffer(look.system, look.cards, reasons={gpu(0): "Xid 79"}).groups()
    ill = {each.id for group in groups for each in group.instances if not each.is_healthy}

    assert ill == set(look.cards[0].devices)


def test_ignored_ids_are_not_offered(nvml: MakeNvml) -> None:
    look = nvml("h200").look()

    assert GroupOffer(look.system, look.cards, reasons={}, ignored=frozenset({gpu(0)})).groups() == ()


@pytest.mark.parametrize(
    ("name", "count", "peers"),
    [("h100x8", 18, 7), ("dgx-a100", 12, 7), ("a6000-bridged", 4, 1), ("l40s-pairs", 0, 0)],
)
def test_nvlink_joins_cards_directly_or_over_switches(nvml: MakeNvml, name: str, count: int, peers: int) -> None:
    links = nvlink_counts(nvml(name).look().cards)

    assert {len(others) for others in links.values()} == {peers}
    assert {each for others in links.values() for each in others.values()} == ({count} if count else set())


def test_ranges_of_cpus_are_written_short() -> None:
    assert [ranges(each) for each in ((0, 1, 2, 8), (5,), ())] == ["0-2,8", "5", ""]


RULES = HealthRules(quiet_s=60.0, ignored=frozenset({74}))


@pytest.mark.parametrize(
    ("condition", "word"),
    [
        (Condition(), ""),
        (Condition(lost="GPU is lost"), "does not answer"),
        (Condition(remap_failed=True), "replaced"),
        (Condition(remap_pending=True), "reset the card"),
        (Condition(uncorrected_errors=1), "a memory error"),
        (Condition(uncorrected_errors=3), "3 memory errors"),
        (Condition(links_down=(4,)), "NVLink 4 is down"),
        (Condition(links_down=(4, 7)), "NVLinks 4, 7 are down"),
    ],
)
def test_a_condition_holds_as_long_as_it_is_reported(condition: Condition, word: str) -> None:
    reason = reason_of(condition, None, now=UnixNano(0), rules=RULES)

    assert bool(reason) == bool(word)
    assert word in reason


def test_an_xid_error_counts_until_the_card_has_been_quiet() -> None:
    xid = SeenXid(number=79, at=UnixNano(0))
    reasons = [reason_of(Condition(), xid, now=UnixNano(at * SECOND), rules=RULES) for at in (0, 59, 60)]

    assert reasons == ["Xid 79: it has fallen off the bus"] * 2 + [""]
    forever = HealthRules(quiet_s=0)
    assert reason_of(Condition(), xid, now=UnixNano(10**18), rules=forever)


def test_errors_of_programs_and_ignored_ones_say_nothing_about_the_card() -> None:
    assert [number for number in (13, 31, 43, 48, 63, 74, 79, 95) if RULES.counts(number)] == [48, 79, 95]


def claim(*ids: str) -> DeviceClaim:
    return DeviceClaim(
        alloc_id="a", task_name="t", devices=(ClaimedDevices(vendor="nvidia", type="gpu", name="H100", ids=ids),)
    )


def test_a_task_sees_its_cards_and_the_nodes_of_the_driver(nvml: MakeNvml, tmp_path: Path) -> None:
    cards = nvml("h100x8").look().cards
    (tmp_path / "nvidia-uvm-tools").touch()
    found = reservation(claim(gpu(6), gpu(2)), cards, folder=tmp_path, cdi_names=frozenset({"2", "6"}), mig_minors="")

    assert found.env == dict.fromkeys(("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), f"{gpu(6)},{gpu(2)}")
    assert [node.task_path for node in found.nodes] == [
        "/dev/nvidia6", "/dev/nvidia2", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
    ]  # fmt: skip
    assert found.cdi_devices == ("nvidia.com/gpu=6", "nvidia.com/gpu=2")
    assert found.engine_devices[0].ids == (gpu(6), gpu(2))


def test_an_instance_opens_with_its_capability_files(nvml: MakeNvml, tmp_path: Path) -> None:
    cards = nvml("mig-split").look().cards
    mig = cards[0].migs[1]
    minors = "config 1\ngpu0/gi2/access 21\ngpu0/gi2/ci0/access 22\ngpu0/gi3/access 30\n"
    found = reservation(claim(mig.uuid), cards, folder=tmp_path, cdi_names=frozenset({"0:1"}), mig_minors=minors)

    assert [node.task_path for node in found.nodes][:3] == [
        "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22",
    ]  # fmt: skip
    assert found.cdi_devices == ("nvidia.com/gpu=0:1",)


def test_without_a_specification_that_names_all_devices_there_are_no_cdi_names(nvml: MakeNvml, tmp_path: Path) -> None:
    cards = nvml("h100x8").look().cards
    found = reservation(claim(gpu(6), gpu(2)), cards, folder=tmp_path, cdi_names=frozenset({"2"}), mig_minors="")

    assert found.cdi_devices == ()


def test_names_of_specifications_are_read_from_yaml_and_json(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(
        'cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: "0"\n- name: all\n'
    )
    (tmp_path / "more.json").write_text('{"kind": "nvidia.com/gpu", "devices": [{"name": "GPU-1"}]}')
    (tmp_path / "other.json").write_text('{"kind": "vendor.com/net", "devices": [{"name": "eth9"}]}')

    assert read_cdi_names((tmp_path, tmp_path / "none")) == {"0", "all", "GPU-1"}


def test_durations_of_the_configuration_are_checked() -> None:
    assert [seconds("x", text) for text in ("1m", "30s", "1h30m", "200ms", "0")] == [60.0, 30.0, 5400.0, 0.2, 0.0]
    with pytest.raises(Invalid, match="health_period"):
        seconds("health_period", "soon")


@pytest.mark.parametrize(
    ("condition", "xid", "severity"),
    [
        (Condition(lost="GPU is lost"), None, "failed"),
        (Condition(remap_failed=True), None, "failed"),
        (Condition(remap_pending=True), None, "degraded"),
        (Condition(uncorrected_errors=1), None, "degraded"),
        (Condition(recovery_action=2), None, "failed"),
        (Condition(links_down=(0,)), None, "degraded"),
        (Condition(recovery_action=4), None, "degraded"),
        (Condition(), 79, "failed"),
        (Condition(), 74, "degraded"),
    ],
)
def test_a_fault_is_as_bad_as_what_it_does_to_the_cards_holders(
    condition: Condition, xid: int | None, severity: str
) -> None:
    seen = SeenXid(number=xid, at=UnixNano(0)) if xid is not None else None
    verdict = verdict_against(condition, seen, now=UnixNano(0), rules=RULES)
    assert verdict is not None
    assert verdict.severity == severity


def test_the_worst_of_several_faults_counts() -> None:
    xid = SeenXid(number=79, at=UnixNano(0))
    verdict = verdict_against(Condition(remap_pending=True, recovery_action=4), xid, now=UnixNano(0), rules=RULES)

    assert verdict == Verdict(severity="failed", reason="Xid 79: it has fallen off the bus")


def test_bindings_that_lack_names_still_tell_the_rest() -> None:
    named = {
        "nvmlDeviceGetTotalEccErrors": lambda _handle, kind, _counter: kind,
        "nvmlDeviceGetRemappedRows": lambda _handle: (0, 0, 1, 0),
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 3, "NVML_MEMORY_ERROR_TYPE_CORRECTED": 5, "NVML_VOLATILE_ECC": 0,
    }  # fmt: skip
    found = condition_of(SimpleNamespace(**named), lambda question, *given: question(*given), None)

    assert found == Condition(uncorrected_errors=3, corrected_errors=5, remap_pending=True)


def test_signs_of_a_fault_are_what_a_card_did_within_ten_minutes() -> None:
    samples: tuple[ConditionSample, ...] = ()
    for at in range(0, 120, 5):
        samples = sampled(samples, Condition(corrected_errors=at // 10), now=UnixNano(at * SECOND))
    assert "memory errors were corrected" in signs_of_fault(samples)
    samples = sampled(samples, Condition(corrected_errors=12), now=UnixNano(3600 * SECOND))
    assert (len(samples), signs_of_fault(samples)) == (1, "")
    for at in range(20):
        samples = sampled(samples, Condition(is_throttled=at % 5 == 0), now=UnixNano((3601 + at) * SECOND))
    assert "slowed the clocks" in signs_of_fault(samples)
