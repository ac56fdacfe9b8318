"""The GPU usage of allocations and jobs as text."""

from __future__ import annotations

from typing import Any, Final

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import Invocation
from yurt.cli.errors import ApiError
from yurt.cli.terminal.text import SECOND, bytes_text, mebibytes, two_units

Json = dict[str, Any]
HOUR_MS: Final = 3_600_000
MJ_OF_KWH: Final = 3_600_000_000


def show_alloc_account(call: Invocation, alloc: Json, stats: Json) -> None:
    """Print what an allocation used of its GPUs; nothing for one without.

    `stats` is the answer of a running allocation's node, whose sums are newer than those of the servers.
    """
    account = account_of(call, api_path("yurt", "allocation", alloc["ID"], "accounting"), {})
    if account is not None:
        call.screen.title("GPU Usage")
        call.screen.pairs(account_facts(with_live(account, stats.get("Accounting"))))


def show_job_account(call: Invocation, job: Json) -> None:
    """Print what a job's allocations used of GPUs together; nothing for one without."""
    query = {"namespace": job.get("Namespace")}
    account = account_of(call, api_path("yurt", "job", job["ID"], "accounting"), query)
    if account is not None:
        call.screen.title("GPU Usage")
        call.screen.pairs([("Allocations", account["Allocs"]), *account_facts(account)])


def account_of(call: Invocation, path: str, query: Json) -> Json | None:
    """An account; None without GPUs, and of an agent that keeps none."""
    try:
        found: Json | None = call.api.get(path, query)
    except ApiError:
        return None
    return (found or {}).get("Accounting")


def with_live(account: Json, live: Json | None) -> Json:
    """An account with the sums that the node has now."""
    if not live:
        return account
    wall = live.get("WallMs") or 0
    return account | {
        "MeasuredGPUHours": (live.get("MeasuredMs") or 0) / HOUR_MS,
        "UnattributedGPUHours": (live.get("UnattributedMs") or 0) / HOUR_MS,
        "UsedGPUHours": (live.get("BusyMs") or 0) / HOUR_MS,
        "IdleGPUHours": (live.get("IdleMs") or 0) / HOUR_MS,
        "ThrottledGPUHours": (live.get("ThrottledMs") or 0) / HOUR_MS,
        "ThrottleReasons": {name: value / HOUR_MS for name, value in (live.get("ThrottleReasons") or {}).items()},
        "EnergyKWh": (live.get("EnergyMj") or 0) / MJ_OF_KWH,
        "VRAMBookedMB": live.get("MemoryBookedMB") or 0,
        "VRAMPeakMB": live.get("MemoryPeakMB") or 0,
        "VRAMMeanMB": (live.get("MemoryMBMs") or 0) // wall if wall else 0,
        "PCIeBytes": live.get("PcieBytes") or 0,
        "NVLinkBytes": live.get("NvlinkBytes") or 0,
    }


def account_facts(account: Json) -> list[tuple[str, object]]:
    """The facts of an account; missing measurements are left out, not shown as zero."""
    booked, measured = account["GPUHours"], account["MeasuredGPUHours"]
    facts: list[tuple[str, object]] = []
    if "GPUs" in account:
        facts.append(("GPUs", f"{account['GPUs']:g}"))
    facts.append(("GPU Time", gpu_time(booked)))
    if measured:
        used, idle = account["UsedGPUHours"], account["IdleGPUHours"]
        whole = account.get("UnattributedGPUHours") or 0
        note = f", of whole shared cards for {gpu_time(whole)}" if whole else ""
        facts.append(("Utilisation", f"{100 * used / measured:.0f}% of {gpu_time(measured)} measured{note}"))
        facts.append(("Idle", f"{gpu_time(idle)} ({100 * idle / measured:.0f}%)"))
    if account.get("VRAMPeakMB"):
        facts.append(("VRAM", vram_text(account)))
    if account["EnergyKWh"]:
        facts.append(("Energy", energy_text(account["EnergyKWh"])))
    if account["ThrottledGPUHours"]:
        facts.append(("Throttled", throttled_text(account)))
    if account["PCIeBytes"] or account["NVLinkBytes"]:
        facts.append(
            ("Traffic", f"PCIe {bytes_text(account['PCIeBytes'])}, NVLink {bytes_text(account['NVLinkBytes'])}")
        )
    if account["QueueWaitSeconds"] is not None:
        facts.append(("Queue Wait", wait_text(account)))
    if account["Preempted"]:
        facts.append(("Preemptions", account["Preempted"]))
    if words := reclaim_text(account):
        facts.append(("Idle Reclaim", words))
    lost = account["LostGPUHours"]
    if lost:
        facts.append(("Lost GPU Time", ", ".join(f"{gpu_time(hours)} {reason}" for reason, hours in lost.items())))
    facts.append(("Cost", f"{account['Cost']:.2f}"))
    return facts


def reclaim_text(account: Json) -> str:
    """How many allocations ended for being idle, and how many announced ends did not come; empty for none."""
    parts = (("IdleEnded", "ended"), ("IdleSparedByUse", "spared by use"), ("IdleSparedByKeep", "spared by keep"))
    return ", ".join(f"{account[name]} {word}" for name, word in parts if account.get(name))


def gpu_time(hours: float) -> str:
    """Hours of a card: "3.25 GPU-hours", below a hundredth of one in seconds."""
    return f"{hours * 3600:.0f} GPU-seconds" if hours < 0.01 else f"{hours:.2f} GPU-hours"


def vram_text(account: Json) -> str:
    """The peak, and of an allocation the mean and what it booked."""
    peak = f"peak {mebibytes(account['VRAMPeakMB'])}"
    if "VRAMMeanMB" not in account:
        return peak
    return f"mean {mebibytes(account['VRAMMeanMB'])}, {peak}, booked {mebibytes(account['VRAMBookedMB'])}"


def energy_text(kwh: float) -> str:
    """ "1.25 kWh", below a hundredth of one in Wh."""
    return f"{kwh * 1000:.2f} Wh" if kwh < 0.01 else f"{kwh:.2f} kWh"


def throttled_text(account: Json) -> str:
    """How long, and of an allocation by which reasons."""
    total = gpu_time(account["ThrottledGPUHours"])
    reasons = account.get("ThrottleReasons") or {}
    if not reasons:
        return total
    return f"{total} ({', '.join(f'{name} {gpu_time(hours)}' for name, hours in sorted(reasons.items()))})"


def wait_text(account: Json) -> str:
    """The mean wait, and the longest of several."""
    mean = two_units(round(account["QueueWaitSeconds"] * SECOND))
    if account["Allocs"] < 2:
        return mean
    return f"{mean} in the mean, {two_units(round(account['QueueWaitMaxSeconds'] * SECOND))} at most"
