"""Dynamic host volumes: whether a group's request fits one, its writers, and sticky claims.

A request without an access mode is content with any that allows what it does. A single writer shares its volume with
readers only, whether it or the other one came first. A former allocation of the same name does not count once it has
been asked to end, because its successor waits for that end. A canary's predecessor is not asked to end before the
promotion: it counts, or both would write until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from yurt.state.claims import requests_of
from yurt.state.store import Snapshot
from yurt.state.usage import is_using
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.predicates import alloc_index, is_server_terminal
from yurt.structs.volumes import host as modes
from yurt.structs.volumes.host import HostVolume, TaskGroupHostVolumeClaim
from yurt.structs.volumes.host_access import HOST, access_mode, excludes
from yurt.structs.volumes.request import VolumeRequest, source_of


def host_requests(group: TaskGroup) -> tuple[VolumeRequest, ...]:
    """The host volumes that a group requests, by name."""
    return requests_of(group, HOST)


def refusal(volume: HostVolume, request: VolumeRequest, namespace: str) -> str:
    """The reason why the volume cannot serve the request in its present configuration; "" when it can."""
    name = volume.name
    if volume.namespace != namespace:
        return f'host volume "{name}" belongs to another namespace'
    if volume.state != modes.READY:
        return f'host volume "{name}" is {"being deleted" if volume.state == modes.DELETING else volume.state}'
    if not access_mode(volume, request):
        mode_text = request.access_mode or ("a reading mode" if request.read_only else "a writing mode")
        return f'host volume "{name}" does not offer {mode_text} {request.attachment_mode}'.rstrip()
    return ""


def refusal_of_node(
    node: Node, request: VolumeRequest, *, source: str, namespace: str, volume_of: Callable[[str], HostVolume | None]
) -> str:
    """The reason why the node cannot serve the request with its host volume `source`; "" when it can.

    `volume_of` finds a dynamic volume by its id: only its row says to which namespace it belongs.
    """
    offered = node.host_volumes.get(source)
    if offered is None:
        return f'the node has no host volume "{source}"'
    if not offered.id:
        return f'host volume "{source}" is read-only' if offered.read_only and not request.read_only else ""
    volume = volume_of(offered.id)
    return (
        f'host volume "{source}" has no record in the cluster'
        if volume is None
        else refusal(volume, request, namespace)
    )


class NodeVolume(NamedTuple):
    """A host volume by its name on a node; `volume` is None for one of the node's configuration."""

    node_id: str
    source: str
    volume: HostVolume | None


class NewWriter(NamedTuple):
    """An allocation to place: the key of its job, its name, and whether its plan stops an allocation (`is_leaving`)."""

    key: tuple[str, str]
    name: str
    is_leaving: Callable[[str], bool]

    def succeeds(self, alloc: Allocation) -> bool:
        """Whether it replaces the allocation, which its plan stops or the servers have asked to end."""
        is_own = ((alloc.namespace, alloc.job_id), alloc.name) == (self.key, self.name)
        return is_own and (is_server_terminal(alloc) or self.is_leaving(alloc.id))


def has_other_writer(snapshot: Snapshot, place: NodeVolume, request: VolumeRequest, new: NewWriter) -> bool:
    """Whether a writer excludes the request to write, because one of both is a single writer.

    A leaving predecessor of the same job and name does not count.
    """
    return any(
        excludes(place.volume, request, other) and not new.succeeds(alloc) for alloc, other in _users(snapshot, place)
    )


def users(snapshot: Snapshot, volume: HostVolume) -> Iterator[tuple[Allocation, VolumeRequest]]:
    """The allocations on the volume's node that use it, with their requests."""
    return _users(snapshot, NodeVolume(volume.node_id, volume.name, volume))


def _users(snapshot: Snapshot, place: NodeVolume) -> Iterator[tuple[Allocation, VolumeRequest]]:
    namespace = None if place.volume is None else place.volume.namespace
    for alloc in snapshot.allocs_of_node(place.node_id):
        group = alloc.job.group(alloc.task_group) if alloc.job is not None and is_using(alloc) else None
        for request in host_requests(group) if group is not None and namespace in (None, alloc.namespace) else ():
            if source_of(request, alloc_index(alloc.name)) == place.source:
                yield alloc, request


def claim_of(snapshot: Snapshot, job: Job, group: str, *, index: int, source: str) -> TaskGroupHostVolumeClaim | None:
    """The claim of the allocation with this index on a volume of this name."""
    for claim in snapshot.host_volume_claims.where("group", (job.namespace, job.id, group)):
        if claim.volume_name == source and alloc_index(claim.alloc_name) == index:
            return claim
    return None
