"""The functions of NVML about activity, energy and throttling, for the fake.

A card's `gpm` has percent (`sm`, `dram`) and MiB a second (`pcie_tx`, `pcie_rx`, `nvlink_tx`, `nvlink_rx`); what it
lacks follows `utilization`, or is zero. Cards before Hopper have no GPM. Energy is the integral of `power_w` since the
first question. A process may have its load, `sm` and `mem` in percent, of which the
driver takes a sample at each question, unless the card is `paused`. `throttle` are names of `activity.REASONS`.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Sequence
from ctypes import POINTER, c_int32, c_uint, c_uint64, c_ulonglong, c_void_p
from typing import Any, NamedTuple

import pynvml

from yurt_device_nvidia.activity import MICROSECONDS, REASONS
from yurt_device_nvidia.fake.library import FakeFailure, FakeLibrary, Handle, Pointer, nvml, put
from yurt_device_nvidia.fake.machine import Json

HOPPER = 9
SAMPLE_HANDLES = 0xA0000
KIB_OF_MIB = 1024
PROCESS_SAMPLES_MAX = 100


class ProcessSample(NamedTuple):
    """The load of one process at a time in microseconds."""

    at: int
    pid: int
    sm: int
    mem: int


class FakeGpm:
    """The samples that a caller has allocated, by handle: the device of each, once it is taken."""

    def __init__(self) -> None:
        self.samples: dict[int, int | None] = {}
        self.allocated = 0
        self.energy: dict[str, tuple[float, float]] = {}
        """Joules so far and their time, by card."""
        self.links: dict[str, tuple[float, float]] = {}
        """KiB so far and their time, by card."""
        self.loads: dict[str, deque[ProcessSample]] = {}
        """The driver's last samples of processes, by card."""


def gpm_of(lib: FakeLibrary) -> FakeGpm:
    """The samples of one library."""
    found = lib.parts.setdefault("gpm", FakeGpm())
    assert isinstance(found, FakeGpm)
    return found


def figure(lib: FakeLibrary, card: Json, name: str) -> float:
    """One figure of a card's GPM."""
    usual = {"sm": card["utilization"]["gpu"], "dram": card["utilization"]["memory"]}
    return lib.number(card.get("gpm", {}).get(name, usual.get(name, 0)))


def grown(counters: dict[str, tuple[float, float]], uuid: str, rate: float) -> float:
    """The value of a card's counter, which has grown by `rate` a second since its last reading."""
    now = time.monotonic()
    total, at = counters.get(uuid, (0.0, now))
    counters[uuid] = (total + rate * (now - at), now)
    return counters[uuid][0]


@nvml("nvmlDeviceGetTotalEnergyConsumption", Handle, Pointer)
def energy(lib: FakeLibrary, handle: int, out: int) -> None:
    card = lib.card(handle)
    put(out, c_uint64, int(grown(gpm_of(lib).energy, card["uuid"], lib.number(card["power_w"])) * 1000))


@nvml("nvmlDeviceGetProcessUtilization", Handle, Pointer, Pointer, c_ulonglong)
def process_utilization(lib: FakeLibrary, handle: int, out: int | None, size: int, last_seen: int) -> None:
    """The samples after `last_seen`; a machine whose processes have no `sm` does not report them."""
    part = lib.part(handle)
    known = [each for each in part["processes"] if "sm" in each]
    if not known:
        raise FakeFailure("NOT_SUPPORTED")
    samples = gpm_of(lib).loads.setdefault(part["uuid"], deque(maxlen=PROCESS_SAMPLES_MAX))
    if out is None and not part.get("paused"):
        # Bindings ask twice: first for the number of samples.
        _sample(lib, known, samples)
    new = [each for each in samples if each.at > last_seen]
    if not new:
        raise FakeFailure("NOT_FOUND")
    room = ctypes.cast(size, POINTER(c_uint))[0]
    put(size, c_uint, len(new))
    if out is None or room < len(new):
        raise FakeFailure("INSUFFICIENT_SIZE")
    array = ctypes.cast(out, POINTER(pynvml.c_nvmlProcessUtilizationSample_t))
    for index, each in enumerate(new):
        array[index].pid, array[index].timeStamp = each.pid, each.at
        array[index].smUtil, array[index].memUtil = each.sm, each.mem


def _sample(lib: FakeLibrary, processes: Sequence[Json], samples: deque[ProcessSample]) -> None:
    """Take a sample of each process that does something."""
    at = max(time.monotonic_ns() // 1000, samples[-1].at + 1 if samples else 0)
    for each in processes:
        sm, mem = int(lib.number(each["sm"])), int(lib.number(each.get("mem", 0)))
        if sm or mem:
            samples.append(ProcessSample(at, each["pid"], sm, mem))


@nvml("nvmlDeviceGetCurrentClocksEventReasons", Handle, Pointer)
def clock_reasons(lib: FakeLibrary, handle: int, out: int) -> None:
    names = lib.card(handle).get("throttle", ())
    bits = [getattr(pynvml, f"nvmlClocksThrottleReason{bit}") for bit, name in REASONS if name in names]
    put(out, c_ulonglong, sum(bits))


@nvml("nvmlDeviceGetPcieThroughput", Handle, c_uint, Pointer)
def pcie_throughput(lib: FakeLibrary, handle: int, counter: int, out: int) -> None:
    if lib.mig(handle):
        raise FakeFailure("NOT_SUPPORTED")
    name = "pcie_tx" if counter == pynvml.NVML_PCIE_UTIL_TX_BYTES else "pcie_rx"
    put(out, c_uint, int(figure(lib, lib.card(handle), name) * KIB_OF_MIB))


@nvml("nvmlDeviceGetFieldValues", Handle, c_int32, Pointer)
def field_values(lib: FakeLibrary, handle: int, count: int, out: int) -> None:
    card, values = lib.card(handle), ctypes.cast(out, POINTER(pynvml.c_nvmlFieldValue_t))
    names = {
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: "nvlink_tx",
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: "nvlink_rx",
    }
    for position in range(count):
        value = values[position]
        if value.fieldId == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION and "recovery_action" in card:
            value.nvmlReturn, value.valueType = pynvml.NVML_SUCCESS, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            value.value.uiVal = card["recovery_action"]
            continue
        name = names.get(value.fieldId) if card["nvlinks"] else None
        value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if name is None else pynvml.NVML_SUCCESS
        if name is not None:
            key = f"{card['uuid']}/{name}"
            rate = figure(lib, card, name) * KIB_OF_MIB
            value.value.ullVal = int(grown(gpm_of(lib).links, key, rate))
            value.timestamp = int(time.monotonic() * MICROSECONDS)


@nvml("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", Handle, Pointer)
def card_of_instance(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_void_p, lib.handle_of(lib.card(handle)))


# Performance monitoring.


@nvml("nvmlGpmQueryDeviceSupport", Handle, Pointer)
def gpm_support(lib: FakeLibrary, handle: int, out: int) -> None:
    support = ctypes.cast(out, POINTER(pynvml.c_nvmlGpmSupport_t)).contents
    support.isSupportedDevice = int(lib.card(handle)["architecture"] >= HOPPER)


@nvml("nvmlGpmSampleAlloc", Pointer)
def gpm_alloc(lib: FakeLibrary, out: int) -> None:
    gpm = gpm_of(lib)
    gpm.allocated += 1
    gpm.samples[SAMPLE_HANDLES + gpm.allocated] = None
    put(out, c_void_p, SAMPLE_HANDLES + gpm.allocated)


@nvml("nvmlGpmSampleFree", Pointer)
def gpm_free(lib: FakeLibrary, sample: int) -> None:
    del gpm_of(lib).samples[sample]


@nvml("nvmlGpmSampleGet", Handle, Pointer)
def gpm_sample(lib: FakeLibrary, handle: int, sample: int) -> None:
    gpm_of(lib).samples[sample] = handle


@nvml("nvmlGpmMigSampleGet", Handle, c_uint, Pointer)
def gpm_instance_sample(lib: FakeLibrary, handle: int, instance: int, sample: int) -> None:
    if instance not in [each["gi"] for each in lib.card(handle)["migs"]]:
        raise FakeFailure("NOT_FOUND")
    gpm_of(lib).samples[sample] = handle


@nvml("nvmlGpmMetricsGet", Pointer)
def gpm_metrics(lib: FakeLibrary, question: int) -> None:
    asked: Any = ctypes.cast(question, POINTER(pynvml.c_nvmlGpmMetricsGet_t)).contents
    samples = [ctypes.cast(each, c_void_p).value for each in (asked.sample1, asked.sample2)]
    handles = {gpm_of(lib).samples.get(each or 0) for each in samples}
    handle = handles.pop()
    if handles or handle is None:
        raise FakeFailure("INVALID_ARGUMENT")
    names = {
        pynvml.NVML_GPM_METRIC_SM_UTIL: "sm",
        pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram",
        pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: "pcie_tx",
        pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: "pcie_rx",
        pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: "nvlink_tx",
        pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: "nvlink_rx",
    }
    card = lib.card(handle)
    for position in range(asked.numMetrics):
        metric = asked.metrics[position]
        metric.nvmlReturn = pynvml.NVML_SUCCESS
        metric.value = figure(lib, card, names[metric.metricId])
