"""The functions of NVML as C function pointers over a `FakeMachine`, for the real `pynvml` to call.

Every function takes and answers what NVML's takes and answers: handles are opaque pointers, results are written through
pointers, the return value is an error code. A function that is not here does not exist for the caller, as with an old
driver; `missing_functions` of the machine takes more away. A GPU's `errors` make single functions fail by name. While
the machine `hangs`, no function returns.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from ctypes import POINTER, c_int, c_uint, c_ulong, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from yurt_device_nvidia.fake.layouts import layout
from yurt_device_nvidia.fake.machine import FakeMachine, Json

MIB = 1 << 20
CARD_HANDLES, MIG_HANDLES, SET_HANDLE = 0x1000, 0x100000, 0xE000
NOT_AVAILABLE = 0xFFFFFFFF
POLL_S = 0.02
ANCESTORS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
COMPUTE_MODES = {"Default": 0, "Prohibited": 2, "Exclusive_Process": 3}
EVENT_KINDS = {"xid": 8, "double_bit_ecc": 2}

Pointer = c_void_p
Handle = object()
"""The kind of an argument that is a device, passed as a pointer."""


class FakeFailure(Exception):
    """A function returns this error code."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.code = int(getattr(pynvml, f"NVML_ERROR_{name}"))


class FakeCall(NamedTuple):
    """A function of NVML: its name, the C types of its arguments, and its implementation."""

    name: str
    kinds: tuple[Any, ...]
    work: Callable[..., None]

    @property
    def c_kinds(self) -> tuple[Any, ...]:
        """The types in C's form."""
        return tuple(c_void_p if kind is Handle else kind for kind in self.kinds)


CALLS: dict[str, FakeCall] = {}


def nvml(name: str, *kinds: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a function of NVML."""

    def declare(work: Callable[..., None]) -> Callable[..., None]:
        CALLS[name] = FakeCall(name, kinds, work)
        return work

    return declare


def put(address: int, kind: Any, value: Any) -> None:
    """Write through a pointer."""
    ctypes.cast(address, POINTER(kind))[0] = value


def put_text(address: int, length: int, text: str) -> None:
    """Write a null-terminated text."""
    data = text.encode()[: length - 1] + b"\0"
    ctypes.memmove(address, data, len(data))


class FakeLibrary:
    """Replaces `ctypes.CDLL("libnvidia-ml.so.1")`."""

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.parts: dict[str, object] = {}
        """The state of groups of functions between calls."""
        self._pointers: dict[str, Any] = {}
        self._order: list[str] = []
        self._seen = 0
        self.registered: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        call = CALLS.get(name)
        if call is None or name in self.machine.content.get("missing_functions", ()):
            raise AttributeError(name)
        if name not in self._pointers:
            self._pointers[name] = ctypes.CFUNCTYPE(c_int, *call.c_kinds)(self._entry(call))
        return self._pointers[name]

    def _entry(self, call: FakeCall) -> Callable[..., int]:
        def entry(*arguments: Any) -> int:
            while self.machine.content.get("hangs"):
                # A thread of its own waits, as for a driver that does not return; the file may end it.
                threading.Event().wait(POLL_S)
            try:
                for kind, argument in zip(call.kinds, arguments, strict=True):
                    if kind is Handle:
                        self._check(call.name, argument)
                call.work(self, *arguments)
            except FakeFailure as failure:
                return failure.code
            return int(pynvml.NVML_SUCCESS)

        return entry

    def _check(self, name: str, handle: int) -> None:
        gpu = self.card(handle)
        if gpu.get("lost") and name not in ("nvmlDeviceGetIndex", "nvmlDeviceGetUUID"):
            raise FakeFailure("GPU_IS_LOST")
        if name in gpu.get("errors", {}):
            raise FakeFailure(gpu["errors"][name])

    @property
    def gpus(self) -> list[Json]:
        """The GPUs that the driver currently lists."""
        found: list[Json] = self.machine.content["gpus"]
        for gpu in found:
            if gpu["uuid"] not in self._order:
                self._order.append(gpu["uuid"])
        return [gpu for gpu in found if not gpu.get("gone")]

    def handle_of(self, gpu: Json) -> int:
        """A card's handle, stable while other cards come and go."""
        return CARD_HANDLES + self._order.index(gpu["uuid"])

    def card(self, handle: int) -> Json:
        """The card of a handle, also for one of its MIG instances."""
        number = (handle - MIG_HANDLES) // 0x100 if handle >= MIG_HANDLES else handle - CARD_HANDLES
        found = [gpu for gpu in self.gpus if self.handle_of(gpu) - CARD_HANDLES == number]
        if not found:
            raise FakeFailure("GPU_IS_LOST" if 0 <= number < len(self._order) else "INVALID_ARGUMENT")
        return found[0]

    def mig(self, handle: int) -> Json | None:
        """The MIG instance of a handle, None for a card's."""
        if handle < MIG_HANDLES:
            return None
        found: Json = self.card(handle)["migs"][(handle - MIG_HANDLES) % 0x100]
        return found

    def part(self, handle: int) -> Json:
        """The instance, or else the card."""
        return self.mig(handle) or self.card(handle)

    def number(self, value: Any) -> float:
        """The present value of a number."""
        return self.machine.number(value)

    def used_bytes(self, part: Json) -> int:
        """Memory in use: as specified, or else the processes' total."""
        taken = sum(self.number(each["memory_mib"]) for each in part["processes"])
        return int(max(self.number(part.get("used_mib", 0)), taken) * MIB)


def install(source: Path | Json | str) -> FakeLibrary:
    """Have `pynvml` use a fake: a file, a machine, or the name of a layout; raises OSError or ValueError."""
    library = FakeLibrary(FakeMachine(layout(source) if isinstance(source, str) else source))
    library.machine.load()
    uninstall()
    pynvml.nvmlLib = library
    return library


def uninstall() -> None:
    """Have `pynvml` use the real library again."""
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()


# The system.


@nvml("nvmlInitWithFlags", c_uint)
def init(lib: FakeLibrary, flags: int) -> None:
    if lib.machine.content.get("init_error"):
        raise FakeFailure(lib.machine.content["init_error"])


@nvml("nvmlShutdown")
def shutdown(lib: FakeLibrary) -> None:
    return None


@nvml("nvmlSystemGetDriverVersion", Pointer, c_uint)
def driver_version(lib: FakeLibrary, out: int, length: int) -> None:
    put_text(out, length, lib.machine.content["driver_version"])


@nvml("nvmlSystemGetCudaDriverVersion_v2", Pointer)
def cuda_version(lib: FakeLibrary, out: int) -> None:
    major, minor = lib.machine.content["cuda_version"].split(".")
    put(out, c_int, int(major) * 1000 + int(minor) * 10)


@nvml("nvmlDeviceGetCount_v2", Pointer)
def count(lib: FakeLibrary, out: int) -> None:
    put(out, c_uint, len(lib.gpus))


# Handles.


@nvml("nvmlDeviceGetHandleByIndex_v2", c_uint, Pointer)
def handle_by_index(lib: FakeLibrary, index: int, out: int) -> None:
    if index >= len(lib.gpus):
        raise FakeFailure("INVALID_ARGUMENT")
    gpu = lib.gpus[index]
    if "nvmlDeviceGetHandleByIndex_v2" in gpu.get("errors", {}):
        raise FakeFailure(gpu["errors"]["nvmlDeviceGetHandleByIndex_v2"])
    put(out, c_void_p, lib.handle_of(gpu))


@nvml("nvmlDeviceGetMaxMigDeviceCount", Handle, Pointer)
def mig_count_max(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_uint, 7 if "migs" in lib.card(handle) else 0)


@nvml("nvmlDeviceGetMigDeviceHandleByIndex", Handle, c_uint, Pointer)
def mig_handle(lib: FakeLibrary, handle: int, index: int, out: int) -> None:
    if index >= len(lib.card(handle)["migs"]):
        raise FakeFailure("NOT_FOUND")
    put(out, c_void_p, MIG_HANDLES + (handle - CARD_HANDLES) * 0x100 + index)


# What a device is.


@nvml("nvmlDeviceGetName", Handle, Pointer, c_uint)
def name(lib: FakeLibrary, handle: int, out: int, length: int) -> None:
    part, card = lib.mig(handle), lib.card(handle)
    put_text(out, length, f"{card['name']} MIG {part['profile']}" if part else card["name"])


@nvml("nvmlDeviceGetUUID", Handle, Pointer, c_uint)
def device_uuid(lib: FakeLibrary, handle: int, out: int, length: int) -> None:
    put_text(out, length, lib.part(handle)["uuid"])


@nvml("nvmlDeviceGetSerial", Handle, Pointer, c_uint)
def serial(lib: FakeLibrary, handle: int, out: int, length: int) -> None:
    put_text(out, length, lib.card(handle)["serial"])


@nvml("nvmlDeviceGetIndex", Handle, Pointer)
def device_index(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_uint, [lib.handle_of(gpu) for gpu in lib.gpus].index(handle))


@nvml("nvmlDeviceGetMinorNumber", Handle, Pointer)
def minor(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_uint, lib.card(handle)["minor"])


@nvml("nvmlDeviceGetPciInfo_v3", Handle, Pointer)
def pci_info(lib: FakeLibrary, handle: int, out: int) -> None:
    write_pci(out, lib.card(handle)["bus_id"])


def write_pci(out: int, bus_id: str) -> None:
    """The bus address, in both formats."""
    info = ctypes.cast(out, POINTER(pynvml.nvmlPciInfo_t)).contents
    domain, bus, rest = bus_id.split(":")
    info.domain, info.bus, info.device = int(domain, 16), int(bus, 16), int(rest.split(".")[0], 16)
    info.busId, info.busIdLegacy = bus_id.encode(), bus_id[4:].encode()


@nvml("nvmlDeviceGetCudaComputeCapability", Handle, Pointer, Pointer)
def capability(lib: FakeLibrary, handle: int, major: int, minor_out: int) -> None:
    one, two = lib.card(handle)["capability"].split(".")
    put(major, c_int, int(one))
    put(minor_out, c_int, int(two))


@nvml("nvmlDeviceGetArchitecture", Handle, Pointer)
def architecture(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_uint, lib.card(handle)["architecture"])


@nvml("nvmlDeviceGetMaxPcieLinkGeneration", Handle, Pointer)
def pcie_generation(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_uint, lib.card(handle)["pcie"]["gen"])


@nvml("nvmlDeviceGetMaxPcieLinkWidth", Handle, Pointer)
def pcie_width(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_uint, lib.card(handle)["pcie"]["width"])


@nvml("nvmlDeviceGetMaxClockInfo", Handle, c_uint, Pointer)
def clock_max(lib: FakeLibrary, handle: int, kind: int, out: int) -> None:
    clocks = lib.card(handle)["clock_max"]
    put(out, c_uint, clocks["mem" if kind == pynvml.NVML_CLOCK_MEM else "sm"])


@nvml("nvmlDeviceGetPowerManagementLimit", Handle, Pointer)
def power_limit(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_uint, int(lib.card(handle)["power_limit_w"] * 1000))


@nvml("nvmlDeviceGetAttributes_v2", Handle, Pointer)
def mig_attributes(lib: FakeLibrary, handle: int, out: int) -> None:
    part = lib.mig(handle)
    if part is None:
        raise FakeFailure("NOT_SUPPORTED")
    attributes = ctypes.cast(out, POINTER(pynvml.c_nvmlDeviceAttributes)).contents
    attributes.multiprocessorCount, attributes.memorySizeMB = part["multiprocessors"], part["memory_mib"]


@nvml("nvmlDeviceGetGpuInstanceId", Handle, Pointer)
def gpu_instance(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_uint, lib.part(handle)["gi"])


@nvml("nvmlDeviceGetComputeInstanceId", Handle, Pointer)
def compute_instance(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_uint, lib.part(handle)["ci"])


# Modes.


def switch(function: str, field: str) -> None:
    """A function that returns whether a mode is on."""

    @nvml(function, Handle, Pointer)
    def is_on(lib: FakeLibrary, handle: int, out: int) -> None:
        put(out, c_uint, int(lib.card(handle)[field]))


switch("nvmlDeviceGetDisplayMode", "display")
switch("nvmlDeviceGetPersistenceMode", "persistence")


@nvml("nvmlDeviceGetEccMode", Handle, Pointer, Pointer)
def ecc_mode(lib: FakeLibrary, handle: int, current: int, pending: int) -> None:
    value = lib.card(handle)["ecc"]
    if value is None:
        raise FakeFailure("NOT_SUPPORTED")
    put(current, c_uint, int(value))
    put(pending, c_uint, int(value))


@nvml("nvmlDeviceGetMigMode", Handle, Pointer, Pointer)
def mig_mode(lib: FakeLibrary, handle: int, current: int, pending: int) -> None:
    card = lib.card(handle)
    put(current, c_uint, int(card["mig"]))
    put(pending, c_uint, int(card["mig_pending" if "mig_pending" in card else "mig"]))


@nvml("nvmlDeviceGetComputeMode", Handle, Pointer)
def compute_mode(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_uint, COMPUTE_MODES[lib.card(handle)["compute_mode"]])


# Where a device is.


def write_bits(lib: FakeLibrary, out: int, size: int, numbers: list[int]) -> None:
    """Write a set of numbers as a bit mask of 64-bit words."""
    words = ctypes.cast(out, POINTER(c_ulong))
    for word in range(size):
        words[word] = sum(1 << (each % 64) for each in numbers if each // 64 == word)


@nvml("nvmlDeviceGetCpuAffinity", Handle, c_uint, Pointer)
def cpu_affinity(lib: FakeLibrary, handle: int, size: int, out: int) -> None:
    ranges = [each.split("-") for each in lib.card(handle)["cpus"].split(",")]
    write_bits(lib, out, size, [cpu for each in ranges for cpu in range(int(each[0]), int(each[-1]) + 1)])


@nvml("nvmlDeviceGetMemoryAffinity", Handle, c_uint, Pointer, c_uint)
def memory_affinity(lib: FakeLibrary, handle: int, size: int, out: int, scope: int) -> None:
    node = lib.card(handle)["numa"]
    if node < 0:
        raise FakeFailure("NOT_SUPPORTED")
    write_bits(lib, out, size, [node])


@nvml("nvmlDeviceGetTopologyCommonAncestor", Handle, Handle, Pointer)
def common_ancestor(lib: FakeLibrary, one: int, two: int, out: int) -> None:
    gpus, given = lib.gpus, lib.machine.content.get("topology", {})
    first, second = sorted(gpus.index(lib.card(each)) for each in (one, two))
    is_near = gpus[first]["numa"] == gpus[second]["numa"]
    level = given.get(f"{first}-{second}") or given.get("*") or ("NODE" if is_near else "SYS")
    put(out, c_uint, ANCESTORS[level])


def link_of(lib: FakeLibrary, handle: int, number: int) -> Json:
    """An active link."""
    links: list[Json] = lib.card(handle)["nvlinks"]
    if number >= len(links) or links[number].get("down"):
        raise FakeFailure("NOT_SUPPORTED")
    return links[number]


@nvml("nvmlDeviceGetNvLinkState", Handle, c_uint, Pointer)
def link_state(lib: FakeLibrary, handle: int, number: int, out: int) -> None:
    links = lib.card(handle)["nvlinks"]
    if number >= len(links):
        raise FakeFailure("INVALID_ARGUMENT" if links else "NOT_SUPPORTED")
    put(out, c_uint, int(not links[number].get("down")))


@nvml("nvmlDeviceGetNvLinkRemotePciInfo_v2", Handle, c_uint, Pointer)
def link_remote(lib: FakeLibrary, handle: int, number: int, out: int) -> None:
    write_pci(out, link_of(lib, handle, number)["to"])


@nvml("nvmlDeviceGetNvLinkRemoteDeviceType", Handle, c_uint, Pointer)
def link_kind(lib: FakeLibrary, handle: int, number: int, out: int) -> None:
    put(out, c_uint, 2 if link_of(lib, handle, number)["kind"] == "switch" else 0)


# How a device fares.


@nvml("nvmlDeviceGetMemoryInfo", Handle, Pointer)
def memory(lib: FakeLibrary, handle: int, out: int) -> None:
    part = lib.part(handle)
    info = ctypes.cast(out, POINTER(pynvml.c_nvmlMemory_t)).contents
    info.total, info.used = part["memory_mib"] * MIB, lib.used_bytes(part) + part["reserved_mib"] * MIB
    info.free = info.total - info.used


@nvml("nvmlDeviceGetMemoryInfo_v2", Handle, Pointer)
def memory_v2(lib: FakeLibrary, handle: int, out: int) -> None:
    part = lib.part(handle)
    info = ctypes.cast(out, POINTER(pynvml.c_nvmlMemory_v2_t)).contents
    info.total, info.used, info.reserved = part["memory_mib"] * MIB, lib.used_bytes(part), part["reserved_mib"] * MIB
    info.free = info.total - info.used - info.reserved


@nvml("nvmlDeviceGetBAR1MemoryInfo", Handle, Pointer)
def bar1(lib: FakeLibrary, handle: int, out: int) -> None:
    card = lib.card(handle)
    info = ctypes.cast(out, POINTER(pynvml.c_nvmlBAR1Memory_t)).contents
    info.bar1Total, info.bar1Used = card["bar1_mib"] * MIB, card["bar1_used_mib"] * MIB
    info.bar1Free = info.bar1Total - info.bar1Used


@nvml("nvmlDeviceGetPowerUsage", Handle, Pointer)
def power(lib: FakeLibrary, handle: int, out: int) -> None:
    if lib.mig(handle):
        raise FakeFailure("NOT_SUPPORTED")
    put(out, c_uint, int(lib.number(lib.card(handle)["power_w"]) * 1000))


@nvml("nvmlDeviceGetTemperature", Handle, c_uint, Pointer)
def temperature(lib: FakeLibrary, handle: int, sensor: int, out: int) -> None:
    if lib.mig(handle):
        raise FakeFailure("NOT_SUPPORTED")
    put(out, c_uint, int(lib.number(lib.card(handle)["temperature"])))


@nvml("nvmlDeviceGetUtilizationRates", Handle, Pointer)
def utilization(lib: FakeLibrary, handle: int, out: int) -> None:
    card = lib.card(handle)
    if lib.mig(handle) or card["mig"]:
        raise FakeFailure("NOT_SUPPORTED")
    rates = ctypes.cast(out, POINTER(pynvml.c_nvmlUtilization_t)).contents
    rates.gpu, rates.memory = (int(lib.number(card["utilization"][each])) for each in ("gpu", "memory"))


def coder(function: str, field: str) -> None:
    """A function that returns the utilisation of an encoder or decoder, over 200 ms."""

    @nvml(function, Handle, Pointer, Pointer)
    def busy(lib: FakeLibrary, handle: int, out: int, period: int) -> None:
        if lib.mig(handle):
            raise FakeFailure("NOT_SUPPORTED")
        put(out, c_uint, int(lib.number(lib.card(handle)["utilization"][field])))
        put(period, c_uint, 200_000)


coder("nvmlDeviceGetEncoderUtilization", "encoder")
coder("nvmlDeviceGetDecoderUtilization", "decoder")


@nvml("nvmlDeviceGetComputeRunningProcesses_v3", Handle, Pointer, Pointer)
def processes(lib: FakeLibrary, handle: int, size: int, out: int | None) -> None:
    found = lib.part(handle)["processes"]
    room = ctypes.cast(size, POINTER(c_uint))[0]
    put(size, c_uint, len(found))
    if not found:
        return
    if out is None or room < len(found):
        raise FakeFailure("INSUFFICIENT_SIZE")
    array = ctypes.cast(out, POINTER(pynvml.c_nvmlProcessInfo_v3_t))
    for index, each in enumerate(found):
        array[index].pid, array[index].usedGpuMemory = each["pid"], int(lib.number(each["memory_mib"]) * MIB)
        array[index].gpuInstanceId = array[index].computeInstanceId = NOT_AVAILABLE


@nvml("nvmlDeviceGetTotalEccErrors", Handle, c_uint, c_uint, Pointer)
def ecc_errors(lib: FakeLibrary, handle: int, kind: int, counter: int, out: int) -> None:
    errors = lib.card(handle)["ecc_errors"]
    if lib.card(handle)["ecc"] is not True:
        raise FakeFailure("NOT_SUPPORTED")
    put(out, c_ulonglong, errors["uncorrected" if kind == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED else "corrected"])


@nvml("nvmlDeviceGetRemappedRows", Handle, Pointer, Pointer, Pointer, Pointer)
def remapped(lib: FakeLibrary, handle: int, *outs: int) -> None:
    rows = lib.card(handle)["remapped"]
    for out, field in zip(outs, ("corrected", "uncorrected", "pending", "failed"), strict=True):
        put(out, c_uint, int(rows[field]))


# Events.


@nvml("nvmlEventSetCreate", Pointer)
def event_set(lib: FakeLibrary, out: int) -> None:
    lib.registered = set()
    put(out, c_void_p, SET_HANDLE)


@nvml("nvmlDeviceGetSupportedEventTypes", Handle, Pointer)
def event_types(lib: FakeLibrary, handle: int, out: int) -> None:
    put(out, c_ulonglong, sum(EVENT_KINDS.values()))


@nvml("nvmlDeviceRegisterEvents", Handle, c_ulonglong, Pointer)
def register_events(lib: FakeLibrary, handle: int, kinds: int, events: int) -> None:
    lib.registered.add(lib.card(handle)["uuid"])


@nvml("nvmlEventSetWait_v2", Pointer, Pointer, c_uint)
def wait_event(lib: FakeLibrary, events: int, out: int, timeout_ms: int) -> None:
    limit = time.monotonic() + timeout_ms / 1000
    while True:
        events_now = lib.machine.content["events"]
        new = [each for each in events_now if each["seq"] > lib._seen and each["gpu"] in lib.registered]
        if new:
            write_event(lib, out, min(new, key=lambda each: each["seq"]))
            return
        if time.monotonic() >= limit:
            raise FakeFailure("TIMEOUT")
        threading.Event().wait(POLL_S)


def write_event(lib: FakeLibrary, out: int, event: Json) -> None:
    """Deliver one event."""
    lib._seen = event["seq"]
    data = ctypes.cast(out, POINTER(pynvml.c_nvmlEventData_t)).contents
    gpu = next(each for each in lib.gpus if each["uuid"] == event["gpu"])
    data.device = ctypes.cast(lib.handle_of(gpu), pynvml.c_nvmlDevice_t)
    data.eventType, data.eventData = EVENT_KINDS[event["kind"]], event["data"]
    data.gpuInstanceId, data.computeInstanceId = event.get("gi", NOT_AVAILABLE), event.get("ci", NOT_AVAILABLE)


@nvml("nvmlEventSetFree", Pointer)
def event_set_free(lib: FakeLibrary, events: int) -> None:
    return None
