"""Which facts an explanation discloses to its caller.

A caller who may read a job need not be allowed to read nodes. Such a caller learns how many nodes refuse the job, and
why, and the smallest change of the job, without names or metadata of single nodes. The name of an allocation's own node
is part of the allocation.

Guesses are answered: a constraint can pin a node, so the counts tell whether some node has a guessed value, and the
change tells what such a node has free. To hide them would hide why a job waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from yurt.scheduler.explain.edits import EQUIPMENT, text_of, volume_text
from yurt.sdk.value import replace
from yurt.structs.explain.explanation import GroupExplanation, NodeScore, SmallestChange, SuggestedEdit

NODES_HIDDEN: Final = "nodes are not named: that needs node:read"


def every_namespace(_: str) -> bool:
    """The caller may read jobs in all namespaces."""
    return True


class Disclosure(NamedTuple):
    """The rights of the caller, to read nodes and to read jobs in a namespace, and the node that the caller names."""

    reads_nodes: bool = True
    reads_jobs_in: Callable[[str], bool] = every_namespace
    node_id: str = ""
    """The node whose shortages for one more allocation of each group are disclosed; "" for none."""


ALL: Final = Disclosure()


def without_nodes(group: GroupExplanation, own_node_id: str = "") -> GroupExplanation:
    """The explanation without facts about single nodes; `own_node_id` is the node of the explained allocation."""
    change = group.smallest_change
    is_shortened = bool(group.near_misses or (change is not None and change.node_id))
    return replace(
        group,
        notes=(*group.notes, NODES_HIDDEN) if is_shortened else group.notes,
        near_misses=(),
        smallest_change=None if change is None else _without_node(change),
        scores=without_names(group.scores, own_node_id),
        there=None,
    )


def without_names(scores: Iterable[NodeScore], own_node_id: str = "") -> tuple[NodeScore, ...]:
    """Scores without names of nodes other than the allocation's own; ids stay, as in the metrics of a placement."""
    return tuple(score if score.node_id == own_node_id else replace(score, node_name="") for score in scores)


def _without_node(change: SmallestChange) -> SmallestChange:
    """The change with its edits of the job; its text names edits of nodes without the node."""
    edits = tuple(_edits_without_nodes(change))
    of_job = tuple(edit for edit in edits if edit.kind not in _KINDS_OF_NODES)
    return replace(change, text=text_of(edits), node_id="", node_name="", edits=of_job)


def _edits_without_nodes(change: SmallestChange) -> Iterator[SuggestedEdit]:
    for edit in change.edits:
        if edit.kind not in _KINDS_OF_NODES:
            yield edit
            continue
        is_there = edit.text == volume_text(edit.name, f"node {change.node_name}", is_there=True)
        of_volume = volume_text(edit.name, "a node", is_there=is_there)
        text = of_volume if edit.kind == "volume" else _OF_NODES[edit.kind].format(edit.name)
        yield replace(edit, text=text, node_id="")


_OF_NODES: Final = {
    "driver": 'make driver "{}" available on a node',
    "network": 'make the network "{}" available on a node',
    "eligibility": "make a node eligible",
    "datacenter": "add another datacenter",
}
"""The texts of edits that name a node or its datacenter, without that; `volume_text` makes those of volumes."""
_KINDS_OF_NODES: Final = _OF_NODES.keys() | {"volume"}
assert _KINDS_OF_NODES >= EQUIPMENT
