"""Figures of the agent in the format that Prometheus reads. Imported when they are first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from yurt.http.call import Call
from yurt.http.errors import Refused
from yurt.http.metrics import PREFIX, Figures


async def prometheus(call: Call, figures: Figures) -> web.Response:
    """The figures as Prometheus reads them; refused where the configuration does not allow it."""
    if not (call.agent.prometheus_metrics or call.agent.dev):
        raise Refused(415, "Prometheus is not enabled")
    registry = CollectorRegistry()
    registry.register(_Collector(figures))
    body = await asyncio.to_thread(generate_latest, registry)
    return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


class _Collector:
    """Shows the figures of one moment to prometheus-client."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """All of them, as families."""
        families: dict[str, GaugeMetricFamily] = {}
        for row in self._figures.gauges():
            family = families.get(row.name)
            if family is None:
                family = families[row.name] = GaugeMetricFamily(_flat(row.name), row.name, labels=tuple(row.labels))
            family.add_metric(tuple(row.labels.values()), row.value)
        yield from families.values()
        for name, count in self._figures.counters:
            yield CounterMetricFamily(_flat(PREFIX + name), name, value=count)
        for name, timing in self._figures.timings:
            yield SummaryMetricFamily(
                _flat(PREFIX + name) + "_seconds", name, count_value=timing.count, sum_value=timing.total_s
            )


def _flat(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")
