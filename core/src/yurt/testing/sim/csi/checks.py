"""Invariants of CSI volumes: their writers, their claims, and their mounts.

C2 an allocation that writes to a volume is the only one where one of them must be, when it is placed (other jobs) and
when the volume is mounted (all allocations; only where the servers take the other one, or this one, for lost, two may
have it). C3 it is placed on a registered volume, and its tasks start with the volume mounted. D9 a registered volume
goes by a request alone, and by none while it is used, and it is not unmounted below a running task. At rest: a volume
is mounted for the allocations that use it and for no others, its claims are those of these allocations, and no
allocation waits for a volume that nobody has.
Each function gives the problem, or "" when there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from yurt.state import Change, Changes, Snapshot
from yurt.state.claims import claims
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AnyCommand, DeleteVolumes
from yurt.structs.predicates import alloc_index, is_client_terminal, is_server_terminal
from yurt.structs.volumes.csi import MULTI_WRITER, READERS_ONLY, CSIVolume
from yurt.testing.sim.csi.plugin import CsiNode, CsiNodes, Mount
from yurt.testing.sim.driver import SimHost, SimTaskRun


class CsiUse(NamedTuple):
    """A volume that an allocation uses, until its client reports that it has ended."""

    alloc: Allocation
    volume_id: str
    access_mode: str
    is_writer: bool


def uses_of(alloc: Allocation) -> Iterator[CsiUse]:
    """The CSI volumes that an allocation uses."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    if group is None or is_client_terminal(alloc) or not group.volumes:
        return
    for request in group.volumes.values():
        if request.type == "csi":
            source = f"{request.source}[{max(alloc_index(alloc.name), 0)}]" if request.per_alloc else request.source
            is_writer = not request.read_only and request.access_mode not in READERS_ONLY
            yield CsiUse(alloc, source, request.access_mode, is_writer)


def _users(state: Snapshot, namespace: str, volume_id: str) -> list[CsiUse]:
    found = (use for alloc in state.allocs.values() if alloc.namespace == namespace for use in uses_of(alloc))
    return [use for use in found if use.volume_id == volume_id]


def _is_excluded(one: CsiUse | Mount, other: CsiUse | Mount) -> bool:
    """Whether two uses exclude each other: both write, and one of them as the only writer."""
    return one.is_writer and other.is_writer and {one.access_mode, other.access_mode} != {MULTI_WRITER}


def problem_of_csi(before: Snapshot, state: Snapshot, command: AnyCommand, changes: Changes) -> str:
    """The first violation of a command's changes."""
    for change in changes:
        problem = ""
        if change.table == "allocs" and change.before is None:
            problem = _of_placement(before, state, change.after)
        elif change.table == "csi_volumes" and change.after is None:
            problem = _of_deletion(before, state, command, change)
        if problem:
            return problem
    return ""


def _of_placement(before: Snapshot, state: Snapshot, alloc: Allocation) -> str:
    for use in uses_of(alloc):
        where = f"{alloc.id[:8]} of {alloc.job_id} is placed at index {state.index}"
        if (alloc.namespace, use.volume_id) not in before.csi_volumes:
            return f"C3 {where}, and its volume {use.volume_id} is not registered"
        others = [
            each.alloc.id[:8]
            for each in _users(state, alloc.namespace, use.volume_id)
            if each.alloc.job_id != alloc.job_id and _is_excluded(use, each)
        ]
        if others:
            return f"C2 {where} and writes to CSI volume {use.volume_id}, as {others} do"
    return ""


def _of_deletion(before: Snapshot, state: Snapshot, command: AnyCommand, change: Change) -> str:
    volume: CSIVolume = change.before
    namespace, volume_id = volume.namespace, volume.id
    if not isinstance(command, DeleteVolumes):
        return f"D9 CSI volume {volume_id} is gone at index {state.index}, and nobody asked for it"
    users = [use.alloc.id[:8] for use in _users(before, namespace, volume_id)]
    return f"D9 CSI volume {volume_id} is deleted at index {state.index}, and {users} use it" if users else ""


# Nodes.


def second_publication(state: Snapshot, nodes: CsiNodes, node: CsiNode, mount: Mount) -> str:
    """C2: no volume is mounted for two writers that exclude each other, also while the other one is being stopped."""
    for other_node in nodes.nodes:
        for other in other_node.mounts.values():
            if other.volume_id != mount.volume_id or other.alloc_id == mount.alloc_id:
                continue
            if _is_excluded(mount, other) and not any(_is_lost(state, each.alloc_id) for each in (mount, other)):
                return (
                    f"C2 {mount.volume_id} is mounted on {node.name} to be written by {mount.alloc_id[:8]}, and on "
                    f"{other_node.name} by {other.alloc_id[:8]}"
                )
    return ""


def _is_lost(state: Snapshot, alloc_id: str) -> bool:
    """Whether the servers gave an allocation up, which its client cannot know yet; the collector may have taken it."""
    alloc = state.allocs.get(alloc_id)
    return alloc is None or alloc.client_status == status.CLIENT_LOST


def without_volume(host: SimHost, run: SimTaskRun) -> str:
    """C3: the volumes of a task are mounted when it starts."""
    mounts = host.csi.mounts if host.csi is not None else {}
    missing = [path for path in run.mounted if _is_target(path) and path not in mounts]
    return f"C3 {run.alloc_id[:8]} of {run.job_id} starts, and a CSI volume of it is not mounted" if missing else ""


def _is_target(path: str) -> bool:
    """Whether a path is where clients mount a CSI volume for an allocation."""
    return "/csi/p/" in path and "/allocs/" in path


def unmounted_below(host: SimHost, path: str) -> str:
    """D9: no running task has a volume mounted that is unmounted now."""
    users = [run.alloc_id[:8] for run in host.live() if path in run.mounted]
    return f"D9 a CSI volume is unmounted on {host.name}, and {users} run with it" if users else ""


def problems_at_rest(state: Snapshot, nodes: CsiNodes, node_ids: Iterable[str]) -> list[str]:
    """Mounts and claims that remain in a cluster at rest; `node_ids` are in the order of the nodes."""
    found = [
        f"{mount.volume_id} is mounted on {node.name} for {mount.alloc_id[:8]}, which has ended"
        for node, node_id in zip(nodes.nodes, node_ids, strict=True)
        for mount in node.mounts.values()
        if not _is_there(state.allocs.get(mount.alloc_id), node_id)
    ]
    for node in nodes.nodes:
        mounted = {each.volume_id for each in node.mounts.values()}
        left = sorted({*node.staged.values()} - mounted)
        found += [f"{volume_id} is staged on {node.name} for no allocation" for volume_id in left]
    return found + _claims_at_rest(state)


def _is_there(alloc: Allocation | None, node_id: str) -> bool:
    return alloc is not None and alloc.node_id == node_id and not is_client_terminal(alloc)


def _claims_at_rest(state: Snapshot) -> list[str]:
    found: list[str] = []
    for namespace, volume_id in sorted(state.csi_volumes.keys()):
        users = _users(state, namespace, volume_id)
        known = sorted(each.alloc_id for each in claims(state, namespace).get(volume_id, []))
        if known != sorted(use.alloc.id for use in users):
            found.append(f"{volume_id} is used by {len(users)} allocations, and has {len(known)} claims")
        found += [
            f"{use.alloc.id[:8]} of {use.alloc.job_id} waits for {volume_id}, which nobody else uses"
            for use in users
            if len(users) == 1
            and use.alloc.client_status == status.CLIENT_PENDING
            and not is_server_terminal(use.alloc)
        ]
    return found
