"""Placement metrics in the shape of the API: evaluated nodes, refusals and scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from yurt.sdk.value import OWN, Duration, Value, no_entries
from yurt.structs.resources import Resources


class NodeScoreMeta(Value):
    """The scores of one node, by scorer."""

    node_id: str = ""
    scores: Mapping[str, float] = no_entries()
    norm_score: float = 0.0


class AllocationMetric(Value):
    """The numbers of nodes evaluated, filtered and exhausted for one placement."""

    nodes_evaluated: int = 0
    nodes_filtered: int = 0
    nodes_in_pool: int = 0
    node_pool: str = ""
    nodes_available: Mapping[str, int] = no_entries()
    class_filtered: Mapping[str, int] = no_entries()
    constraint_filtered: Mapping[str, int] = no_entries()
    nodes_exhausted: int = 0
    class_exhausted: Mapping[str, int] = no_entries()
    dimension_exhausted: Mapping[str, int] = no_entries()
    quota_exhausted: tuple[str, ...] = ()
    gang: Annotated[str, OWN] = ""
    """The number of members of an unplaced gang for which capacity was found."""
    resources_exhausted: Mapping[str, Resources] = no_entries()
    scores: Mapping[str, float] = no_entries()
    allocation_time: Duration = Duration(0)
    coalesced_failures: int = 0
    score_meta_data: tuple[NodeScoreMeta, ...] = ()
