"""Reading facts from the driver, through the real bindings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from yurt_device_nvidia import fake
from yurt_device_nvidia.facts import ProcessUse
from yurt_device_nvidia.library import has_card, has_library
from yurt_device_nvidia.nvml import LOADS_HELD_S, Nvml, NvmlProblem, Xid, numa_of_slot

MakeNvml = Callable[..., Nvml]
GPU = "GPU-00000001-{:04x}-4a5b-8c6d-{:012x}"


def gpu(number: int) -> str:
    return GPU.format(number, number)


def test_a_card_is_read_whole(nvml: MakeNvml) -> None:
    look = nvml("h100x8").look()
    card = look.cards[5]

    assert (look.system.driver_version, look.system.cuda_version) == ("550.54.15", "12.4")
    assert (card.uuid, card.name, card.index, card.minor) == (gpu(5), "NVIDIA H100 80GB HBM3", 5, 5)
    assert (card.memory_mb, card.reserved_mb, card.bar1_mb, card.power_w) == (81559, 551, 131072, 700)
    assert (card.cores_clock_mhz, card.memory_clock_mhz, card.pci_bandwidth_mb) == (1980, 2619, 16 * 3938)
    assert (card.display, card.persistence, card.ecc, card.mig) == (False, True, True, False)
    assert (card.compute_mode, card.capability, card.architecture) == ("Default", "9.0", "hopper")
    assert (card.numa_node, card.cpus[0], card.cpus[-1], len(card.cpus)) == (1, 48, 191, 96)
    assert (card.pci_bus_id, len(card.links), card.links[0].kind) == ("00000000:69:00.0", 18, "switch")
    assert card.ancestors[gpu(4)] == "NODE"
    assert card.ancestors[gpu(0)] == "SYS"


def test_a_driver_that_answers_less_gives_fewer_facts(nvml: MakeNvml) -> None:
    missing = [
        "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetArchitecture",
        "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMigMode",
    ]  # fmt: skip
    opened = nvml("h200", missing_functions=missing)
    card = opened.look().cards[0]

    assert (card.memory_mb, card.reserved_mb, card.architecture, card.mig) == (143771, None, None, None)
    use = opened.use(card.uuid)
    assert use is not None
    assert use.processes == ()


def test_a_split_card_has_its_instances(nvml: MakeNvml) -> None:
    whole = nvml("mig-split").look().cards
    migs = whole[0].migs

    assert [each.profile for each in migs] == ["3g.40gb", "3g.40gb", "1g.10gb"]
    assert (migs[2].memory_mb, migs[2].multiprocessors, migs[2].gpu_instance) == (9856, 16, 3)
    assert migs[0].name == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert whole[0].devices == tuple(each.uuid for each in migs)
    assert whole[1].devices == (gpu(1),)


def test_figures_and_processes_are_read(nvml: MakeNvml, machine: Path) -> None:
    opened = nvml("h200")
    opened.look()

    def load(state: dict[str, Any]) -> None:
        state["gpus"][0] |= {
            "processes": [{"pid": 4711, "memory_mib": 1024}, {"pid": 4712, "memory_mib": 20}],
            "power_w": 333.5, "temperature": 64,
            "utilization": {"gpu": 97, "memory": 41, "encoder": 3, "decoder": 2},
        }  # fmt: skip

    fake.change(machine, load)
    use = opened.use(gpu(0))

    assert use is not None
    assert (use.memory_used_mb, use.memory_total_mb) == (1044, 143771)
    assert (use.gpu_percent, use.memory_percent, use.encoder_percent, use.decoder_percent) == (97, 41, 3, 2)
    assert (use.power_w, use.power_limit_w, use.temperature_c) == (333.5, 700, 64)
    assert use.processes == (
        ProcessUse(pid=4711, memory_bytes=1024 << 20),
        ProcessUse(pid=4712, memory_bytes=20 << 20),
    )


def test_the_load_of_each_process_is_read_where_the_driver_reports_it(nvml: MakeNvml, machine: Path) -> None:
    opened = nvml("h200")
    opened.look()

    def loads(*processes: dict[str, Any]) -> dict[int, tuple[float | None, float | None]]:
        fake.change(machine, lambda state: state["gpus"][0].update(processes=list(processes)))
        use = opened.use(gpu(0))
        assert use is not None
        return {each.pid: (each.busy_percent, each.memory_percent) for each in use.processes}

    busy, quiet = {"pid": 1, "memory_mib": 10, "sm": 80, "mem": 30}, {"pid": 2, "memory_mib": 20, "sm": 0}
    assert loads(busy, quiet) == {1: (80.0, 30.0), 2: (0.0, 0.0)}
    assert loads(quiet) == {2: (0.0, 0.0)}, "no sample is no load"
    assert loads({"pid": 3, "memory_mib": 10}) == {3: (None, None)}, "this driver does not report it"


def test_each_sample_of_a_process_counts_once(nvml: MakeNvml, machine: Path) -> None:
    opened = nvml("h200")
    opened.look()

    assert [busy_of(opened, machine, percent) for percent in (80, 20, 60)] == [80.0, 20.0, 60.0]


def test_a_load_holds_until_the_driver_has_a_new_sample(nvml: MakeNvml, machine: Path) -> None:
    now = [1000.0]
    opened = nvml("h200", clock=lambda: now[0])
    opened.look()
    found = [busy_of(opened, machine, 80), busy_of(opened, machine, 20, paused=True)]
    now[0] += LOADS_HELD_S - 0.1
    found.append(busy_of(opened, machine, 20, paused=True))
    now[0] += 0.2
    found += [busy_of(opened, machine, 20, paused=True), busy_of(opened, machine, 20)]

    assert found == [80.0, 80.0, 80.0, 0.0, 20.0]


def busy_of(opened: Nvml, machine: Path, percent: int, *, paused: bool = False) -> float | None:
    """The load of a process that now computes for this part of the time."""
    process = {"pid": 1, "memory_mib": 10, "sm": percent}
    fake.change(machine, lambda state: state["gpus"][0].update(processes=[process], paused=paused))
    use = opened.use(gpu(0))
    assert use is not None
    (found,) = use.processes
    return found.busy_percent


def test_a_card_that_is_lost_says_so_and_the_others_answer(nvml: MakeNvml, machine: Path) -> None:
    opened = nvml("l40s-pairs")
    opened.look()
    fake.change(machine, lambda state: state["gpus"][2].update(lost=True))
    found = opened.conditions()

    assert found[gpu(2)].lost
    assert not any(found[gpu(number)].lost for number in (0, 1, 3))
    assert opened.use(gpu(2)) is None
    assert [card.uuid for card in opened.look().cards] == [gpu(0), gpu(1), gpu(3)]


def test_errors_of_memory_are_conditions(nvml: MakeNvml, machine: Path) -> None:
    opened = nvml("l40s-pairs")
    opened.look()

    def harm(state: dict[str, Any]) -> None:
        state["gpus"][0]["ecc_errors"]["uncorrected"] = 2
        state["gpus"][1]["remapped"]["pending"] = True
        state["gpus"][3]["remapped"]["failed"] = True

    fake.change(machine, harm)
    found = opened.conditions()

    assert found[gpu(0)].uncorrected_errors == 2
    assert (found[gpu(1)].remap_pending, found[gpu(3)].remap_failed) == (True, True)


def test_an_xid_error_comes_with_its_card(nvml: MakeNvml, machine: Path) -> None:
    opened = nvml("l40s-pairs")
    opened.look()
    events = opened.event_set()
    assert opened.next_xid(events, 1) is None
    new = [
        {"seq": 1, "gpu": gpu(3), "kind": "xid", "data": 79},
        {"seq": 2, "gpu": gpu(1), "kind": "xid", "data": 94, "gi": 2},
    ]
    fake.change(machine, lambda state: state["events"].extend(new))

    assert opened.next_xid(events, 500) == Xid(gpu(3), 79)
    assert opened.next_xid(events, 500) == Xid(gpu(1), 94, 2)
    assert opened.next_xid(events, 1) is None


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("DRIVER_NOT_LOADED", "container without GPUs"),
        ("NO_PERMISSION", "may not use"),
        ("LIB_RM_VERSION_MISMATCH", "different versions"),
        ("FUNCTION_NOT_FOUND", "too old"),
        ("GPU_IS_LOST", "fallen off"),
        ("OPERATING_SYSTEM", "NVML answers"),
    ],
)
def test_why_nothing_works_is_told_with_a_way_out(nvml: MakeNvml, error: str, word: str) -> None:
    with pytest.raises(NvmlProblem) as raised:
        nvml("h200", init_error=error)

    assert word in raised.value.reason
    assert raised.value.fix


def test_a_library_and_a_card_are_looked_for_before_anything_is_imported(tmp_path: Path) -> None:
    slot = tmp_path / "0000:19:00.0"
    slot.mkdir()
    (slot / "vendor").write_text("0x10de\n")
    (slot / "class").write_text("0x030200\n")
    (slot / "numa_node").write_text("1\n")

    assert not has_library("libno-such-thing.so.1")
    assert (has_card(tmp_path), has_card(tmp_path / "none")) == (True, False)
    assert numa_of_slot("00000000:19:00.0", tmp_path) == 1
    assert numa_of_slot("00000000:1A:00.0", tmp_path) is None
