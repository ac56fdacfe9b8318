"""Measures a card's activity: multiprocessors, traffic, energy, throttling. Runs on `NvmlThread`.

Hopper and newer cards have GPM (GPU performance monitoring), without root: two samples give means of the time between
them. Each measurement is the second sample of one interval and the first of the next, so the interval is that of the
caller. Older cards say what PCIe carries (NVML counts for 20 ms in each direction) and how much NVLink carried so far.
What neither knows is None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from yurt.sdk.value import Value

KIB, MIB = 1024.0, 1024.0 * 1024.0
MICROSECONDS: Final = 1_000_000
ALL_LINKS: Final = 0xFFFFFFFF
MIG_PREFIX: Final = "MIG-"
REASONS: Final = (
    ("SwPowerCap", "sw_power"),
    ("SwThermalSlowdown", "sw_thermal"),
    ("HwSlowdown", "hw_slowdown"),
    ("HwThermalSlowdown", "hw_thermal"),
    ("HwPowerBrakeSlowdown", "hw_power_brake"),
)
"""NVML's clock event reasons that slow down a busy card; the low clock of an idle card does not count."""

Ask = Callable[..., Any]


class CardActivity(Value):
    """Figures since the last measurement; percent, bytes a second, joules."""

    sm_percent: float | None = None
    dram_percent: float | None = None
    pcie: float | None = None
    nvlink: float | None = None
    energy_j: float | None = None
    throttling: tuple[str, ...] | None = None


class _Links(NamedTuple):
    """A reading of the NVLink counters."""

    at_us: int
    kib: int


class ActivityMeter:
    """Measures cards and MIG instances; keeps the last sample of each, because rates are differences of samples."""

    def __init__(self, nvml: Any, ask: Ask) -> None:
        self._nvml = nvml
        self._ask = ask
        self._samples: dict[str, Any] = {}
        self._links: dict[str, _Links] = {}
        self._has_gpm: dict[str, bool] = {}

    def measure(self, device: str, handle: Any) -> CardActivity:
        """The figures of a card, or of a MIG instance."""
        nvml, is_mig = self._nvml, device.startswith(MIG_PREFIX)
        card = self._ask(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) if is_mig else handle
        if card is None:
            return CardActivity()
        found = self._gpm(device, card, self._ask(nvml.nvmlDeviceGetGpuInstanceId, handle) if is_mig else None)
        pcie, nvlink = found.get("pcie"), found.get("nvlink")
        if not is_mig:
            pcie = self._pcie(card) if pcie is None else pcie
            nvlink = self._nvlink(device, card) if nvlink is None else nvlink
        energy = self._ask(nvml.nvmlDeviceGetTotalEnergyConsumption, card)
        part = self._part(card, handle) if is_mig else 1.0
        return CardActivity(
            sm_percent=found.get("sm"),
            dram_percent=found.get("dram"),
            pcie=pcie,
            nvlink=nvlink,
            energy_j=None if energy is None or part is None else energy / 1000 * part,
            throttling=self._throttling(card),
        )

    def close(self) -> None:
        """Free the samples; called before the library is shut down."""
        for sample in self._samples.values():
            self._ask(self._nvml.nvmlGpmSampleFree, sample)
        self._samples.clear()

    def _part(self, card: Any, instance: Any) -> float | None:
        """An instance's part of its card's energy: the part of its memory, because NVML does not divide energy."""
        whole, mine = (self._ask(self._nvml.nvmlDeviceGetMemoryInfo, each) for each in (card, instance))
        return mine.total / whole.total if whole is not None and mine is not None and whole.total else None

    # Hopper and newer.

    def _gpm(self, device: str, card: Any, gpu_instance: int | None) -> dict[str, float]:
        """Means since the last call; empty at the first, and for a card without GPM."""
        nvml = self._nvml
        if not self._supports_gpm(device, card):
            return {}
        sample = self._ask(nvml.nvmlGpmSampleAlloc)
        if sample is None:
            return {}
        if gpu_instance is None:
            taken = self._ask(nvml.nvmlGpmSampleGet, card, sample)
        else:
            taken = self._ask(nvml.nvmlGpmMigSampleGet, card, gpu_instance, sample)
        if taken is None:
            self._ask(nvml.nvmlGpmSampleFree, sample)
            return {}
        before = self._samples.get(device)
        self._samples[device] = sample
        if before is None:
            return {}
        found = self._metrics(before, sample)
        self._ask(nvml.nvmlGpmSampleFree, before)
        return found

    def _supports_gpm(self, device: str, card: Any) -> bool:
        if device not in self._has_gpm:
            support = self._ask(self._nvml.nvmlGpmQueryDeviceSupport, card)
            self._has_gpm[device] = support is not None and bool(support.isSupportedDevice)
        return self._has_gpm[device]

    def _metrics(self, before: Any, after: Any) -> dict[str, float]:
        nvml = self._nvml
        wanted = {
            "sm": nvml.NVML_GPM_METRIC_SM_UTIL,
            "dram": nvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
            "pcie_tx": nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
            "pcie_rx": nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
            "nvlink_tx": nvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
            "nvlink_rx": nvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
        }
        question = nvml.c_nvmlGpmMetricsGet_t()
        question.version = nvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics = len(wanted)
        question.sample1, question.sample2 = before, after
        for position, metric in enumerate(wanted.values()):
            question.metrics[position].metricId = metric
        answer = self._ask(nvml.nvmlGpmMetricsGet, question)
        if answer is None:
            return {}
        values = {
            name: answer.metrics[position].value
            for position, name in enumerate(wanted)
            if answer.metrics[position].nvmlReturn == nvml.NVML_SUCCESS
        }
        traffic = {
            link: sum(values[name] for name in pair) * MIB
            for link, pair in (("pcie", ("pcie_tx", "pcie_rx")), ("nvlink", ("nvlink_tx", "nvlink_rx")))
            if all(name in values for name in pair)
        }
        return {name: values[name] for name in ("sm", "dram") if name in values} | traffic

    # All cards.

    def _pcie(self, card: Any) -> float | None:
        nvml = self._nvml
        directions = (nvml.NVML_PCIE_UTIL_TX_BYTES, nvml.NVML_PCIE_UTIL_RX_BYTES)
        rates = [self._ask(nvml.nvmlDeviceGetPcieThroughput, card, each) for each in directions]
        return None if None in rates else sum(rates) * KIB

    def _nvlink(self, device: str, card: Any) -> float | None:
        """The rate between two readings of the counters; None at the first, and without links."""
        nvml = self._nvml
        fields = (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)
        values = self._ask(nvml.nvmlDeviceGetFieldValues, card, [(field, ALL_LINKS) for field in fields])
        if values is None or any(value.nvmlReturn != nvml.NVML_SUCCESS for value in values):
            return None
        now = _Links(max(value.timestamp for value in values), sum(value.value.ullVal for value in values))
        before, self._links[device] = self._links.get(device), now
        if before is None or now.at_us <= before.at_us or now.kib < before.kib:
            return None
        return (now.kib - before.kib) * KIB * MICROSECONDS / (now.at_us - before.at_us)

    def _throttling(self, card: Any) -> tuple[str, ...] | None:
        nvml = self._nvml
        questions = (nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        answers = (self._ask(question, card) for question in questions)
        reasons = next((answer for answer in answers if answer is not None), None)
        if reasons is None:
            return None
        return tuple(name for bit, name in REASONS if reasons & getattr(nvml, f"nvmlClocksThrottleReason{bit}"))
