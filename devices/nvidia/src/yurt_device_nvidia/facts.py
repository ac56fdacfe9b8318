"""Facts about GPUs as values: identity, topology, condition. Sizes in MiB unless named."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Value, no_entries

from yurt_device_nvidia.activity import CardActivity

MIB = 1024 * 1024


class NvLink(Value):
    """An active NVLink: the bus address of the other end, a GPU (`gpu`) or an NVSwitch (`switch`)."""

    to: str
    kind: str


class MigFacts(Value):
    """A MIG instance: `profile` in NVIDIA's notation (1g.10gb), the numbers of its GPU and compute instance."""

    uuid: str
    name: str
    profile: str
    memory_mb: int
    multiprocessors: int = 0
    gpu_instance: int = 0
    compute_instance: int = 0


class CardFacts(Value):
    """A GPU; None where the driver gives no answer. `ancestors` is the path to each other GPU (PIX ... SYS)."""

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
    mig_profiles: str = ""
    """The profiles that the plugin may create itself, as the attribute has them; "" where it may not."""
    is_managed: bool = False
    """Whether it is offered as a card, whatever MIG instances it has now."""

    @property
    def is_split(self) -> bool:
        """Whether its instances are offered instead of the card."""
        return bool(self.mig) and not self.is_managed

    @property
    def devices(self) -> tuple[str, ...]:
        """The ids it is offered under: its own, or its instances' when it is split."""
        return tuple(each.uuid for each in self.migs) if self.mig else (self.uuid,)


class SystemFacts(Value):
    """The machine: versions of the driver and of the newest CUDA it supports."""

    driver_version: str = ""
    cuda_version: str = ""


class Condition(Value):
    """A GPU's present condition; `lost` is why it does not answer.

    `recovery_action` is what the driver wants done (NVML_GPU_RECOVERY_ACTION, 0: nothing), `is_throttled` whether the
    hardware slows the clocks for heat or power; `corrected_errors` and `link_errors` count up since the driver started
    (None where the driver does not tell them). `links_down` are the numbers of the NVLinks that were up and are not.
    """

    lost: str = ""
    uncorrected_errors: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    recovery_action: int = 0
    is_throttled: bool = False
    corrected_errors: int | None = None
    link_errors: int | None = None
    links_down: tuple[int, ...] = ()


class ProcessUse(Value):
    """A process on a GPU, its memory in bytes, and percent of the time in which it computed and used memory."""

    pid: int
    memory_bytes: int
    busy_percent: float | None = None
    memory_percent: float | None = None


class CardUse(Value):
    """Present usage of a GPU or a MIG instance; None where the driver does not report it."""

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
    activity: CardActivity = CardActivity()


class GpuObservation(Value):
    """All GPUs at one time, with the conditions by card."""

    system: SystemFacts
    cards: tuple[CardFacts, ...]
    conditions: Mapping[str, Condition] = no_entries()
