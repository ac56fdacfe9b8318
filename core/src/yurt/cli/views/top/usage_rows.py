"""The rows of `yurt top`: what allocations, jobs and nodes use and have booked. Pure: API documents in, rows out.

A figure is None where nobody reported it: a node that does not answer, an allocation that was not asked, a card whose
plugin knows no utilisation. None is shown as "-" and sorts last; it is not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

Json = dict[str, Any]
MIB: Final = 1024 * 1024


class UsageRow(NamedTuple):
    """One row: amounts in MHz, MiB, cards and percent of a card."""

    id: str
    name: str
    namespace: str
    status: str
    place: str
    """The node of an allocation, the number of a job's allocations, the pool of a node."""
    cpu_mhz: float | None = None
    cpu_booked_mhz: float = 0.0
    memory_mb: float | None = None
    memory_booked_mb: float = 0.0
    gpus: float = 0.0
    gpu_percent: float | None = None
    """The mean of its cards: of their multiprocessors where known."""
    vram_mb: float | None = None
    vram_booked_mb: float = 0.0
    power_w: float | None = None

    @property
    def document(self) -> Json:
        """The row as `-json` prints it."""
        return {
            "ID": self.id,
            "Name": self.name,
            "Namespace": self.namespace,
            "Status": self.status,
            "Place": self.place,
            "CPUMHz": self.cpu_mhz,
            "CPUBookedMHz": self.cpu_booked_mhz,
            "MemoryMB": self.memory_mb,
            "MemoryBookedMB": self.memory_booked_mb,
            "GPUs": self.gpus,
            "GPUPercent": self.gpu_percent,
            "VRAMMB": self.vram_mb,
            "VRAMBookedMB": self.vram_booked_mb,
            "PowerW": self.power_w,
        }


class CardFigures(NamedTuple):
    """What the cards of a task or node report together."""

    percents: tuple[float, ...] = ()
    vram_mb: float | None = None
    vram_total_mb: float = 0.0
    power_w: float | None = None


SORTS: Final[Mapping[str, Callable[[UsageRow], Any]]] = {
    "cpu": lambda row: row.cpu_mhz,
    "memory": lambda row: row.memory_mb,
    "gpu": lambda row: None if row.gpu_percent is None else row.gpu_percent * max(row.gpus, 0.001),
    "vram": lambda row: row.vram_mb,
    "power": lambda row: row.power_w,
    "name": lambda row: (row.namespace, row.name, row.id),
}
"""What rows can be sorted by; amounts sort with the largest first, `name` from A to Z."""


def ordered(rows: Iterable[UsageRow], by: str, *, is_reversed: bool = False) -> list[UsageRow]:
    """Rows in an order; those without the figure come last, whatever the direction."""
    key = SORTS[by]
    measured, unknown = list[UsageRow](), list[UsageRow]()
    for row in sorted(rows, key=SORTS["name"]):
        (unknown if key(row) is None else measured).append(row)
    measured.sort(key=key, reverse=(by != "name") != is_reversed)
    return measured + unknown


def cards_of(device_stats: Iterable[Json] | None) -> CardFigures:
    """What the groups of devices in an answer report."""
    percents, vram, total, power = list[float](), list[float](), 0.0, list[float]()
    for group in device_stats or ():
        for instance in (group.get("InstanceStats") or {}).values():
            figures = (instance.get("Stats") or {}).get("Attributes") or {}
            busy = number(figures.get("SM utilization"))
            busy = number(figures.get("GPU utilization")) if busy is None else busy
            percents += [] if busy is None else [busy]
            summary = instance.get("Summary") or {}
            used = number(summary)
            if summary.get("Unit") == "MiB" and used is not None:
                vram.append(used)
                total += number(summary, "Denominator") or 0.0
            watts = number(figures.get("Power usage"))
            power += [] if watts is None else [watts]
    return CardFigures(tuple(percents), sum(vram) if vram else None, total, sum(power) if power else None)


def number(stat: Json | None, part: str = "Numerator") -> float | None:
    """The number of a figure."""
    found = ((stat or {}).get(f"{kind}{part}Val") for kind in ("Int", "Float"))
    return next((float(each) for each in found if each is not None), None)


def mean(values: Iterable[float]) -> float | None:
    """The mean; None of nothing."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


def booked(resources: Json | None) -> tuple[float, float, float, float]:
    """CPU in MHz, memory in MiB, cards, and MiB of shared cards that an allocation booked."""
    cpu = memory = gpus = vram = 0.0
    for task in ((resources or {}).get("Tasks") or {}).values():
        cpu += (task.get("Cpu") or {}).get("CpuShares") or 0
        memory += (task.get("Memory") or {}).get("MemoryMB") or 0
        for device in task.get("Devices") or ():
            count = len(device.get("DeviceIDs") or ())
            part = (device.get("Compute") or 0) / 100 if device.get("Share") else 1.0
            gpus += count * (part or 1.0)
            vram += count * (device.get("MemoryMB") or 0)
    return cpu, memory, gpus, vram


def alloc_row(stub: Json, stats: Json | None) -> UsageRow:
    """An allocation; `stats` is what its node measures, None when it was not asked or does not answer."""
    cpu, memory, gpus, vram = booked(stub.get("AllocatedResources"))
    used = (stats or {}).get("ResourceUsage") or {}
    cards = cards_of(used.get("DeviceStats"))
    accounting = (stats or {}).get("Accounting") or {}
    return UsageRow(
        id=stub["ID"],
        name=stub["Name"],
        namespace=stub.get("Namespace") or "default",
        status=stub["ClientStatus"],
        place=stub.get("NodeName") or stub["NodeID"][:8],
        cpu_mhz=(used.get("CpuStats") or {}).get("TotalTicks"),
        cpu_booked_mhz=cpu,
        memory_mb=_mebibytes((used.get("MemoryStats") or {}).get("RSS")),
        memory_booked_mb=memory,
        gpus=gpus,
        gpu_percent=mean(cards.percents),
        vram_mb=cards.vram_mb,
        vram_booked_mb=accounting.get("MemoryBookedMB") or vram or cards.vram_total_mb,
        power_w=cards.power_w,
    )


def _mebibytes(size: float | None) -> float | None:
    return None if size is None else size / MIB


def job_rows(rows: Iterable[UsageRow], job_of: Mapping[str, str]) -> list[UsageRow]:
    """The allocations of each job added up; `job_of` has the job of each allocation."""
    jobs: dict[tuple[str, str], list[UsageRow]] = {}
    for row in rows:
        jobs.setdefault((row.namespace, job_of[row.id]), []).append(row)
    return [_summed(key, members) for key, members in jobs.items()]


def _summed(key: tuple[str, str], members: list[UsageRow]) -> UsageRow:
    def total(of: Callable[[UsageRow], float | None]) -> float | None:
        values = [value for value in map(of, members) if value is not None]
        return sum(values) if values else None

    weights = [(row.gpu_percent, max(row.gpus, 0.001)) for row in members if row.gpu_percent is not None]
    parts = sum(weight for _, weight in weights)
    return UsageRow(
        id=key[1],
        name=key[1],
        namespace=key[0],
        status="running",
        place=str(len(members)),
        cpu_mhz=total(lambda row: row.cpu_mhz),
        cpu_booked_mhz=sum(row.cpu_booked_mhz for row in members),
        memory_mb=total(lambda row: row.memory_mb),
        memory_booked_mb=sum(row.memory_booked_mb for row in members),
        gpus=sum(row.gpus for row in members),
        gpu_percent=sum(percent * weight for percent, weight in weights) / parts if weights else None,
        vram_mb=total(lambda row: row.vram_mb),
        vram_booked_mb=sum(row.vram_booked_mb for row in members),
        power_w=total(lambda row: row.power_w),
    )


def node_row(stub: Json, stats: Json | None) -> UsageRow:
    """A node: what its host uses, of what it has."""
    resources = stub.get("NodeResources") or {}
    cpu = (resources.get("Cpu") or {}).get("CpuShares") or 0
    memory = (resources.get("Memory") or {}).get("MemoryMB") or 0
    cards = cards_of((stats or {}).get("DeviceStats"))
    gpus = sum(len(group.get("Instances") or ()) for group in resources.get("Devices") or () if group["Type"] == "gpu")
    return UsageRow(
        id=stub["ID"],
        name=stub["Name"],
        namespace="",
        status=stub["Status"],
        place=stub.get("NodePool") or "default",
        cpu_mhz=None if stats is None else stats.get("CPUTicksConsumed"),
        cpu_booked_mhz=float(cpu),
        memory_mb=None if stats is None else _mebibytes((stats.get("Memory") or {}).get("Used")),
        memory_booked_mb=float(memory),
        gpus=float(gpus),
        gpu_percent=mean(cards.percents),
        vram_mb=cards.vram_mb,
        vram_booked_mb=cards.vram_total_mb,
        power_w=cards.power_w,
    )
