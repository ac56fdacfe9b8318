"""Figures of the agent in the format that Prometheus reads. Imported when they are first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from yurt.api.pieces import Pieces
from yurt.http.agent_routes.figures import PREFIX, Figures, Gauge

WRITTEN_TOGETHER: Final = 500
"""Gauges of a family that are kept as objects before they become text."""
_HEADER_LINES: Final = 2


def text_pieces(figures: Figures) -> list[bytes]:
    """The figures as Prometheus reads them, family after family; of many jobs a second's work, for a thread."""
    families: dict[str, _Gauges] = {}
    for row in figures.gauges():
        family = families.get(row.name)
        if family is None:
            family = families[row.name] = _Gauges(row)
        family.add(row)
    whole = Pieces()
    for family in families.values():
        whole.add(*family.taken())
    for metric in _counted(figures):
        whole.add(_text(metric))
    return whole.taken()


class _Gauges:
    """The text of a family, to which gauges come one by one among those of others."""

    def __init__(self, first: Gauge) -> None:
        self._name = first.name
        self._labels = tuple(first.labels)
        self._rows: list[Gauge] = []
        self._pieces = Pieces()
        self._is_begun = False

    def add(self, row: Gauge) -> None:
        """One more."""
        self._rows.append(row)
        if len(self._rows) == WRITTEN_TOGETHER:
            self._write()

    def taken(self) -> list[bytes]:
        """The whole text."""
        if self._rows:
            self._write()
        return self._pieces.taken()

    def _write(self) -> None:
        family = GaugeMetricFamily(_flat(self._name), self._name, labels=self._labels)
        for row in self._rows:
            family.add_metric(tuple(row.labels.values()), row.value)
        text, self._rows = _text(family), []
        self._pieces.add(text.split(b"\n", _HEADER_LINES)[_HEADER_LINES] if self._is_begun else text)
        self._is_begun = True


def _counted(figures: Figures) -> Iterator[Metric]:
    for name, count in figures.counters:
        yield CounterMetricFamily(_flat(PREFIX + name), name, value=count)
    for name, timing in figures.timings:
        yield SummaryMetricFamily(
            _flat(PREFIX + name) + "_seconds", name, count_value=timing.count, sum_value=timing.total_s
        )


class _Shown:
    """Shows one family to prometheus-client."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _text(metric: Metric) -> bytes:
    return generate_latest(_Shown(metric))


def _flat(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")
