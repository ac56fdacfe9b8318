"""Warnings about devices that no node has, or that no node shares as requested, with what there is instead."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Final

from yurt.scheduler.devices.bookings import modes_of
from yurt.scheduler.devices.offers import is_named
from yurt.state import Snapshot
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import NodeDeviceResource
from yurt.structs.resources import RequestedDevice

KINDS_SHOWN: Final = 3
MODES: Final = ("mps", "slice")
"""Ways of sharing that a device offers by its attribute; MIG instances are devices of their own."""


def device_doubts(state: Snapshot, job: Job, *, reads_nodes: bool) -> Iterator[str]:
    """A warning for each request that no node could ever meet; none without nodes.

    Only callers who may read nodes learn what these have. Of alternatives one that a node has is enough.
    """
    if not len(state.nodes):
        return
    doubt = functools.cache(lambda name, share: _doubt(state, name, share, reads_nodes))
    for group in job.task_groups:
        for task, request in _requests(group):
            texts = [doubt(each.name, each.share) for each in request.first_available or (request,)]
            if all(texts):
                yield f'Group "{group.name}" has warnings: Task "{task}" has warnings: {texts[0]}'


def _requests(group: TaskGroup) -> Iterator[tuple[str, RequestedDevice]]:
    return ((task.name, request) for task in group.tasks for request in task.resources.devices)


def _doubt(state: Snapshot, name: str, share: str, reads_nodes: bool) -> str:
    """Why no node has such a device; "" where one has."""
    if not any(is_named(kind, name) for kind in _kinds(state)):
        there = sorted({f"{kind.vendor}/{kind.type}/{kind.name}" for kind in _kinds(state)})
        return f'device "{name[:64]}" is on no node{_instead("nodes have", there) if reads_nodes else ""}'
    if share not in MODES:
        return ""
    modes: set[str] = set()
    for kind in _kinds(state):
        if is_named(kind, name):
            modes.update(*(modes_of(kind, instance) for instance in kind.instances))
            if share in modes:
                return ""
    instead = _instead("nodes share it by", sorted(modes & set(MODES))) if modes else "; nodes give it only as a whole"
    return f'device "{name[:64]}" is shared by {share} on no node{instead if reads_nodes else ""}'


def _kinds(state: Snapshot) -> Iterable[NodeDeviceResource]:
    return (kind for node in state.nodes.values() for kind in node.node_resources.devices)


def _instead(words: str, names: list[str]) -> str:
    if not names:
        return "; no node has any device: `yurt plugin list` on a node says why"
    more = f" and {len(names) - KINDS_SHOWN} more" if len(names) > KINDS_SHOWN else ""
    return f"; {words} {', '.join(names[:KINDS_SHOWN])}{more}"
