"""Claims of CSI volumes: the live allocations that use a volume. Derived from the allocations alone.

A group's request names a volume by its source; with `per_alloc` each allocation has its own, `<source>[<index>]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from yurt.state.store import Snapshot
from yurt.state.tables import SEVERAL_VOLUMES
from yurt.state.usage import is_using
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.predicates import CSI, alloc_index
from yurt.structs.volumes.csi import MULTI_WRITER, READERS_ONLY, SINGLE_NODE, CSIVolume
from yurt.structs.volumes.request import VolumeRequest, source_of


class Claim(NamedTuple):
    """An allocation that uses a volume."""

    namespace: str
    job_id: str
    alloc_id: str
    node_id: str
    read_only: bool
    access_mode: str
    attachment_mode: str


def csi_requests(group: TaskGroup) -> tuple[VolumeRequest, ...]:
    """The CSI volumes that a group requests, by name."""
    return requests_of(group, CSI)


def requests_of(group: TaskGroup, kind: str) -> tuple[VolumeRequest, ...]:
    """The volumes of a kind that a group requests, by name; mostly none."""
    volumes = group.volumes
    return tuple([request for _, request in sorted(volumes.items()) if request.type == kind]) if volumes else ()


def claims(snapshot: Snapshot, namespace: str) -> dict[str, list[Claim]]:
    """The claims of all CSI volumes of a namespace, by volume; in the order of jobs and allocations.

    An allocation keeps its volumes until it has ended, whether its job has been deleted or now asks for others.
    """
    keys = [key for key in snapshot.allocs.index_values("csi") if key[0] == namespace]
    return _by_volume(_ordered(alloc for key in keys for alloc in snapshot.allocs.each_where("csi", key)))


def claims_of_volume(snapshot: Snapshot, namespace: str, volume: str) -> list[Claim]:
    """The claims of one CSI volume, in the same order."""
    keys = [(namespace, volume), (namespace, SEVERAL_VOLUMES)]
    allocs = _ordered(alloc for key in keys for alloc in snapshot.allocs.each_where("csi", key))
    return _by_volume(allocs).get(volume, [])


def claims_of_current_jobs(snapshot: Snapshot, namespace: str) -> dict[str, list[Claim]]:
    """The claims by the rules before `CSI_CLAIM_RULES`: without those of jobs that were deleted, or whose newest
    version asks for no CSI volume."""
    jobs = snapshot.jobs.where("csi", namespace)
    return _by_volume(alloc for job in jobs for alloc in snapshot.allocs_of_job(*job.key))


def _ordered(allocs: Iterable[Allocation]) -> list[Allocation]:
    return sorted(allocs, key=lambda alloc: (alloc.job_id, alloc.create_index, alloc.id))


def _by_volume(allocs: Iterable[Allocation]) -> dict[str, list[Claim]]:
    by_volume: dict[str, list[Claim]] = {}
    for alloc in allocs:
        for volume, claim in _of_alloc(alloc):
            by_volume.setdefault(volume, []).append(claim)
    return by_volume


def _of_alloc(alloc: Allocation) -> Iterator[tuple[str, Claim]]:
    group = alloc.job.group(alloc.task_group) if alloc.job is not None and is_using(alloc) else None
    for request in csi_requests(group) if group is not None else ():
        modes = request.access_mode, request.attachment_mode
        claim = Claim(alloc.namespace, alloc.job_id, alloc.id, alloc.node_id, request.read_only, *modes)
        yield source_of(request, alloc_index(alloc.name)), claim


def refusal(
    volume: CSIVolume | None,
    request: VolumeRequest,
    source: str,
    *,
    present_claims: Sequence[Claim],
    job: Job,
    compares_all: bool = True,
) -> str:
    """The reason why no node can provide the volume to another allocation of the job; "" when one can.

    Claims of the job itself do not count: what it replaces lets go before the new one is given the volume.
    `compares_all`: see `conflict_of`.
    """
    if volume is None:
        return f"missing CSI Volume {source}"
    if not offers(volume, request):
        mode_text = f"{request.access_mode} as {request.attachment_mode or 'any attachment'}"
        return f"CSI volume {source} does not offer {mode_text}"
    others = [claim for claim in present_claims if (claim.namespace, claim.job_id) != job.key]
    return conflict_of(request, source, others, compares_all=compares_all)


def conflict_of(request: VolumeRequest, source: str, others: Sequence[Claim], *, compares_all: bool = True) -> str:
    """The reason why the claims of others exclude the request, or "". All users of a volume share one mode.

    Claims on one volume may differ in their mode: allocations of a new version that asks for another mode have claims
    while they wait for the end of those of the old version. By the rules before `CSI_CLAIM_RULES` (not `compares_all`)
    only the mode of the first claim counted.
    """
    mode = request.access_mode
    if mode in READERS_ONLY and not request.read_only:
        return f"CSI volume {source} is unschedulable or is read-only"
    if not others:
        return ""
    compared = others if compares_all else [min(others)]
    other = min((claim for claim in compared if claim.access_mode != mode), default=None)
    if other is not None:
        return f"CSI volume {source} is used as {other.access_mode} by job {other.job_id}"
    if request.read_only:
        return f"CSI volume {source} has exhausted its available reader claims" if mode in SINGLE_NODE else ""
    is_free = mode == MULTI_WRITER or (mode not in SINGLE_NODE and all(claim.read_only for claim in others))
    return "" if is_free else f"CSI volume {source} has exhausted its available writer claims"


def offers(volume: CSIVolume, request: VolumeRequest) -> bool:
    """Whether the volume supports the requested mode."""
    return any(
        capability.access_mode == request.access_mode
        and (not request.attachment_mode or capability.attachment_mode == request.attachment_mode)
        for capability in volume.requested_capabilities
    )
