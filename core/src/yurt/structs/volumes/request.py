"""Volumes that a group requests and a task mounts."""

from __future__ import annotations

from yurt.sdk.value import Value, spelled

SELINUX_LABELS = ("z", "Z")
"""SELinux labels of a mount: shared among containers, or private to one."""


class CSIMountOptions(Value, rename=spelled(fs_type="FSType")):
    """Mount options of a CSI volume."""

    fs_type: str = ""
    mount_flags: tuple[str, ...] = ()


class VolumeRequest(Value):
    """A volume that a group needs."""

    name: str = ""
    type: str = ""
    source: str = ""
    read_only: bool = False
    sticky: bool = False
    access_mode: str = ""
    attachment_mode: str = ""
    mount_options: CSIMountOptions | None = None
    per_alloc: bool = False


class VolumeMount(Value):
    """The path at which a task mounts one of its group's volumes."""

    volume: str = ""
    destination: str = ""
    read_only: bool = False
    propagation_mode: str = ""
    selinux_label: str = ""  # one of SELINUX_LABELS, or no label


def source_of(request: VolumeRequest, index: int) -> str:
    """The name of the volume for the allocation with this index."""
    return f"{request.source}[{max(index, 0)}]" if request.per_alloc else request.source
