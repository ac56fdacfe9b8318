"""What is known of GPUs, as values: what they are, where they sit, how they fare. Sizes in MiB unless named."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Value, no_entries

MIB = 1024 * 1024


class NvLink(Value):
    """An NVLink that is up: the place on the bus of what it leads to, a GPU (`gpu`) or an NVSwitch (`switch`)."""

    to: str
    kind: str


class MigFacts(Value):
    """A MIG instance: `profile` as NVIDIA writes it (1g.10gb), the numbers of its GPU and compute instance."""

    uuid: str
    name: str
    profile: str
    memory_mb: int
    multiprocessors: int = 0
    gpu_instance: int = 0
    compute_instance: int = 0


class CardFacts(Value):
    """A GPU; None where its driver does not answer. `ancestors` says how each other GPU is reached (PIX ... SYS)."""

    uuid: str
    name: str
    index: int
    minor: int
    pci_bus_id: str
    memory_mb: int
    reserved_mb: int | None = None
    serial: str | None = None
    bar1_mb: int | None = None
    power_w: int | None = None
    cores_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    pci_bandwidth_mb: int | None = None
    display: bool | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    mig: bool | None = None
    compute_mode: str | None = None
    capability: str | None = None
    architecture: str | None = None
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    links: tuple[NvLink, ...] = ()
    ancestors: Mapping[str, str] = no_entries()
    migs: tuple[MigFacts, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """The ids that it is offered by: its own, or those of its instances when it is split."""
        return tuple(each.uuid for each in self.migs) if self.mig else (self.uuid,)


class SystemFacts(Value):
    """The machine: versions of the driver and of the newest CUDA that it serves."""

    driver_version: str = ""
    cuda_version: str = ""


class Condition(Value):
    """How a GPU fares now; `lost` says why it does not answer."""

    lost: str = ""
    uncorrected_errors: int = 0
    remap_pending: bool = False
    remap_failed: bool = False


class ProcessUse(Value):
    """A process on a GPU and its memory, bytes."""

    pid: int
    memory_bytes: int


class CardUse(Value):
    """Use of a GPU or a MIG instance now; None where the driver does not tell."""

    memory_used_mb: int
    memory_total_mb: int
    bar1_used_mb: int | None = None
    bar1_total_mb: int | None = None
    gpu_percent: int | None = None
    memory_percent: int | None = None
    encoder_percent: int | None = None
    decoder_percent: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    corrected_errors: int | None = None
    uncorrected_errors: int | None = None
    processes: tuple[ProcessUse, ...] = ()


class GpuObservation(Value):
    """All GPUs at one moment, with the conditions by card."""

    system: SystemFacts
    cards: tuple[CardFacts, ...]
    conditions: Mapping[str, Condition] = no_entries()
