"""The contract of device plugins: find devices, report their health, reserve them for tasks.

A plugin offers groups: devices of one vendor, type and name, whose attributes jobs may ask for. The servers choose the
instances (the plugin never does); the client then asks the plugin how the task gets access to exactly these: variables,
device nodes, mounts, names of the Container Device Interface. A driver applies them as far as it isolates tasks.

A plugin reports the current state of each instance: healthy, suspect, degraded or failed. An instance that vanishes
while the agent runs is still reported, as failed with the reason, so that the tasks that hold it get an event. From
these reports the client derives each instance's health (`yurt.lifecycle.device_health`): a degraded or failed instance
gets no new task, a task that holds it continues but is not started again with it, and the instance returns after a
probation and the plugin's self-test, if it has one (`SelfTestingPlugin`).

All calls run on the client's event loop, so a plugin whose library blocks must use its own threads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from yurt.sdk.driver import DeviceNode, EngineDevices, Mount
from yurt.sdk.value import UnixNano, Value, no_entries

SHARE_MARK = "::"
"""Separates the id of the shared device from the number of the share in a booking's id."""
WHOLE = ""
MPS = "mps"
SLICE = "slice"
MIG = "mig"

# Names of figures in `DeviceUse.stats` that the client understands; a plugin gives those that it knows. Idleness,
# accounting and metrics are computed from them; a missing figure is unknown, never zero.
GPU_UTILIZATION = "GPU utilization"
"""Percent of the time in which any program ran on the device: one thread in a loop makes it 100."""
SM_UTILIZATION = "SM utilization"
"""Percent of the device's multiprocessors that worked, the mean since the last sample."""
MEMORY_UTILIZATION = "Memory utilization"
"""Percent of the time in which its memory was read or written, or of its memory bandwidth."""
ENERGY = "Energy"
"""Joules since some fixed time: a counter that only grows. Without it the client integrates `POWER`."""
POWER = "Power usage"
"""Watts."""
THROTTLING = "Throttling"
"""The reasons of a reduced clock: words separated by commas, empty for a full clock."""
PCIE_TRAFFIC = "PCIe traffic"
"""Bytes a second in both directions."""
NVLINK_TRAFFIC = "NVLink traffic"
"""Bytes a second in both directions, over all links."""


class Quantity(Value):
    """A number with its unit, which constraints compare: `Quantity(value=80, unit="GiB")`."""

    value: int | float
    unit: str


AttributeValue = str | bool | int | float | Quantity


Severity: TypeAlias = Literal["healthy", "suspect", "degraded", "failed"]


class DeviceInstance(Value):
    """One device; `attributes` are those that differ within its group.

    An unhealthy instance is `degraded` unless `severity` says `failed`: tasks on it continue, and it gets no new ones.
    Only `failed` moves its tasks, so a plugin without severities (all of Nomad's) moves none. A healthy instance with
    `severity="suspect"` and a reason is usable, but operators should know of it.
    """

    id: str
    is_healthy: bool = True
    reason: str = ""
    pci_bus_id: str = ""
    attributes: Mapping[str, AttributeValue] = no_entries()
    severity: Severity | Literal[""] = ""

    @property
    def reported(self) -> Severity:
        """The reported severity; `severity` counts only where it agrees with `is_healthy`."""
        if self.is_healthy:
            return "suspect" if self.severity == "suspect" else "healthy"
        return "failed" if self.severity == "failed" else "degraded"


class DeviceGroup(Value):
    """Equal devices; jobs request them by `type`, `vendor/type` or `vendor/type/name`."""

    vendor: str
    type: str
    name: str
    instances: tuple[DeviceInstance, ...] = ()
    attributes: Mapping[str, AttributeValue] = no_entries()


class DeviceFingerprint(Value):
    """All devices of a plugin now. Without groups, `description` gives the reason and `fix` the remedy.

    With groups, `description` is a note for operators about all of them.
    """

    groups: tuple[DeviceGroup, ...] = ()
    description: str = ""
    fix: str = ""
    attributes: Mapping[str, str] = no_entries()


class ClaimedDevices(Value):
    """Instances of one group used by a task: whole, or a share (`mps`, `slice`, `mig`) with its MiB and percent.

    `numbers` are the numbers of the shares, one for each id: of a MIG instance (`yurt.sdk.mig`) its first slice.
    """

    vendor: str
    type: str
    name: str
    ids: tuple[str, ...]
    share: str = WHOLE
    memory_mb: int = 0
    compute: int = 0
    numbers: tuple[str, ...] = ()


class DeviceClaim(Value):
    """The devices of one plugin used by a task."""

    alloc_id: str
    task_name: str
    devices: tuple[ClaimedDevices, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The instances, in the order of the request."""
        return tuple(dict.fromkeys(each for devices in self.devices for each in devices.ids))


class Reservation(Value):
    """The variables, mounts and devices that a driver must provide so that a task can use its devices.

    A driver without isolation gives `env` alone. An engine takes the first of `cdi_devices`, `engine_devices` and
    `nodes` that it can give; other drivers give `nodes`. `mounts` come with any of them. `notes` become
    events of the task.
    """

    env: Mapping[str, str] = no_entries()
    nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    engine_devices: tuple[EngineDevices, ...] = ()
    notes: tuple[str, ...] = ()


class Stat(Value):
    """A measured value; `of` is its maximum, in the same unit."""

    value: int | float | str | bool
    of: int | float | None = None
    unit: str = ""
    description: str = ""


class DeviceProcess(Value):
    """A process that uses a device, with its share of the device's memory."""

    pid: int
    memory_bytes: int
    name: str = ""
    busy_percent: float | None = None
    """Percent of the time in which it computed; None where the plugin does not report it by process."""
    memory_percent: float | None = None
    """Percent of the time in which it read or wrote device memory."""


class DeviceUse(Value):
    """Usage of one instance at `at`: the main value, all values by name, and the processes."""

    at: UnixNano
    summary: Stat
    stats: Mapping[str, Stat] = no_entries()
    processes: tuple[DeviceProcess, ...] = ()


@runtime_checkable
class DevicePlugin(Protocol):
    """Devices of one kind on this machine."""

    name: str

    def fingerprint(self) -> AsyncIterator[DeviceFingerprint]:
        """The present fingerprint at once, then one after each change, health included; ends only with `close`."""
        ...

    async def reserve(self, claim: DeviceClaim) -> Reservation:
        """The reservation for the task; called before each of its starts, so the answer must be repeatable.

        Raises DriverError when the instances cannot be used, RecoverableError when a retry may help.
        """
        ...

    async def update_claims(self, claims: Sequence[DeviceClaim]) -> None:
        """All claims of tasks that may run; called first after the agent's start, then after each change.

        Among them may be claims on devices that the plugin does not know (yet, or any more).
        The claims are those of the moment of the call: a task that has reserved before and is not among them has ended.
        """
        ...

    async def stats(self) -> Mapping[str, DeviceUse]:
        """Present usage by instance; instances without values are omitted."""
        ...

    async def close(self) -> None:
        """Free the plugin's own resources; tasks keep their devices."""
        ...


class SelfTest(Value):
    """The result of a self-test: `problem` is "" when it passed, `detail` describes the test."""

    problem: str = ""
    detail: str = ""


@runtime_checkable
class SelfTestingPlugin(Protocol):
    """A device plugin that can test an instance before it returns from a fault."""

    async def self_test(self, device_id: str) -> SelfTest:
        """Test an instance that no task uses; the client cancels it at the time limit of its configuration.

        Raises DriverError when the test cannot be made, which counts as a failed test, and RecoverableError when that
        says nothing of the instance (the driver hangs): it stays on probation, and is tested again later.
        """
        ...


def device_of(booking: str) -> str:
    """The id of the device behind a booking: the device itself, or the one it is a share of."""
    return booking.partition(SHARE_MARK)[0]


def share_number(booking: str) -> str:
    """The number of the share of a booking; "" of a whole device."""
    return booking.partition(SHARE_MARK)[2]
