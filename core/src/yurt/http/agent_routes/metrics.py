"""Metrics of the agent in the formats of go-metrics and Prometheus."""

from __future__ import annotations

import asyncio
import datetime
from itertools import islice
from typing import Any, Final

from aiohttp import web

from yurt.api.pieces import JsonList, object_pieces
from yurt.http.agent_routes.metrics_snapshot import MetricsSnapshot, MetricsSource, gather
from yurt.http.call import Call
from yurt.http.errors import Refused
from yurt.http.pieces import body_of
from yurt.runtime.metrics import Count, Duration
from yurt.sdk.value import NANOSECONDS

ENCODED: Final = 2_000
"""Gauges that are encoded together."""
PROMETHEUS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(call: Call) -> web.Response:
    """GET /v1/metrics."""
    is_for_prometheus = call.query.get("format") == "prometheus"
    if is_for_prometheus and not (call.agent.telemetry.prometheus or call.agent.dev):
        raise Refused(415, "Prometheus is not enabled")
    figures = await gather(
        MetricsSource(
            settings=call.agent.telemetry,
            region=call.agent.region,
            metrics=call.context.metrics,
            facts=call.server_facts if call.has_server else None,
            view=call.known_view if call.has_server else None,
            cluster=call.cluster if call.has_server else None,
            client=call.client,
        )
    )
    if is_for_prometheus:
        pieces = await asyncio.to_thread(_prometheus, figures)
        return web.Response(body=body_of(pieces), headers={"Content-Type": PROMETHEUS_TYPE})
    moment = datetime.datetime.fromtimestamp(call.context.env.now() // NANOSECONDS, datetime.UTC)
    pieces = await asyncio.to_thread(json_pieces, figures, moment, pretty=call.options.pretty)
    return web.Response(body=body_of(pieces), content_type="application/json")


def _prometheus(figures: MetricsSnapshot) -> list[bytes]:
    from yurt.http.agent_routes.prometheus import text_pieces  # Few agents are asked.

    return text_pieces(figures)


def json_pieces(figures: MetricsSnapshot, moment: datetime.datetime, *, pretty: bool) -> list[bytes]:
    """The metrics as JSON, encoded in parts, because an encoder keeps the GIL until it is done."""
    rows, gauges = figures.gauges(), JsonList(pretty=pretty, depth=1)
    while part := [{"Labels": row.labels, "Name": row.name, "Value": row.value} for row in islice(rows, ENCODED)]:
        gauges.add(part)
    answer = {
        "Counters": [_counter(row) for row in figures.counters()],
        "Gauges": gauges,
        "Points": [],
        "Samples": [_sample(row) for row in figures.timings()],
        "Timestamp": f"{moment:%Y-%m-%d %H:%M:%S} +0000 UTC",
    }
    return object_pieces(answer, pretty=pretty)


def _counter(row: Count) -> dict[str, Any]:
    """Events of weight 1, as go-metrics has them."""
    weight = 1.0 if row.value else 0.0
    return {
        "Count": row.value, "Labels": row.labels, "Max": weight, "Mean": weight, "Min": weight, "Name": row.name,
        "Stddev": 0.0, "Sum": float(row.value),
    }  # fmt: skip


def _sample(row: Duration) -> dict[str, Any]:
    """Times in milliseconds, as go-metrics has them, or in nanoseconds where the name says so."""
    timing, scale = row.timing, row.scale
    return {
        "Count": timing.count,
        "Labels": row.labels,
        "Max": timing.max_s * scale,
        "Mean": timing.mean_s * scale,
        "Min": timing.min_s * scale,
        "Name": row.name,
        "Stddev": timing.deviation_s * scale,
        "Sum": timing.total_s * scale,
    }
