"""Machines with their published specifications and idle GPUs; each is the content of a fake's JSON file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
SWITCHES = tuple(f"00000000:{bus:02X}:00.0" for bus in (0x87, 0x88, 0x89, 0x8A))
MIB_OF_1G_10GB, MIB_OF_3G_40GB = 9856, 40448


def uuid(kind: str, number: int, machine: int = 1) -> str:
    """An id in NVIDIA's format, the same in every run."""
    return f"{kind}-{machine:08x}-{number:04x}-4a5b-8c6d-{number:012x}"


def mig_profiles(memory_mib: int, multiprocessors: int) -> list[Json]:
    """The profiles of a card with seven slices: NVML's number and the id of each, its slices, memory and places."""
    eighth = memory_mib // 8
    shapes = (
        (0x0, 19, 1, 1, eighth - 270, range(7)),
        (0x9, 15, 1, 2, 2 * eighth - 156, range(0, 8, 2)),
        (0x1, 14, 2, 2, 2 * eighth - 156, range(0, 6, 2)),
        (0x2, 9, 3, 4, 4 * eighth - 56, (0, 4)),
        (0x3, 5, 4, 4, 4 * eighth - 56, (0,)),
        (0x4, 0, 7, 8, memory_mib, (0,)),
    )
    return [
        {
            "number": number, "id": profile, "name": f"{slices}g.{round(memory_mib / 8 / 1000) * size}gb",
            "slices": slices, "size": size, "memory_mib": memory, "starts": list(starts),
            "multiprocessors": multiprocessors // 8 * slices,
        }
        for number, profile, slices, size, memory, starts in shapes
    ]  # fmt: skip


def card(index: int, **changes: Any) -> Json:
    """An idle H100 of an HGX board."""
    return {
        "uuid": uuid("GPU", index),
        "name": "NVIDIA H100 80GB HBM3",
        "serial": f"16502230{index:05d}",
        "minor": index,
        "bus_id": f"00000000:{0x19 + 0x10 * index:02X}:00.0",
        "memory_mib": 81559,
        "reserved_mib": 551,
        "used_mib": 0,
        "bar1_mib": 131072,
        "bar1_used_mib": 1,
        "power_limit_w": 700,
        "power_w": 71.3,
        "clock_max": {"sm": 1980, "mem": 2619},
        "pcie": {"gen": 5, "width": 16},
        "display": False,
        "persistence": True,
        "ecc": True,
        "compute_mode": "Default",
        "mig": False,
        "migs": [],
        "mig_profiles": mig_profiles(81008, 132),
        "capability": "9.0",
        "architecture": 9,
        "numa": 0 if index < 4 else 1,
        "cpus": "0-47,96-143" if index < 4 else "48-95,144-191",
        "nvlinks": [],
        "temperature": 31,
        "utilization": {"gpu": 0, "memory": 0, "encoder": 0, "decoder": 0},
        "processes": [],
        "ecc_errors": {"corrected": 0, "uncorrected": 0},
        "remapped": {"corrected": 0, "uncorrected": 0, "pending": False, "failed": False},
        "lost": False,
        "errors": {},
        **changes,
    }


def machine(gpus: list[Json], **changes: Any) -> Json:
    """A machine with these GPUs, connected across the sockets unless `topology` says otherwise."""
    return {
        "driver_version": "550.54.15",
        "cuda_version": "12.4",
        "init_error": "",
        "missing_functions": [],
        "gpus": gpus,
        "topology": {},
        "events": [],
        **changes,
    }


def h100x8() -> Json:
    """HGX H100: eight GPUs, 18 links each over four NVSwitches, two NUMA nodes."""
    links = [{"to": SWITCHES[number % 4], "kind": "switch"} for number in range(18)]
    return machine([card(index, nvlinks=links) for index in range(8)])


def dgx_a100() -> Json:
    """DGX A100: eight GPUs, 12 links each over six NVSwitches, pairs below one PCIe switch, eight NUMA nodes."""
    switches = [f"00000000:{bus:02X}:00.0" for bus in range(0xC4, 0xCA)]
    links = [{"to": switches[number % 6], "kind": "switch"} for number in range(12)]
    nodes = (3, 3, 1, 1, 7, 7, 5, 5)
    gpus = [
        card(
            index,
            name="NVIDIA A100-SXM4-80GB",
            memory_mib=81920,
            reserved_mib=694,
            mig_profiles=mig_profiles(81226, 108),
            mig_needs_reset=True,
            power_limit_w=400,
            clock_max={"sm": 1410, "mem": 1593},
            pcie={"gen": 4, "width": 16},
            capability="8.0",
            architecture=7,
            nvlinks=links,
            numa=nodes[index],
            cpus=f"{16 * nodes[index]}-{16 * nodes[index] + 15}",
        )
        for index in range(8)
    ]
    return machine(gpus, topology={f"{index}-{index + 1}": "PXB" for index in range(0, 8, 2)})


def l40s_pairs() -> Json:
    """Four PCIe cards without NVLink: two below one PCIe switch on each of two sockets."""
    gpus = [
        card(
            index,
            name="NVIDIA L40S",
            memory_mib=46068,
            mig_profiles=[],
            reserved_mib=600,
            bar1_mib=65536,
            power_limit_w=350,
            clock_max={"sm": 2520, "mem": 9001},
            pcie={"gen": 4, "width": 16},
            capability="8.9",
            architecture=8,
            numa=index // 2,
            cpus="0-31" if index < 2 else "32-63",
        )
        for index in range(4)
    ]
    return machine(gpus, topology={"0-1": "PIX", "2-3": "PIX"})


def a6000_bridged() -> Json:
    """Four workstation cards in two pairs, each joined by an NVLink bridge of four links; one NUMA node."""
    gpus = [
        card(
            index,
            name="NVIDIA RTX A6000",
            memory_mib=49140,
            mig_profiles=[],
            reserved_mib=455,
            bar1_mib=65536,
            power_limit_w=300,
            clock_max={"sm": 2100, "mem": 8001},
            pcie={"gen": 4, "width": 16},
            capability="8.6",
            architecture=7,
            numa=-1,
            cpus="0-63",
            nvlinks=[{"to": card(index ^ 1)["bus_id"], "kind": "gpu"}] * 4,
        )
        for index in range(4)
    ]
    return machine(gpus, topology={"*": "PHB"})


def mig_split() -> Json:
    """Two H100s: the first split into two of 3g.40gb and one of 1g.10gb, the second whole."""
    profiles = (("3g.40gb", MIB_OF_3G_40GB, 60), ("3g.40gb", MIB_OF_3G_40GB, 60), ("1g.10gb", MIB_OF_1G_10GB, 16))
    split = [
        {
            "uuid": uuid("MIG", number),
            "profile": profile,
            "memory_mib": memory,
            "reserved_mib": 0,
            "used_mib": 0,
            "multiprocessors": processors,
            "gi": number + 1,
            "ci": 0,
            "processes": [],
        }
        for number, (profile, memory, processors) in enumerate(profiles)
    ]
    return machine([card(0, mig=True, migs=split), card(1)])


def one() -> Json:
    """One H200 of 141 GB."""
    return machine(
        [card(0, name="NVIDIA H200", memory_mib=143771, reserved_mib=600, mig_profiles=mig_profiles(143171, 132))]
    )


LAYOUTS: dict[str, Callable[[], Json]] = {
    "h100x8": h100x8,
    "dgx-a100": dgx_a100,
    "l40s-pairs": l40s_pairs,
    "a6000-bridged": a6000_bridged,
    "mig-split": mig_split,
    "h200": one,
}


def layout(name: str) -> Json:
    """The machine of a name; raises KeyError with all names."""
    if name not in LAYOUTS:
        raise KeyError(f"no machine {name!r}; there are: {', '.join(LAYOUTS)}")
    return LAYOUTS[name]()
