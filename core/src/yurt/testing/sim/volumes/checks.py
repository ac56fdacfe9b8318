"""Invariants of dynamic host volumes: their writers, and the use of deleted ones.

C2 a new allocation that writes to a volume is the only writer that stays where one of them wants to be its single
writer, C3 its volume is ready and of its namespace, D9 a deleted volume has no user, and a sticky claim has its job and
its volume. On hosts: no task starts to write to a volume while another one writes to it, where one is a single
writer, and what a wanted task has mounted is there. Each function gives the problem, or "" when there is none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from yurt.state import Change, Changes, Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.predicates import alloc_index, is_client_terminal, is_server_terminal
from yurt.structs.volumes.host import READER_ONLY, READY, SINGLE_WRITER, HostVolume
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing.sim.driver import SimHost, SimTaskRun

CLAIM_TABLES: Final = frozenset({"host_volume_claims", "host_volumes", "jobs"})


class Use(NamedTuple):
    """A volume that an allocation uses."""

    volume: HostVolume
    request: VolumeRequest

    @property
    def is_alone(self) -> bool:
        """Whether it must be the only writer: it asks for that, or the volume lets it write in no other way."""
        writing = {each.access_mode for each in self.volume.requested_capabilities} - {READER_ONLY}
        wanted = {self.request.access_mode} if self.request.access_mode else writing
        return not self.request.read_only and wanted == {SINGLE_WRITER}


def uses_of(state: Snapshot, alloc: Allocation) -> Iterator[Use]:
    """The dynamic host volumes that an allocation uses on its node."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    node = state.nodes.get(alloc.node_id)
    for request in group.volumes.values() if group is not None and node is not None else ():
        index = f"[{max(alloc_index(alloc.name), 0)}]" if request.per_alloc else ""
        offered = node.host_volumes.get(request.source + index) if node is not None else None
        volume = state.host_volumes.get(offered.id) if request.type == "host" and offered is not None else None
        if volume is not None:
            yield Use(volume, request)


def problem_of_volumes(before: Snapshot, state: Snapshot, changes: Changes) -> str:
    """The first violation of a command's changes."""
    if not (state.host_volumes or before.host_volumes):
        return ""
    placed = [each.after for each in changes if each.table == "allocs" and each.before is None]
    gone = [each for each in changes if each.table == "host_volumes" and each.after is None]
    has_claims = any(each.table in CLAIM_TABLES for each in changes)
    return (
        _first(_of_placement(before, state, alloc) for alloc in placed)
        or _first(_of_deletion(before, state, change) for change in gone)
        or (_of_claims(state) if has_claims else "")
    )


def _first(problems: Iterable[str]) -> str:
    return next(filter(None, problems), "")


def _of_placement(before: Snapshot, state: Snapshot, alloc: Allocation) -> str:
    where = f"{alloc.id[:8]} of {alloc.job_id} is placed at index {state.index}"
    for volume, request in uses_of(before, alloc):
        if volume.state != READY or volume.namespace != alloc.namespace:
            return f"C3 {where} on {volume.name}, which is {volume.state} in namespace {volume.namespace}"
        if request.read_only:
            continue
        writers = list(_writers(state, volume))
        if len(writers) > 1 and any(use.is_alone for _, use in writers):
            others = [each.id[:8] for each, _ in writers if each.id != alloc.id]
            return f"C2 {where} and writes to {volume.name}, as {others} do"
    return ""


def _writers(state: Snapshot, volume: HostVolume) -> Iterator[tuple[Allocation, Use]]:
    """The allocations that write to a volume and are not about to end."""
    for each in state.allocs_of_node(volume.node_id):
        if _is_ending(each):
            continue
        for use in uses_of(state, each):
            if use.volume.id == volume.id and not use.request.read_only:
                yield each, use


def _of_deletion(before: Snapshot, state: Snapshot, change: Change) -> str:
    users = [
        each.id[:8]
        for each in before.allocs_of_node(change.before.node_id)
        if not is_client_terminal(each) and any(use.volume.id == change.key for use in uses_of(before, each))
    ]
    return f"D9 volume {change.before.name} is deleted at index {state.index}, and {users} use it" if users else ""


def _of_claims(state: Snapshot) -> str:
    for claim in state.host_volume_claims.values():
        if claim.volume_id not in state.host_volumes:
            return f"D9 {claim.alloc_name} claims {claim.volume_name}, which is deleted, at index {state.index}"
        if (claim.namespace, claim.job_id) not in state.jobs:
            return f"D9 {claim.alloc_name} claims {claim.volume_name}, and its job is gone, at index {state.index}"
    return ""


# Hosts.


def second_writer(state: Snapshot, host: SimHost, run: SimTaskRun) -> str:
    """C2: a task that has started writes to no volume that another allocation's task on the host writes to, where one
    of them is a single writer; also not while the other one is being stopped."""
    alloc = state.allocs.get(run.alloc_id)
    if alloc is None or _is_ending(alloc):
        return ""
    for other in host.live():
        shared = {path for path in run.written if path in other.written} if other.alloc_id != run.alloc_id else ()
        known = state.allocs.get(other.alloc_id) if shared else None
        if known is None:
            continue
        uses = [use for each in (alloc, known) for use in uses_of(state, each)]
        if any(use.is_alone and use.volume.host_path in shared for use in uses):
            return f"C2 {run.alloc_id[:8]} and {other.alloc_id[:8]} write to one volume on {host.name}"
    return ""


def _is_ending(alloc: Allocation) -> bool:
    return is_client_terminal(alloc) or is_server_terminal(alloc)


def missing_mount(state: Snapshot, hosts: Iterable[SimHost], exists: Callable[[str], bool] = os.path.isdir) -> str:
    """D9: the folders of volumes that a running task of a wanted allocation has mounted are there."""
    for host in hosts:
        for run in host.live():
            alloc = state.allocs.get(run.alloc_id) if run.mounted else None
            if alloc is None or _is_ending(alloc):
                continue
            paths = [use.volume.host_path for use in uses_of(state, alloc)]
            gone = [path for path in paths if path in run.mounted and not exists(path)]
            if gone:
                return f"D9 {run.alloc_id[:8]} of {run.job_id} runs on {host.name}, and {gone} is deleted"
    return ""
