"""A server's counters of plans; other metrics are defined where they are counted."""

from __future__ import annotations

from yurt.runtime.metrics import Metrics
from yurt.structs.plan import Plan, PlanResult


def observe_plan(metrics: Metrics, plan: Plan, result: PlanResult, *, size: int, seconds: float) -> None:
    """Count a checked plan, its placements and its rejections; `size` is that of the accepted part."""
    metrics.time("plan.evaluate", seconds)
    metrics.count("plan.submitted")
    metrics.count("plan.placements", len(plan.placements))
    rejected = len(plan.placements) - len(result.accepted.placements)
    if rejected or not result.is_full:
        metrics.count("plan.partial")
        metrics.count("plan.rejected_placements", rejected)
        for node_id in result.rejected_nodes:
            metrics.count("plan.node_rejected", labels=(("node_id", node_id),))
    metrics.count("plan.changes", size)
