"""Dynamic host volumes and the claims of sticky ones.

A volume is ready while its node is ready and offers it by its id. One that is being deleted stays so while its node is
ready, whatever the node reports, and is unavailable once the node is not: if the deletion has failed meanwhile, the
volume is ready again with its node. An allocation of a group with a sticky volume gets
a claim when it is placed; its successor of the same name takes the claim over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import assert_never

from yurt.fsm.edit import Edit
from yurt.fsm.eval_triggers import Mint, evaluations_of, mint_of, system_jobs
from yurt.fsm.evals import put_evaluations
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.sdk.value import UnixNano, replace
from yurt.state import Tables
from yurt.state.host_volumes import NewWriter, NodeVolume, has_other_writer, host_requests, refusal_of_node
from yurt.state.tables import JobKey
from yurt.structs.alloc import Allocation
from yurt.structs.commands import (
    DeleteHostVolume,
    DeleteHostVolumeClaim,
    EvalSeed,
    HostVolumeCommand,
    PutHostVolume,
    Rejected,
)
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.plan import Plan
from yurt.structs.predicates import alloc_index, is_for_node, is_server_terminal
from yurt.structs.rules import (
    CHANGED_VOLUME_RULES,
    DELETING_VOLUME_RULES,
    HOST_VOLUME_RULES,
    LEAVING_WRITER_RULES,
    PLACEMENT_VOLUME_RULES,
    SINGLE_WRITER_RULES,
)
from yurt.structs.status import NODE_READY, TRIGGER_NODE_UPDATE
from yurt.structs.volumes.host import (
    DELETING,
    PENDING,
    READY,
    SINGLE_WRITER,
    UNAVAILABLE,
    HostVolume,
    TaskGroupHostVolumeClaim,
)
from yurt.structs.volumes.host_access import access_mode, excludes
from yurt.structs.volumes.request import VolumeRequest, source_of

PlanWriters = dict[tuple[str, str], dict[str, list[VolumeRequest]]]
"""The requests to write of the allocations that a plan places, by the node and the volume's name, then by the
allocation's id (its name before `LEAVING_WRITER_RULES`)."""


def apply_host_volume(edit: Edit, command: HostVolumeCommand) -> Rejected | None:
    """Apply a host volume command."""
    match command:
        case PutHostVolume():
            return _put(edit, command)
        case DeleteHostVolume():
            return _delete(edit, command)
        case DeleteHostVolumeClaim():
            claim: TaskGroupHostVolumeClaim | None = edit.tx.get(Tables.host_volume_claims, command.id)
            if claim is None or command.namespace not in ("", claim.namespace):
                return not_found("host volume claim not found")
            edit.tx.delete(Tables.host_volume_claims, command.id)
            return _evaluate_claimants(edit, (claim,), command.now)
        case _:
            assert_never(command)


def _put(edit: Edit, command: PutHostVolume) -> Rejected | None:
    volume = command.volume
    if not volume.id or not volume.name or not volume.node_id:
        return invalid("a host volume needs an ID, a name and a node")
    if edit.tx.get(Tables.namespaces, volume.namespace) is None:
        return not_found(f'nonexistent namespace "{volume.namespace}"')
    node: Node | None = edit.tx.get(Tables.nodes, volume.node_id)
    existing: HostVolume | None = edit.tx.get(Tables.host_volumes, volume.id)
    if node is None and existing is None:
        return not_found(f'node "{volume.node_id}" not found')
    if existing is not None and (existing.namespace, existing.name, existing.node_id) != (
        volume.namespace, volume.name, volume.node_id,
    ):  # fmt: skip
        return conflict(f'host volume "{volume.id}" exists; its namespace, name and node do not change')
    same_name = edit.tx.base.host_volumes.where("name", volume.name)
    if any(other.node_id == volume.node_id and other.id != volume.id for other in same_name):
        return conflict(f'node "{volume.node_id}" has a host volume "{volume.name}" already')
    refused = _over_quota(edit, volume, existing, command.region)
    if refused is not None:
        return refused
    stored = replace(
        volume,
        create_index=edit.index if existing is None else existing.create_index,
        create_time=command.now if existing is None else existing.create_time,
        modify_index=edit.index,
        modify_time=command.now,
    )
    if not command.keeps_state:
        stored = replace(stored, state=_state(node, stored))
    elif edit.rules_version >= DELETING_VOLUME_RULES:
        stored = replace(stored, state=DELETING)
    edit.tx.put(Tables.host_volumes, volume.id, stored)
    return None if node is None else _evaluate_waiting(edit, node, existing, stored)


def _evaluate_waiting(edit: Edit, node: Node, before: HostVolume | None, volume: HostVolume) -> Rejected | None:
    """Evaluate the system jobs that ask for a volume which has become ready, or has changed what it offers.

    They have no evaluation that waits for it: a node without the volume is none of theirs. Other jobs have one.
    """
    is_same = before is not None and (before.state, before.requested_capabilities) == (
        volume.state, volume.requested_capabilities,
    )  # fmt: skip
    if edit.rules_version < CHANGED_VOLUME_RULES or volume.state != READY or is_same:
        return None
    jobs = [
        job
        for job in system_jobs(edit.tx.base)
        if job.namespace == volume.namespace and is_for_node(job, node) and _asks_for(job, volume.name)
    ]
    made = evaluations_of(jobs, TRIGGER_NODE_UPDATE, _mint(edit, volume.id, volume.modify_time))
    return put_evaluations(edit, [replace(each, node_id=node.id, node_modify_index=edit.index) for each in made])


def _asks_for(job: Job, volume: str) -> bool:
    """Whether a system job asks for a host volume of this name; its allocations have the index 0."""
    return any(source_of(request, 0) == volume for group in job.task_groups for request in host_requests(group))


def _evaluate_claimants(edit: Edit, claims: Iterable[TaskGroupHostVolumeClaim], now: UnixNano) -> Rejected | None:
    """Evaluate the system jobs whose claims were deleted: their allocations may go to other nodes now."""
    if edit.rules_version < CHANGED_VOLUME_RULES or not now:
        return None
    lost = {(claim.namespace, claim.job_id) for claim in claims}
    jobs = [job for job in system_jobs(edit.tx.base) if job.key in lost] if lost else []
    return put_evaluations(edit, evaluations_of(jobs, TRIGGER_NODE_UPDATE, _mint(edit, "claims", now)))


def _mint(edit: Edit, what: str, now: int) -> Mint:
    return mint_of(EvalSeed(seed=f"{what}/{edit.index}", now=UnixNano(now)))


def _over_quota(edit: Edit, volume: HostVolume, existing: HostVolume | None, region: str) -> Rejected | None:
    if edit.quota_of(volume.namespace) is None:
        return None
    from yurt.fsm.quotas.storage import host_volume_refusal

    return host_volume_refusal(edit, volume, existing, region)


def _state(node: Node | None, volume: HostVolume) -> str:
    """The volume's state, derived from its node."""
    if node is not None and node.status == NODE_READY:
        offered = node.host_volumes.get(volume.name)
        if volume.state == DELETING:
            return DELETING
        if offered is not None and offered.id == volume.id:
            return READY
    return PENDING if volume.state == PENDING else UNAVAILABLE


def _delete(edit: Edit, command: DeleteHostVolume) -> Rejected | None:
    volume: HostVolume | None = edit.tx.get(Tables.host_volumes, command.id)
    if volume is None or volume.namespace != command.namespace:
        return not_found("volume not found")
    edit.tx.delete(Tables.host_volumes, volume.id)
    claims = tuple(edit.tx.base.host_volume_claims.where("volume", volume.id))
    for claim in claims:
        edit.tx.delete(Tables.host_volume_claims, claim.id)
    if edit.rules_version >= HOST_VOLUME_RULES:
        _withdraw(edit, volume)
    return _evaluate_claimants(edit, claims, command.now)


def _withdraw(edit: Edit, volume: HostVolume) -> None:
    """Remove a deleted volume from its node's row before the node reports the removal.

    Until then jobs could be placed there because of a volume that is gone, and its name would seem taken.
    """
    node: Node | None = edit.tx.get(Tables.nodes, volume.node_id)
    offered = node.host_volumes.get(volume.name) if node is not None else None
    if node is None or offered is None or offered.id != volume.id:
        return
    rest = {name: each for name, each in node.host_volumes.items() if name != volume.name}
    edit.tx.put(Tables.nodes, node.id, replace(node, host_volumes=rest, modify_index=edit.index))


def follow_node(edit: Edit, node_id: str) -> None:
    """Update the states of a node's volumes after a change of the node."""
    node: Node | None = edit.tx.get(Tables.nodes, node_id)
    before: Node | None = edit.tx.base.nodes.get(node_id)
    for volume in edit.tx.base.host_volumes.where("node", node_id):
        now = _state(node, volume)
        if now == volume.state or (edit.rules_version >= PLACEMENT_VOLUME_RULES and now == _state(before, volume)):
            # The node already offers the volume: if its row is not ready, the volume is being deleted.
            continue
        edit.tx.put(Tables.host_volumes, volume.id, replace(volume, state=now, modify_index=edit.index))


def withdrawn_volume(edit: Edit, plan: Plan, job: Job, group: TaskGroup) -> str:
    """The reason why the node lacks a host volume for a placement of the group; "" when it has all of them.

    Between the scheduler's look and this one a volume may have been deleted, may have another one of its name in its
    place that belongs to another namespace, or may be about to be deleted: what lies there is for others to read.
    """
    requests = host_requests(group) if edit.rules_version >= PLACEMENT_VOLUME_RULES else ()
    volume_of = partial(edit.tx.get, Tables.host_volumes)
    for placement in plan.placements if requests else ():
        node: Node | None = edit.tx.get(Tables.nodes, placement.node_id)
        if node is None or (placement.job_version, placement.task_group) != (job.version, group.name):
            continue
        for request in requests:
            source = source_of(request, alloc_index(placement.name))
            reason = refusal_of_node(node, request, source=source, namespace=plan.namespace, volume_of=volume_of)
            if reason:
                return f'node "{placement.node_id}": {reason}'
    return ""


def writer_conflict(edit: Edit, plan: Plan, job: Job, group: TaskGroup, writers: PlanWriters) -> str:
    """The reason why the group cannot write to a volume, because it or another writer is a single one; "" when it can.

    `writers` are those of the plan's groups so far.
    """
    writing = [request for request in host_requests(group) if not request.read_only]
    if not writing:
        return ""
    is_checked, is_leaving = edit.rules_version >= SINGLE_WRITER_RULES, _leaving_of(edit, plan)
    for placement in plan.placements:
        # Earlier rules looked at the group's placements of other versions too, by the requests of this one.
        is_own = placement.task_group == group.name and (placement.job_version == job.version or not is_checked)
        node: Node | None = edit.tx.get(Tables.nodes, placement.node_id)
        if node is None or not is_own:
            continue
        new = NewWriter(job.key, placement.name, is_leaving)
        own = placement.id if edit.rules_version >= LEAVING_WRITER_RULES else placement.name
        for request in writing:
            place = _place(edit, node, source_of(request, alloc_index(placement.name)))
            if place is None or not _is_checked(edit, place, request):
                continue
            is_second = _is_second(place, request, own, writers.setdefault((place.node_id, place.source), {}))
            if (is_second and is_checked) or has_other_writer(edit.tx.base, place, request, new):
                return f'host volume "{place.source}" has its single writer'
    return ""


def _place(edit: Edit, node: Node, source: str) -> NodeVolume | None:
    """The node's volume of this name; None when it offers none, or a dynamic one without a row."""
    offered = node.host_volumes.get(source)
    if offered is None or not offered.id:
        return None if offered is None else NodeVolume(node.id, source, None)
    volume: HostVolume | None = edit.tx.get(Tables.host_volumes, offered.id)
    return None if volume is None else NodeVolume(node.id, source, volume)


def _is_checked(edit: Edit, place: NodeVolume, request: VolumeRequest) -> bool:
    """Whether `apply` looks for other writers; those of a configured volume, unless it is of one allocation, are
    exclusive resources."""
    if edit.rules_version >= SINGLE_WRITER_RULES:
        return place.volume is not None or request.per_alloc
    return place.volume is not None and access_mode(place.volume, request) == SINGLE_WRITER


def _is_second(place: NodeVolume, request: VolumeRequest, own: str, known: dict[str, list[VolumeRequest]]) -> bool:
    """Whether another allocation of the plan excludes the request; adds it to those of its allocation `own`."""
    others = [other for each, requests in known.items() if each != own for other in requests]
    known.setdefault(own, []).append(request)
    return any(excludes(place.volume, request, other) for other in others)


def _leaving_of(edit: Edit, plan: Plan) -> Callable[[str], bool]:
    """Tells whether the plan, or an earlier one, asks an allocation to end; earlier rules assumed so for all."""
    if edit.rules_version < LEAVING_WRITER_RULES:
        return lambda _: True
    stopped = {stop.id for stop in (*plan.stops, *plan.preemptions)}

    def is_leaving(alloc_id: str) -> bool:
        alloc = edit.alloc(alloc_id)
        return alloc_id in stopped or alloc is None or is_server_terminal(alloc)

    return is_leaving


def claim_volumes(edit: Edit, jobs: Iterable[Job | None], allocs: Sequence[Allocation]) -> None:
    """Store the claims of placed allocations on the sticky volumes of their groups."""
    sticky = {
        (job.version, group.name): names
        for job in jobs
        for group in (job.task_groups if job is not None else ())
        if job is not None and (names := [request.source for request in host_requests(group) if request.sticky])
    }
    node_of = edit.tx.reader(Tables.nodes)
    for alloc in allocs if sticky else ():
        node = node_of(alloc.node_id)
        for name in sticky.get((alloc.job.version, alloc.task_group), ()) if alloc.job is not None else ():
            offered = node.host_volumes.get(name)
            if offered is not None and offered.id:
                _claim(edit, alloc, name, offered.id)


def _claim(edit: Edit, alloc: Allocation, volume_name: str, volume_id: str) -> None:
    parts = (alloc.namespace, alloc.job_id, alloc.task_group, alloc.name, volume_name)
    claim_id = _uuid("\0".join(parts))
    existing: TaskGroupHostVolumeClaim | None = edit.tx.get(Tables.host_volume_claims, claim_id)
    assert existing is None or existing.volume_name == volume_name, (claim_id, "its id derives from the claimed volume")
    claim = TaskGroupHostVolumeClaim(
        id=claim_id,
        namespace=alloc.namespace,
        job_id=alloc.job_id,
        task_group_name=alloc.task_group,
        alloc_id=alloc.id,
        alloc_name=alloc.name,
        volume_id=volume_id,
        volume_name=volume_name,
        create_index=edit.index if existing is None else existing.create_index,
        modify_index=edit.index,
    )
    edit.tx.put(Tables.host_volume_claims, claim_id, claim)


def _uuid(text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))


def drop_claims(edit: Edit, key: JobKey) -> None:
    """Delete the claims of a deleted job."""
    for claim in edit.tx.base.host_volume_claims.where("job", key):
        edit.tx.delete(Tables.host_volume_claims, claim.id)
