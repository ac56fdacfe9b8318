"""Converts a device's usage to values with the names of Nomad's plugin. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from yurt.sdk.device import (
    ENERGY,
    GPU_UTILIZATION,
    MEMORY_UTILIZATION,
    NVLINK_TRAFFIC,
    PCIE_TRAFFIC,
    POWER,
    SM_UTILIZATION,
    THROTTLING,
    DeviceProcess,
    DeviceUse,
    Stat,
)
from yurt.sdk.value import UnixNano

from yurt_device_nvidia.activity import CardActivity
from yurt_device_nvidia.facts import CardUse


def device_use(use: CardUse, at: UnixNano) -> DeviceUse:
    """All values of a device; memory is the main one."""
    return DeviceUse(
        at=at,
        summary=memory_stat(use),
        stats=dict(figures(use)),
        processes=tuple(
            DeviceProcess(
                pid=each.pid,
                memory_bytes=each.memory_bytes,
                busy_percent=each.busy_percent,
                memory_percent=each.memory_percent,
            )
            for each in use.processes
        ),
    )


def memory_stat(use: CardUse) -> Stat:
    """Used and total memory."""
    return Stat(value=use.memory_used_mb, of=use.memory_total_mb, unit="MiB", description="UsedMemory / TotalMemory")


def figures(use: CardUse) -> Iterator[tuple[str, Stat]]:
    """The values that the driver reports."""
    yield "Memory state", memory_stat(use)
    if use.bar1_used_mb is not None:
        yield (
            "BAR1 buffer state",
            Stat(value=use.bar1_used_mb, of=use.bar1_total_mb, unit="MiB", description="UsedBAR1 / TotalBAR1"),
        )
    yield from activity_figures(use.activity)
    if use.power_w is not None:
        text = "Power usage for this GPU in watts / maximum power"
        yield POWER, Stat(value=use.power_w, of=use.power_limit_w, unit="W", description=text)
    if use.temperature_c is not None:
        yield "Temperature", Stat(value=use.temperature_c, unit="C", description="Temperature of the Unit")
    percents = {
        GPU_UTILIZATION: (use.gpu_percent, "Percent of time in which the GPU was busy"),
        MEMORY_UTILIZATION: memory_activity(use),
        "Encoder utilization": (use.encoder_percent, "Percent of encoder utilization"),
        "Decoder utilization": (use.decoder_percent, "Percent of decoder utilization"),
    }
    for name, (value, text) in percents.items():
        if value is not None:
            yield name, Stat(value=value, unit="%", description=text)
    errors = {"ECC corrected errors": use.corrected_errors, "ECC uncorrected errors": use.uncorrected_errors}
    for name, value in errors.items():
        if value is not None:
            yield name, Stat(value=value, unit="#", description="Memory errors since the last reset")
    yield "Processes", Stat(value=len(use.processes), unit="#", description="Programs that use the device")


def memory_activity(use: CardUse) -> tuple[float | None, str]:
    """The used part of the memory bandwidth if GPM reports it, otherwise the part of the time in which it is used."""
    if use.activity.dram_percent is not None:
        return use.activity.dram_percent, "Percent of the memory bandwidth that was used"
    return use.memory_percent, "Percent of time in which its memory was read or written"


def activity_figures(activity: CardActivity) -> Iterator[tuple[str, Stat]]:
    """The card's activity since the last measurement."""
    figures = {
        SM_UTILIZATION: (activity.sm_percent, "%", "Percent of the multiprocessors that were busy"),
        ENERGY: (activity.energy_j, "J", "Energy since the driver was loaded"),
        PCIE_TRAFFIC: (activity.pcie, "B/s", "Bytes a second over PCIe in both directions"),
        NVLINK_TRAFFIC: (activity.nvlink, "B/s", "Bytes a second over NVLink in both directions"),
    }
    for name, (value, unit, text) in figures.items():
        if value is not None:
            yield name, Stat(value=value, unit=unit, description=text)
    if activity.throttling is not None:
        text = "Why the clock is reduced; empty for a full clock"
        yield THROTTLING, Stat(value=",".join(activity.throttling), description=text)
