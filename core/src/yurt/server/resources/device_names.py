"""Warnings about devices that no node has, or that no node shares as requested, with what there is instead."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from yurt.scheduler.devices.bookings import modes_of
from yurt.scheduler.devices.offers import is_named
from yurt.state import Snapshot
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import NodeDeviceResource
from yurt.structs.resources import RequestedDevice

KINDS_SHOWN: Final = 3
DOUBTS_MAX: Final = 20
"""The warnings of one job; more would tell nothing new."""
NAME_SHOWN: Final = 64
"""Characters of a name."""
MODES: Final = frozenset({"mps", "slice"})
"""Ways of sharing that a device offers by its attribute; MIG instances are devices of their own."""


class _Kind(NamedTuple):
    """A kind of devices that some node has."""

    example: NodeDeviceResource
    modes: frozenset[str]
    """How some node shares it."""


def device_doubts(state: Snapshot, job: Job, *, reads_nodes: bool) -> Iterator[str]:
    """A warning for each request that no node could ever meet, DOUBTS_MAX at most; none without nodes.

    Only callers who may read nodes learn what these have. Of alternatives one that a node has is enough.
    """
    doubts = _doubts(state, job, reads_nodes)
    yield from islice(doubts, DOUBTS_MAX)
    if next(doubts, None) is not None:
        yield f"more devices are on no node; the first {DOUBTS_MAX} are named"


def _doubts(state: Snapshot, job: Job, reads_nodes: bool) -> Iterator[str]:
    if not len(state.nodes):
        return
    kinds = _kinds(state)
    doubt = functools.cache(lambda name, share: _doubt(kinds, name, share, reads_nodes))
    for group in job.task_groups:
        for task, request in _requests(group):
            texts = [doubt(each.name, each.share) for each in request.first_available or (request,)]
            if all(texts):
                yield f'Group "{group.name}" has warnings: Task "{task}" has warnings: {texts[0]}'


def _requests(group: TaskGroup) -> Iterator[tuple[str, RequestedDevice]]:
    return ((task.name, request) for task in group.tasks for request in task.resources.devices)


def _doubt(kinds: Mapping[str, _Kind], name: str, share: str, reads_nodes: bool) -> str:
    """Why no node has such a device; "" where one has."""
    # Escaped, since a name may hold what a terminal obeys; in the quotes by which the command line finds its place.
    subject = f"device {json.dumps(name[:NAME_SHOWN])}"
    offered = [kind.modes for kind in kinds.values() if is_named(kind.example, name)]
    if not offered:
        return f"{subject} is on no node{_instead('nodes have', sorted(kinds)) if reads_nodes else ''}"
    modes = frozenset[str]().union(*offered)
    if share not in MODES or share in modes:
        return ""
    instead = _instead("nodes share it by", sorted(modes)) if modes else "; nodes give it only as a whole"
    return f"{subject} is shared by {share} on no node{instead if reads_nodes else ''}"


def _kinds(state: Snapshot) -> Mapping[str, _Kind]:
    """The kinds of devices by `vendor/type/name`; read once for a state of the nodes."""
    memo, key = state.columns.nodes.memo, "kinds of devices"
    by_name: dict[str, _Kind] | None = memo.get(key)
    if by_name is None:
        by_name = {}
        for device in (device for node in state.nodes.values() for device in node.node_resources.devices):
            name = f"{device.vendor}/{device.type}/{device.name}"
            kind = by_name.get(name)
            if kind is None or kind.modes != MODES:
                modes = MODES & _modes(device)
                by_name[name] = _Kind(device, modes if kind is None else modes | kind.modes)
        memo[key] = by_name
    return by_name


def _modes(device: NodeDeviceResource) -> frozenset[str]:
    return frozenset[str]().union(*(modes_of(device, instance) for instance in device.instances))


def _instead(words: str, names: list[str]) -> str:
    if not names:
        return "; no node has any device: `yurt plugin list` on a node says why"
    more = f" and {len(names) - KINDS_SHOWN} more" if len(names) > KINDS_SHOWN else ""
    return f"; {words} {', '.join(names[:KINDS_SHOWN])}{more}"
