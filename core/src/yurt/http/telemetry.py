"""The settings of the `telemetry` block, and the filter that every output of metrics applies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from yurt.runtime.metrics import CLIENT_PREFIX, Count, Duration, Gauge
from yurt.sdk.value import Value

M = TypeVar("M", Gauge, Count, Duration)

TASKS = f"{CLIENT_PREFIX}allocs."
HOOKS = (f"{CLIENT_PREFIX}alloc_hook.", f"{CLIENT_PREFIX}task_hook.")


class TelemetrySettings(Value):
    """What an agent publishes."""

    prometheus: bool = False
    """`?format=prometheus` answers."""
    host: str = ""
    """The label `host` of every metric; "" for none."""
    publishes_allocations: bool = False
    publishes_node: bool = False
    includes_alloc_meta: bool = False
    meta_keys: tuple[str, ...] = ()
    """The keys of jobs' metadata that become labels; empty means all."""
    prefixes: tuple[tuple[str, bool], ...] = ()
    """Prefixes of names and whether these are published; the longest that fits decides."""
    is_published: bool = True
    """Names that no prefix fits."""
    has_dispatched_summaries: bool = True
    """Summaries of jobs that were dispatched."""
    has_quota_utilization: bool = True
    has_hook_metrics: bool = True

    def lets_through(self, name: str) -> bool:
        """Whether a name is published."""
        if not self.has_hook_metrics and name.startswith(HOOKS):
            return False
        if not self.publishes_allocations and name.startswith(TASKS):
            return False
        fitting = [(len(prefix), allowed) for prefix, allowed in self.prefixes if name.startswith(prefix)]
        return max(fitting)[1] if fitting else self.is_published

    def published(self, rows: Iterable[M]) -> Iterator[M]:
        """The rows that are published, with the label of the host."""
        cached: dict[str, bool] = {}
        for row in rows:
            passes = cached.get(row.name)
            if passes is None:
                passes = cached[row.name] = self.lets_through(row.name)
            if passes:
                yield row._replace(labels={**row.labels, "host": self.host}) if self.host else row

    def meta_labels(self, meta: Mapping[str, str]) -> dict[str, str]:
        """Labels of a job's metadata."""
        if not self.includes_alloc_meta:
            return {}
        keys = [key for key in meta if not self.meta_keys or key in self.meta_keys]
        return {_label(key): meta[key] for key in sorted(keys)}


def _label(key: str) -> str:
    """A key of metadata as the name of a label."""
    label = "".join(char if char.isalnum() and char.isascii() else "_" for char in key)
    # Prometheus refuses a whole answer for one label that begins with a digit.
    return label if label and not label[0].isdigit() else f"_{label}"
