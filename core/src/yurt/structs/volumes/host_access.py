"""Which requests to write to a host volume exclude each other: for servers, which place, and clients, which start."""

from __future__ import annotations

from typing import Final

from yurt.structs.volumes import host as modes
from yurt.structs.volumes.host import HostVolume
from yurt.structs.volumes.request import VolumeRequest

HOST: Final = "host"
"""The type of requests for host volumes."""
EXCLUSIVE_MODES: Final = frozenset({modes.WRITER, modes.SINGLE_WRITER})
"""Access modes of which a node grants one at a time for each volume, when a request names them."""


def access_mode(volume: HostVolume, request: VolumeRequest) -> str:
    """The volume's access mode for the request; empty when none fits."""
    for capability in volume.requested_capabilities:
        mode = capability.access_mode
        is_fit = mode == request.access_mode if request.access_mode else request.read_only or mode != modes.READER_ONLY
        is_attached = not request.attachment_mode or capability.attachment_mode == request.attachment_mode
        if is_fit and is_attached and (request.read_only or mode != modes.READER_ONLY):
            return mode
    return ""


def is_single_writer(volume: HostVolume, request: VolumeRequest) -> bool:
    """Whether the request wants to be the volume's only writer."""
    return not request.read_only and modes.SINGLE_WRITER in (request.access_mode, access_mode(volume, request))


def excludes(volume: HostVolume | None, one: VolumeRequest, other: VolumeRequest) -> bool:
    """Whether two writers of one volume must not write at the same time.

    `volume` is None for a volume of the node's configuration, which has no access modes of its own.
    """
    if one.read_only or other.read_only:
        return False
    if {one.access_mode, other.access_mode} <= EXCLUSIVE_MODES:
        return True
    return volume is not None and any(is_single_writer(volume, each) for each in (one, other))
