"""Claims of CSI volumes: which live allocations use a volume. They follow from the allocations alone.

A group's request names a volume by its source; with `per_alloc` each allocation has its own, `<source>[<index>]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from yurt.state.store import Snapshot
from yurt.state.usage import is_using
from yurt.structs.job import Job, TaskGroup
from yurt.structs.questions import alloc_index
from yurt.structs.volume import RegisteredVolume, VolumeRequest

CSI = "csi"
READERS_ONLY = frozenset({"single-node-reader-only", "multi-node-reader-only"})


class Claim(NamedTuple):
    """An allocation that uses a volume."""

    namespace: str
    job_id: str
    alloc_id: str
    node_id: str
    read_only: bool


def source_of(request: VolumeRequest, index: int) -> str:
    """The name of the volume for the allocation with that index."""
    return f"{request.source}[{max(index, 0)}]" if request.per_alloc else request.source


def csi_requests(group: TaskGroup) -> tuple[VolumeRequest, ...]:
    """The CSI volumes that a group asks for, by name."""
    return tuple(request for _, request in sorted(group.volumes.items()) if request.type == CSI)


def claims(snapshot: Snapshot, namespace: str) -> dict[str, list[Claim]]:
    """The claims of all CSI volumes of a namespace, by volume."""
    found: dict[str, list[Claim]] = {}
    for job in snapshot.jobs.values():
        if job.namespace == namespace and _asks_csi(job):
            for volume, claim in _of_job(snapshot, job):
                found.setdefault(volume, []).append(claim)
    return found


def _asks_csi(job: Job) -> bool:
    return any(request.type == CSI for group in job.task_groups for request in group.volumes.values())


def _of_job(snapshot: Snapshot, job: Job) -> Iterator[tuple[str, Claim]]:
    for alloc in snapshot.allocs_of_job(job.namespace, job.id):
        group = alloc.job.group(alloc.task_group) if alloc.job is not None and is_using(alloc) else None
        for request in csi_requests(group) if group is not None else ():
            claim = Claim(job.namespace, job.id, alloc.id, alloc.node_id, request.read_only)
            yield source_of(request, alloc_index(alloc.name)), claim


def refusal(
    volume: RegisteredVolume | None, request: VolumeRequest, source: str, *, known: list[Claim], job: Job
) -> str:
    """Why no node can give the volume to a further allocation of the job, or nothing.

    Claims of the job itself do not count: what it replaces lets go before the new one is given the volume.
    """
    if volume is None:
        return f"missing CSI Volume {source}"
    modes = {volume.access_mode} if volume.access_mode else {*volume.access_modes, request.access_mode} - {""}
    if request.read_only:
        if not volume.schedulable:
            return f"CSI volume {source} is unschedulable or has exhausted its available reader claims"
        return ""
    if not volume.schedulable or modes <= READERS_ONLY:
        return f"CSI volume {source} is unschedulable or is read-only"
    if "multi-node-multi-writer" in modes:
        return ""
    others = [claim for claim in known if not claim.read_only and (claim.namespace, claim.job_id) != job.key]
    return f"CSI volume {source} has exhausted its available writer claims" if others else ""
