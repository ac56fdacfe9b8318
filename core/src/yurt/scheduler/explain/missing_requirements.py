"""Named requirements that nodes lack: drivers, networks, host networks, host volumes, devices.

Placing only asks whether a node has all of a kind. Explanations name each missing one with the nodes that lack it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from yurt.scheduler.explain.blockers import NodeBlockers, NodeProblem
from yurt.scheduler.feasibility.masks import OF_EVERY_NODE, BoolArray, host_networks
from yurt.structs.explain.explanation import ProblemKind
from yurt.structs.node import NETWORK_PROBLEM, DriverInfo, Node

IS_THERE = "an allocation of the job is there already (distinct_hosts)"


def split_by_requirement(blockers: NodeBlockers) -> list[NodeProblem]:
    """The problems of a group, with one problem per missing requirement where several share one.

    A row has one of these for every thing that it lacks, so that it counts as blocked by one thing alone only where it
    lacks nothing else.
    """
    by_requirement: dict[tuple[ProblemKind, str], NodeProblem] = {}
    for problem in blockers.problems:
        for part in _parts(blockers, problem):
            earlier = by_requirement.get((part.kind, part.text))
            by_requirement[part.kind, part.text] = (
                part if earlier is None else earlier._replace(mask=earlier.mask | part.mask)
            )
    return list(by_requirement.values())


def _parts(blockers: NodeBlockers, problem: NodeProblem) -> Iterator[NodeProblem]:
    """The missing requirements of a problem, each with its rows; the problem itself if it names none."""
    texts_of = _TEXTS.get(problem.kind)
    if texts_of is None:
        yield problem._replace(text=_plain(problem))
        return
    masks: dict[str, BoolArray] = {}
    for row in np.flatnonzero(problem.mask).tolist():
        for text in texts_of(blockers, row):
            masks.setdefault(text, np.zeros(len(problem.mask), np.bool_))[row] = True
    for text, mask in masks.items():
        yield NodeProblem(problem.kind, text, mask)


def _plain(problem: NodeProblem) -> str:
    """The text of a problem for people, if that of the API's metrics is cryptic."""
    if problem.kind == "distinct_hosts":
        return IS_THERE
    return problem.text.removeprefix("network: ") if problem.kind == "port" else problem.text


def _drivers(blockers: NodeBlockers, row: int) -> Iterator[str]:
    for name, info in missing_drivers(blockers, blockers.view.node(row)):
        yield f'driver "{name}" {"not healthy" if info.detected else "missing"}'


def _networks(blockers: NodeBlockers, row: int) -> Iterator[str]:
    for mode, _ in missing_networks(blockers, blockers.view.node(row)):
        yield f'network "{mode}" missing'


def _host_networks(blockers: NodeBlockers, row: int) -> Iterator[str]:
    for name in missing_host_networks(blockers, blockers.view.node(row)):
        yield f'host network "{name}" missing'


def _volumes(blockers: NodeBlockers, row: int) -> Iterator[str]:
    for name, is_there in missing_volumes(blockers, blockers.view.node(row)):
        yield f'host volume "{name}" {"read-only" if is_there else "missing"}'


def _devices(blockers: NodeBlockers, row: int) -> Iterator[str]:
    for short in blockers.in_use[row].devices:
        yield f'device "{short.request.name}"{short.reason}'


_TEXTS: dict[str, Callable[[NodeBlockers, int], Iterable[str]]] = {
    "driver": _drivers, "network": _networks, "host_network": _host_networks, "volume": _volumes, "device": _devices,
}  # fmt: skip


_PLUGIN_REASON = re.compile(r"plugin\.[^.]+\.reason")
"""The attribute in which an agent says why it did not load a plugin."""


def missing_drivers(blockers: NodeBlockers, node: Node) -> Iterator[tuple[str, DriverInfo]]:
    """The group's drivers that are missing or unhealthy on a node."""
    for driver in sorted({task.driver for task in blockers.placer.group.tasks}):
        info = node.drivers.get(driver) or DriverInfo(health_description=plugin_problem(driver, node))
        if not (info.detected and info.healthy):
            yield driver, info


def plugin_problem(driver: str, node: Node) -> str:
    """Why the agent of a node did not load a driver that is installed there; "" for a driver that is not."""
    prefix = f"driver {driver}: "
    reasons = [text for name, text in node.attributes.items() if _PLUGIN_REASON.fullmatch(name)]
    for part in (part for text in reasons for part in text.split("; ")):
        if part.startswith(prefix):
            return part.removeprefix(prefix)
    return node.attributes.get(f"plugin.{driver}.reason", "")


def missing_networks(blockers: NodeBlockers, node: Node) -> Iterator[tuple[str, str]]:
    """The group's network modes that are missing on a node, with the reason if reported."""
    offered = {network.mode for network in node.node_resources.networks}
    for mode in sorted({network.mode for network in blockers.placer.group.networks} - OF_EVERY_NODE - offered):
        reason = node.attributes.get(f"{NETWORK_PROBLEM}{mode}") or node.attributes.get(f"{NETWORK_PROBLEM}all", "")
        yield mode, reason


def missing_host_networks(blockers: NodeBlockers, node: Node) -> list[str]:
    """The host networks of the group's ports that are missing on a node."""
    return sorted(host_networks(blockers.placer.group) - node.host_networks.keys())


def missing_volumes(blockers: NodeBlockers, node: Node) -> Iterator[tuple[str, bool]]:
    """The host volumes that a node lacks or offers in another mode than requested."""
    for request in blockers.placer.group.volumes.values():
        if request.type != "host" or request.per_alloc:
            continue
        volume = node.host_volumes.get(request.source)
        if volume is None or (volume.read_only and not request.read_only):
            yield request.source, volume is not None
