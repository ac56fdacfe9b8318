"""Resources that a task asks for."""

from __future__ import annotations

from yurt.sdk.value import Value
from yurt.structs.constraint import Affinity, Constraint
from yurt.structs.network import NetworkResource


class RequestedDevice(Value):
    """Devices that a task asks for by `type`, `vendor/type` or `vendor/type/name`."""

    name: str = ""
    count: int = 1
    constraints: tuple[Constraint, ...] = ()
    affinities: tuple[Affinity, ...] = ()


class NUMAResource(Value):
    """How strictly cores must share a NUMA node."""

    affinity: str = ""
    devices: tuple[str, ...] = ()


class Resources(Value):
    """What a task asks for: MHz, MiB, cores, devices."""

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
