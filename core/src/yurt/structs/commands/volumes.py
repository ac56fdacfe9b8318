"""Commands on dynamic host volumes and CSI volumes."""

from __future__ import annotations

from yurt.sdk.value import UnixNano
from yurt.structs.commands.base import Command, EventType
from yurt.structs.volumes.csi import CSIVolume
from yurt.structs.volumes.host import HostVolume


class PutHostVolume(Command, tag=True):
    """Store a dynamic host volume; its state is derived from its node, or with `keeps_state` it is being deleted."""

    event_type = EventType("HostVolumeRegistered")

    volume: HostVolume
    now: UnixNano = UnixNano(0)
    keeps_state: bool = False
    region: str = ""
    """The region whose quota limit applies; "" in entries of earlier versions."""


class DeleteHostVolume(Command, tag=True):
    """Delete a dynamic host volume and the claims on it."""

    event_type = EventType("HostVolumeDeleted", publishes_deletion=True)

    namespace: str
    id: str
    now: UnixNano = UnixNano(0)
    """The time of evaluations of jobs that a claim kept away; 0 in entries of earlier versions, which have none."""


class DeleteHostVolumeClaim(Command, tag=True):
    """Delete the claim of a sticky volume, so that the next allocation may get another volume."""

    id: str
    namespace: str = ""
    """The claim's namespace; "" for any."""
    now: UnixNano = UnixNano(0)
    """As in `DeleteHostVolume`."""


class UpsertVolumes(Command, tag=True):
    """Register or change CSI volumes."""

    event_type = EventType("CSIVolumeRegistered")

    volumes: tuple[CSIVolume, ...]
    now: UnixNano = UnixNano(0)
    needs_plugins: bool = False
    """Whether the command is rejected if no node or job names a volume's plugin any more; False in entries of earlier
    versions."""


class DeleteVolumes(Command, tag=True):
    """Deregister CSI volumes by (namespace, id); volumes used by live allocations only with `force`."""

    event_type = EventType("CSIVolumeDeregistered", publishes_deletion=True)

    keys: tuple[tuple[str, str], ...]
    is_forced: bool = False


HostVolumeCommand = PutHostVolume | DeleteHostVolume | DeleteHostVolumeClaim
CsiVolumeCommand = UpsertVolumes | DeleteVolumes
