"""Figures of the agent in the text format that Prometheus reads (version 0.0.4), under the names of Nomad's exporter.

prometheus-client cannot write these: it adds `_total` to the name of every counter, which Nomad's do not have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from typing import Final

from yurt.api.pieces import Pieces
from yurt.http.agent_routes.metrics_snapshot import MetricsSnapshot
from yurt.runtime.metrics import Duration

WRITTEN_TOGETHER: Final = 500
"""Lines joined at once: joining all of them would keep the GIL for too long."""
QUANTILES: Final = (0.5, 0.9, 0.99)
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def text_pieces(figures: MetricsSnapshot) -> list[bytes]:
    """The figures as Prometheus reads them, family after family; of many jobs a second's work, for a thread."""
    families: dict[str, _JoinedLines] = {}
    for row in figures.gauges():
        family = families.get(row.name)
        if family is None:
            family = families[row.name] = _JoinedLines()
            family.begin(row.name, "gauge")
        family.sample(_flat(row.name), row.labels, row.value)
    whole = Pieces()
    for family in families.values():
        whole.add(*family.taken())
    text = _JoinedLines()
    for name, counts in groupby(sorted(figures.counters(), key=_name), key=_name):
        text.begin(name, "counter")
        for count in counts:
            text.sample(_flat(name), count.labels, count.value)
    for name, durations in groupby(sorted(figures.timings(), key=_name), key=_name):
        text.begin(name, "summary")
        for duration in durations:
            _write(text, duration)
    whole.add(*text.taken())
    return whole.taken()


def _name(row: tuple[str, object, object]) -> str:
    return row[0]


def _write(text: _JoinedLines, row: Duration) -> None:
    """A summary, in milliseconds as Nomad's are: quantiles of the last durations, sum and count of all."""
    name, timing = _flat(row.name), row.timing
    for share in QUANTILES:
        text.sample(name, {**row.labels, "quantile": f"{share:g}"}, timing.quantile(share) * row.scale)
    text.sample(f"{name}_sum", row.labels, timing.total_s * row.scale)
    text.sample(f"{name}_count", row.labels, timing.count)


class _JoinedLines:
    """Lines, joined some at a time."""

    def __init__(self) -> None:
        self._pieces = Pieces()
        self._lines: list[str] = []

    def begin(self, name: str, kind: str) -> None:
        """The head of a family."""
        self._add(f"# HELP {_flat(name)} {name}\n# TYPE {_flat(name)} {kind}\n")

    def sample(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """One value."""
        shown = ",".join([f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items()])
        self._add(f"{name}{{{shown}}} {_number(value)}\n" if shown else f"{name} {_number(value)}\n")

    def taken(self) -> list[bytes]:
        """The whole text."""
        self._flush()
        return self._pieces.taken()

    def _add(self, line: str) -> None:
        self._lines.append(line)
        if len(self._lines) >= WRITTEN_TOGETHER:
            self._flush()

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        self._pieces.add("".join(lines).encode())


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(float(value)) if math.isfinite(value) else ("+Inf" if value > 0 else "-Inf")


def _flat(name: str) -> str:
    return name.replace(".", "_").replace("-", "_").replace("<", "_").replace(">", "_")
