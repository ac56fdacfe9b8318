"""Volumes that a group requests and a task mounts."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Value, spelled


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


class RegisteredVolume(Value):
    """A CSI volume as placing sees it. `topologies` are segments, in one of which a node must lie; none: anywhere."""

    id: str
    plugin_id: str
    namespace: str = "default"
    schedulable: bool = True
    access_mode: str = ""
    access_modes: tuple[str, ...] = ()
    """What it can do; `access_mode` is the one that it is used in."""
    topologies: tuple[Mapping[str, str], ...] = ()
    create_index: int = 0
    modify_index: int = 0


class VolumeMount(Value):
    """Where a task mounts one of its group's volumes."""

    volume: str = ""
    destination: str = ""
    read_only: bool = False
    propagation_mode: str = ""
    selinux_label: str = ""
