"""NVML as values: the only module that calls the driver. All calls block and run on `caller.NvmlThread`.

`pynvml` is imported when the library is known to be there. A question that this driver or this card does not answer is
None, so that an old driver or a small card has fewer facts and no failure; what stops everything is an NvmlProblem with
its reason and what to do about it.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from yurt.sdk.value import replace

from yurt_device_nvidia.activity import ActivityMeter, CardActivity
from yurt_device_nvidia.condition import active_links, condition_of
from yurt_device_nvidia.facts import (
    MIB,
    CardFacts,
    CardUse,
    Condition,
    GpuObservation,
    MigFacts,
    NvLink,
    ProcessUse,
    SystemFacts,
)
from yurt_device_nvidia.library import FAKE_PREFIX, LIBRARY, PCI_FOLDER
from yurt_device_nvidia.mig_control import MigControl

FABRIC = "fabric"
"""Where a link leads that is up but does not tell: to the switches of the machine, as in newer generations."""
MEGABYTES_PER_LANE = {1: 250, 2: 500, 3: 985, 4: 1969, 5: 3938, 6: 7563}
"""Of a PCIe link, by generation."""
ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper",
    10: "blackwell", 13: "rubin",
}  # fmt: skip
COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
LOADS_HELD_S = 3.0
"""How long the utilization by process holds without a new sample; the driver takes one each second or more often."""
Loads = dict[int, tuple[float, float]]
"""Percent of time computing and percent of time using memory, by process id."""

log = logging.getLogger(__name__)


class NvmlProblem(Exception):
    """No GPU can be used: the reason and the remedy."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


class Xid(NamedTuple):
    """An error reported by the driver: the card, its number, and the GPU instance (None: the whole card)."""

    uuid: str
    number: int
    gpu_instance: int | None = None


class Nvml:
    """An open NVML."""

    def __init__(self, library: str = LIBRARY, clock: Callable[[], float] = time.monotonic) -> None:
        self._library = library
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        self._activity: ActivityMeter | None = None
        self._clock = clock
        self._loads_at: dict[str, int] = {}
        """The time of each card's newest utilization by process, in the driver's microseconds."""
        self._last_loads: dict[str, tuple[float, Loads]] = {}
        """Each card's last utilization by process, and when it was read."""
        self._links_up: dict[str, frozenset[int]] = {}
        """The NVLinks of each card that have been up, also before the library was opened again."""

    @property
    def is_open(self) -> bool:
        """Whether the library is open."""
        return self._nvml is not None

    def open(self) -> None:
        """Load and initialise; raises NvmlProblem."""
        nvml = importlib.import_module("pynvml")
        self._load(nvml)
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise problem_of(nvml, error) from None
        self._nvml = nvml
        self._activity = ActivityMeter(nvml, self._ask)

    def _load(self, nvml: Any) -> None:
        """Give the bindings a library that they would not find."""
        if self._library.startswith(FAKE_PREFIX):
            from yurt_device_nvidia.fake import install

            source = self._library.removeprefix(FAKE_PREFIX)
            try:
                install(Path(source) if "/" in source else source)
            except (OSError, ValueError) as error:
                raise NvmlProblem(f"the pretended machine {source} cannot be read: {error}", "mend the file") from None
        elif self._library != LIBRARY and nvml.nvmlLib is None:
            nvml.nvmlLib = ctypes.CDLL(self._library)

    def close(self) -> None:
        """Close the library."""
        if self._nvml is not None:
            if self._activity is not None:
                self._activity.close()
            self._ask(self._nvml.nvmlShutdown)
            self._nvml, self._handles, self._activity = None, {}, None

    def mig_control(self) -> MigControl:
        """The MIG functions of the open library."""
        return MigControl(self._nvml, self._handles)

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """The answer, or None without one; raises CardLost when the card does not answer at all."""
        nvml = self._nvml
        try:
            return question(*arguments)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
                raise CardLost(str(error)) from None
            if error.value == nvml.NVML_ERROR_UNINITIALIZED:
                raise NvmlProblem("the NVIDIA driver was taken away; it is looked for again") from None
            return None

    # What is there.

    def look(self) -> GpuObservation:
        """All facts about the GPUs; raises NvmlProblem."""
        nvml = self._nvml
        cuda = self._ask(nvml.nvmlSystemGetCudaDriverVersion_v2)
        system = SystemFacts(
            driver_version=self._ask(nvml.nvmlSystemGetDriverVersion) or "",
            cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        )
        cards, conditions = list[CardFacts](), dict[str, Condition]()
        for index in range(self._ask(nvml.nvmlDeviceGetCount) or 0):
            uuid, card, condition = self._card(index)
            if uuid:
                conditions[uuid] = condition
            if card is not None:
                cards.append(card)
        self._forget_instances(cards)
        return GpuObservation(system=system, cards=tuple(self._with_ancestors(cards)), conditions=conditions)

    def _forget_instances(self, cards: list[CardFacts]) -> None:
        """Drop the handles of MIG instances that are gone: their number would grow without end."""
        present = {mig.uuid for card in cards for mig in card.migs}
        for uuid in [each for each in self._handles if not each.startswith("GPU-") and each not in present]:
            self._handles.pop(uuid, None)

    def _card(self, index: int) -> tuple[str, CardFacts | None, Condition]:
        """A card's UUID, facts and condition; a lost card may or may not report its UUID."""
        nvml, uuid = self._nvml, ""
        try:
            handle = self._ask(nvml.nvmlDeviceGetHandleByIndex, index)
            uuid = (self._ask(nvml.nvmlDeviceGetUUID, handle) if handle is not None else None) or ""
            if not uuid:
                return "", None, Condition()
            self._handles[uuid] = handle
            return uuid, self._facts(index, uuid, handle), self._condition(uuid, handle)
        except CardLost as lost:
            return uuid, None, Condition(lost=str(lost))

    def _facts(self, index: int, uuid: str, handle: Any) -> CardFacts:
        nvml = self._nvml
        total, reserved, _ = self._memory(handle)
        modes = [self._ask(each, handle) for each in (nvml.nvmlDeviceGetEccMode, nvml.nvmlDeviceGetMigMode)]
        capability = self._ask(nvml.nvmlDeviceGetCudaComputeCapability, handle)
        power, bar1 = (
            self._ask(each, handle)
            for each in (nvml.nvmlDeviceGetPowerManagementLimit, nvml.nvmlDeviceGetBAR1MemoryInfo)
        )
        pci = self._ask(nvml.nvmlDeviceGetPciInfo_v3, handle)
        bus_id = text_of(pci.busId) if pci is not None else ""
        return CardFacts(
            uuid=uuid,
            name=self._ask(nvml.nvmlDeviceGetName, handle) or "NVIDIA GPU",
            index=index,
            minor=number_or(self._ask(nvml.nvmlDeviceGetMinorNumber, handle), index),
            pci_bus_id=bus_id,
            memory_mb=total // MIB,
            reserved_mb=None if reserved is None else reserved // MIB,
            serial=self._ask(nvml.nvmlDeviceGetSerial, handle),
            bar1_mb=None if bar1 is None else bar1.bar1Total // MIB,
            power_w=None if power is None else power // 1000,
            cores_clock_mhz=self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
            pci_bandwidth_mb=self._bandwidth(handle),
            display=flag(self._ask(nvml.nvmlDeviceGetDisplayMode, handle)),
            persistence=flag(self._ask(nvml.nvmlDeviceGetPersistenceMode, handle)),
            ecc=flag(modes[0][0]) if modes[0] else None,
            mig=flag(modes[1][0]) if modes[1] else None,
            compute_mode=COMPUTE_MODES.get(number_or(self._ask(nvml.nvmlDeviceGetComputeMode, handle), -1)),
            capability=f"{capability[0]}.{capability[1]}" if capability else None,
            architecture=ARCHITECTURES.get(number_or(self._ask(nvml.nvmlDeviceGetArchitecture, handle), -1)),
            numa_node=self._numa_node(handle, bus_id),
            cpus=tuple(self._near_cpus(handle)),
            links=tuple(self._links(handle)),
            migs=tuple(self._migs(handle)) if modes[1] and modes[1][0] else (),
        )

    def _memory(self, handle: Any) -> tuple[int, int | None, int]:
        """Bytes in total, reserved by the driver (None when not reported), and in use; every card answers this."""
        nvml = self._nvml
        found = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
        if found is not None:
            return found.total, found.reserved, found.used
        found = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        if found is None:
            raise CardLost("it does not say how much memory it has")
        return found.total, None, found.used

    def _bandwidth(self, handle: Any) -> int | None:
        """The maximal bandwidth of the PCIe link in MB/s."""
        nvml = self._nvml
        generation = self._ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle)
        width = self._ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle)
        lane = MEGABYTES_PER_LANE.get(generation or 0)
        return lane * width if lane and width else None

    def _numa_node(self, handle: Any, bus_id: str) -> int | None:
        """The card's NUMA node, from the driver, or else from the kernel."""
        nvml = self._nvml
        words = self._ask(nvml.nvmlDeviceGetMemoryAffinity, handle, 1, nvml.NVML_AFFINITY_SCOPE_NODE)
        nodes = list(bits(words)) if words is not None else []
        if nodes:
            return nodes[0]
        return numa_of_slot(bus_id)

    def _near_cpus(self, handle: Any) -> Iterator[int]:
        words = self._ask(self._nvml.nvmlDeviceGetCpuAffinity, handle, max(4, ((os.cpu_count() or 1) + 63) // 64))
        yield from bits(words) if words is not None else ()

    def _links(self, handle: Any) -> Iterator[NvLink]:
        nvml = self._nvml
        for number, is_up in active_links(nvml, self._ask, handle).items():
            if not is_up:
                continue
            remote = self._ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, number)
            kind = self._ask(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number)
            is_switch = kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH or remote is None
            yield NvLink(to=FABRIC if remote is None else text_of(remote.busId), kind="switch" if is_switch else "gpu")

    def _migs(self, handle: Any) -> Iterator[MigFacts]:
        nvml = self._nvml
        for index in range(self._ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            mig = self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            uuid = self._ask(nvml.nvmlDeviceGetUUID, mig) if mig is not None else None
            if not uuid:
                continue
            self._handles[uuid] = mig
            name = self._ask(nvml.nvmlDeviceGetName, mig) or ""
            attributes = self._ask(nvml.nvmlDeviceGetAttributes_v2, mig)
            yield MigFacts(
                uuid=uuid,
                name=name,
                profile=name.rpartition("MIG ")[2],
                memory_mb=self._memory(mig)[0] // MIB,
                multiprocessors=attributes.multiprocessorCount if attributes is not None else 0,
                gpu_instance=number_or(self._ask(nvml.nvmlDeviceGetGpuInstanceId, mig), 0),
                compute_instance=number_or(self._ask(nvml.nvmlDeviceGetComputeInstanceId, mig), 0),
            )

    def _with_ancestors(self, cards: list[CardFacts]) -> Iterator[CardFacts]:
        """The cards with their paths to the others."""
        for card in cards:
            found = {}
            for other in cards:
                level = self._ancestor(card, other) if other is not card else None
                if level:
                    found[other.uuid] = level
            yield replace(card, ancestors=found)

    def _ancestor(self, one: CardFacts, two: CardFacts) -> str | None:
        handles = (self._handles[one.uuid], self._handles[two.uuid])
        try:
            level = self._ask(self._nvml.nvmlDeviceGetTopologyCommonAncestor, *handles)
        except CardLost:
            return None
        return ANCESTORS.get(number_or(level, -1))

    # How it fares.

    def conditions(self) -> dict[str, Condition]:
        """The present condition of every known card."""
        return {
            uuid: self._condition(uuid, handle) for uuid, handle in self._handles.items() if uuid.startswith("GPU-")
        }

    def _condition(self, uuid: str, handle: Any) -> Condition:
        try:
            self._memory(handle)
            links = active_links(self._nvml, self._ask, handle)
            down = sorted(number for number in self._links_up.get(uuid, ()) if links.get(number) is False)
            self._links_up[uuid] = self._links_up.get(uuid, frozenset()) | {n for n, is_up in links.items() if is_up}
            return replace(condition_of(self._nvml, self._ask, handle), links_down=tuple(down))
        except CardLost as lost:
            return Condition(lost=str(lost))
        except AttributeError as error:
            # Bindings of another version lack a name: the look at the cards goes on without this card's condition.
            log.warning("NVML bindings lack a name: error=%s", error)
            return Condition()

    def use(self, uuid: str) -> CardUse | None:
        """Usage of a card or an instance; None when it does not answer."""
        handle = self._handles.get(uuid)
        try:
            return None if handle is None else self._use(uuid, handle)
        except CardLost:
            return None

    def _use(self, uuid: str, handle: Any) -> CardUse:
        nvml = self._nvml
        total, _, used = self._memory(handle)
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        coders = [
            self._ask(each, handle)
            for each in (nvml.nvmlDeviceGetEncoderUtilization, nvml.nvmlDeviceGetDecoderUtilization)
        ]
        power, limit = (
            self._ask(each, handle) for each in (nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetPowerManagementLimit)
        )
        bar1 = self._ask(nvml.nvmlDeviceGetBAR1MemoryInfo, handle)
        corrected, uncorrected = (
            self._ask(nvml.nvmlDeviceGetTotalEccErrors, handle, kind, nvml.NVML_VOLATILE_ECC)
            for kind in (nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        )
        return CardUse(
            memory_used_mb=used // MIB,
            memory_total_mb=total // MIB,
            bar1_used_mb=None if bar1 is None else bar1.bar1Used // MIB,
            bar1_total_mb=None if bar1 is None else bar1.bar1Total // MIB,
            gpu_percent=None if rates is None else rates.gpu,
            memory_percent=None if rates is None else rates.memory,
            encoder_percent=coders[0][0] if coders[0] else None,
            decoder_percent=coders[1][0] if coders[1] else None,
            power_w=None if power is None else power / 1000,
            power_limit_w=None if limit is None else limit / 1000,
            temperature_c=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            corrected_errors=corrected,
            uncorrected_errors=uncorrected,
            processes=tuple(self._processes(uuid, handle)),
            activity=self._activity.measure(uuid, handle) if self._activity is not None else CardActivity(),
        )

    def _processes(self, uuid: str, handle: Any) -> Iterator[ProcessUse]:
        """The processes on a device; one that computes and renders counts once, with the larger value.

        The newest version of each question is asked that the driver knows.
        """
        found: dict[int, int] = {}
        for kind in ("Compute", "Graphics", "MPSCompute"):
            answers = (
                self._ask(getattr(self._nvml, f"nvmlDeviceGet{kind}RunningProcesses_{version}"), handle)
                for version in ("v3", "v2")
            )
            for each in next((answer for answer in answers if answer is not None), ()):
                found[each.pid] = max(found.get(each.pid, 0), each.usedGpuMemory or 0)
        loads = self._loads(uuid, handle) if found else None
        for pid, size in sorted(found.items()):
            busy, moved = (None, None) if loads is None else loads.get(pid, (0.0, 0.0))
            yield ProcessUse(pid=pid, memory_bytes=size, busy_percent=busy, memory_percent=moved)

    def _loads(self, uuid: str, handle: Any) -> Loads | None:
        """Percent of the time in which each process computed and used memory since the last question.

        Processes that did neither are missing. None where the driver or the card does not report it by process.
        A question may come before the driver has a new sample: the last answer holds until it has one, for
        `LOADS_HELD_S`. Without any for so long, no process did anything.
        """
        nvml = self._nvml
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, self._loads_at.get(uuid, 0))
        except nvml.NVMLError as error:
            # No new samples are reported as an error, by some bindings as that of a success.
            if error.value not in (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND):
                return None
            samples = ()
        if not samples:
            at_s, last = self._last_loads.get(uuid, (0.0, {}))
            return last if self._clock() - at_s < LOADS_HELD_S else {}
        of_process: dict[int, list[Any]] = {}
        for sample in samples:
            of_process.setdefault(sample.pid, []).append(sample)
            self._loads_at[uuid] = max(self._loads_at.get(uuid, 0), sample.timeStamp)
        loads = {
            pid: (fmean(each.smUtil for each in found), fmean(each.memUtil for each in found))
            for pid, found in of_process.items()
        }
        self._last_loads[uuid] = self._clock(), loads
        return loads

    # Events.

    def event_set(self) -> Any:
        """A subscription to the critical errors of all cards; None when the driver has no events or is closed."""
        nvml = self._nvml
        events = self._ask(nvml.nvmlEventSetCreate) if nvml is not None else None
        if events is None:
            return None
        event_types = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        for uuid, handle in tuple(self._handles.items()):
            if uuid.startswith("GPU-"):
                try:
                    supported = self._ask(nvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
                    self._ask(nvml.nvmlDeviceRegisterEvents, handle, supported & event_types, events)
                except CardLost:
                    continue
        return events

    def next_xid(self, events: Any, timeout_ms: int) -> Xid | None:
        """The next error, or None at the time limit; raises NvmlProblem when there will be no more."""
        nvml = self._nvml
        if nvml is None:
            raise NvmlProblem("the driver was closed")
        try:
            data = nvml.nvmlEventSetWait_v2(events, timeout_ms)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_TIMEOUT:
                return None
            raise NvmlProblem(f"the driver reports no errors of GPUs any more: {error}") from None
        try:
            uuid = self._ask(nvml.nvmlDeviceGetUUID, data.device) or ""
        except CardLost:
            uuid = ""
        number = data.eventData if data.eventType == nvml.nvmlEventTypeXidCriticalError else DOUBLE_BIT_XID
        instance = None if data.gpuInstanceId == NO_INSTANCE else int(data.gpuInstanceId)
        return Xid(uuid=uuid, number=int(number), gpu_instance=instance)


NO_INSTANCE = 0xFFFFFFFF
DOUBLE_BIT_XID = 48


class CardLost(Exception):
    """A card no longer answers."""


def problem_of(nvml: Any, error: Any) -> NvmlProblem:
    """Why NVML cannot be used, for an operator."""
    known = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
            f"the NVIDIA driver's library {LIBRARY} is not found",
            "install the NVIDIA driver, or set `library` to its path",
        ),
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: (
            "the NVIDIA driver is installed and not loaded, or this is a container without GPUs",
            "load it (modprobe nvidia, then nvidia-smi), or start the container with --gpus all",
        ),
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "the NVIDIA driver in the kernel and its library are of different versions",
            "restart the machine after the driver's update, or reload its kernel modules",
        ),
        nvml.NVML_ERROR_NO_PERMISSION: (
            "the agent may not use the NVIDIA driver",
            "run the agent as root, or let its user open /dev/nvidiactl and /dev/nvidia*",
        ),
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: (
            "the NVIDIA driver is too old for its bindings",
            "install a driver of version 450 or newer",
        ),
        nvml.NVML_ERROR_GPU_IS_LOST: (
            "a GPU has fallen off the bus, and the driver does not start without it",
            "restart the machine; see its kernel log for Xid 79",
        ),
    }
    reason, fix = known.get(error.value, (f"NVML answers: {error}", "see what nvidia-smi says"))
    return NvmlProblem(reason, fix)


def text_of(value: Any) -> str:
    """A text from NVML, whose structs contain bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def number_or(value: int | None, default: int) -> int:
    """The number, or the default for None."""
    return default if value is None else value


def flag(value: int | None) -> bool | None:
    """A boolean from NVML's on and off."""
    return None if value is None else bool(value)


def bits(words: Any) -> Iterator[int]:
    """The positions of the set bits."""
    for index, word in enumerate(words):
        yield from (index * 64 + bit for bit in range(64) if word >> bit & 1)


def numa_of_slot(bus_id: str, folder: Path = PCI_FOLDER) -> int | None:
    """The NUMA node of a slot according to the kernel; None on a machine with a single node."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        node = int((folder / f"{domain[-4:]}:{rest}" / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
