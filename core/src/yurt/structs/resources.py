"""Resources that a task requests."""

from __future__ import annotations

from typing import Annotated

from yurt.sdk.value import OWN, Value, spelled
from yurt.structs.constraint import Affinity, Constraint
from yurt.structs.network import NetworkResource
from yurt.structs.policies import IdlePolicy


class DeviceTopology(Value, rename=spelled(nvlink="NVLink")):
    """The required closeness of a task's devices: `prefer` (the default, ""), `require` or `ignore`."""

    nvlink: str = ""
    numa: str = ""


class RequestedDevice(Value):
    """Devices that a task requests by `type`, `vendor/type` or `vendor/type/name`.

    With `share` they are parts of devices (`mps`, `slice`: MiB and percent of each of `count` devices) or MIG instances
    (`mig`) with a minimum of MiB. `first_available` holds alternatives, of which the first that a node can provide is
    taken; the request itself must then be empty.
    """

    name: str = ""
    count: int = 1
    constraints: tuple[Constraint, ...] = ()
    affinities: tuple[Affinity, ...] = ()
    all_of_node: Annotated[bool, OWN] = False
    """Request all healthy devices of a node, which must all be free; `count` is ignored."""
    first_available: Annotated[tuple[RequestedDevice, ...], OWN] = ()
    topology: Annotated[DeviceTopology | None, OWN] = None
    share: Annotated[str, OWN] = ""
    memory_mb: Annotated[int, OWN] = 0
    compute: Annotated[int, OWN] = 0
    on_failure: Annotated[str, OWN] = ""
    """The reaction to a failure of its device: `notify` or `move`; "" is `move` in groups with `requeue`."""
    idle: Annotated[IdlePolicy | None, OWN] = None
    """The policy on the group's allocations that do not use their devices."""


class NUMAResource(Value):
    """The strictness with which cores must share a NUMA node."""

    affinity: str = ""
    devices: tuple[str, ...] = ()


class Resources(Value):
    """The resources that a task requests: MHz, MiB, cores, devices."""

    cpu: int = 100
    cores: int = 0
    memory_mb: int = 300
    memory_max_mb: int = 0
    disk_mb: int = 0
    networks: tuple[NetworkResource, ...] = ()
    devices: tuple[RequestedDevice, ...] = ()
    numa: NUMAResource | None = None
    secrets_mb: int = 0
    iops: int = 0


class LogConfig(Value):
    """Rotation of a task's log files; sizes in MiB."""

    max_files: int = 10
    max_file_size_mb: int = 10
    enabled: bool = False
    disabled: bool = False


class EphemeralDisk(Value):
    """The shared disk of an allocation, MiB."""

    sticky: bool = False
    migrate: bool = False
    size_mb: int = 300
