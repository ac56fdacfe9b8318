"""Metrics of a server as plain numbers; `/v1/metrics` renders them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from yurt.broker import size_of
from yurt.structs.plan import Plan, PlanResult


@dataclass(slots=True)
class Timing:
    """Count, total and maximum of durations, in seconds."""

    count: int = 0
    total_s: float = 0.0
    max_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self.count += 1
        self.total_s += seconds
        self.max_s = max(self.max_s, seconds)


@dataclass(slots=True)
class Metrics:
    """Metrics since the server's start; names are Nomad's without the `nomad.` prefix where it has one."""

    counters: Counter[str] = field(default_factory=Counter)
    timings: dict[str, Timing] = field(default_factory=dict)

    def count(self, name: str, by: int = 1) -> None:
        """Increase a counter."""
        self.counters[name] += by

    def time(self, name: str, seconds: float) -> None:
        """Record one duration."""
        self.timings.setdefault(name, Timing()).add(seconds)

    def observe_plan(self, plan: Plan, result: PlanResult, seconds: float) -> None:
        """Count a checked plan, its placements and its rejections."""
        self.time("plan.evaluate", seconds)
        self.count("plan.submitted")
        self.count("plan.placements", len(plan.placements))
        rejected = len(plan.placements) - len(result.accepted.placements)
        if rejected or not result.is_full:
            self.count("plan.partial")
            self.count("plan.rejected_placements", rejected)
            self.count("plan.node_rejected", len(result.rejected_nodes))
        self.count("plan.changes", size_of(result.accepted))
