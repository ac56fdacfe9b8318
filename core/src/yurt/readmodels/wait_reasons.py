"""Why allocations of a job wait for capacity, from its blocked evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from yurt.state.store import Snapshot
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.status import EVAL_BLOCKED

REASONS_MAX = 8


class WaitingAllocs(NamedTuple):
    """The begin of a job's wait in Unix nanoseconds, and its reasons."""

    since: int = 0
    reasons: tuple[str, ...] = ()
    """The most frequent first: `4 nodes: missing drivers`, `quota: gpu`."""


def waiting_of(state: Snapshot, key: tuple[str, str]) -> WaitingAllocs:
    """The reasons in the newest blocked evaluation of a job."""
    live = (row for row in state.evals.where("live", key) if row.status == EVAL_BLOCKED)
    newest = max(live, key=lambda row: row.create_index, default=None)
    if newest is None:
        return WaitingAllocs()
    return WaitingAllocs(newest.create_time, blockers(newest)[:REASONS_MAX])


def blockers(evaluation: Evaluation) -> tuple[str, ...]:
    """The problems of the groups that found no capacity."""
    nodes, others = Counter[str](), dict[str, None]()
    for metric in evaluation.failed_tg_allocs.values():
        for text, number in _counted(metric):
            nodes[text] = max(nodes[text], number)
        others |= dict.fromkeys(_uncounted(metric))
    if evaluation.quota_limit_reached:
        others[f"quota {evaluation.quota_limit_reached}"] = None
    counted = (f"{text} ({number} {'node' if number == 1 else 'nodes'})" for text, number in nodes.most_common())
    return (*others, *counted)


def _counted(metric: AllocationMetric) -> Iterable[tuple[str, int]]:
    yield from metric.constraint_filtered.items()
    for text, number in metric.dimension_exhausted.items():
        yield f"not enough {text}", number


def _uncounted(metric: AllocationMetric) -> Iterable[str]:
    if not metric.nodes_evaluated:
        yield "no nodes were eligible"
    for text in metric.quota_exhausted:
        yield f"quota: {text}"
    if metric.gang:
        yield metric.gang
