"""Metrics of the agent in the formats of go-metrics and Prometheus."""

from __future__ import annotations

import asyncio
import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from yurt.access import needs
from yurt.api.pieces import JsonList, object_pieces
from yurt.http import routes
from yurt.http.agent_routes.figures import PREFIX, Figures, figures_of
from yurt.http.call import Call
from yurt.http.errors import Refused
from yurt.http.pieces import body_of
from yurt.http.routes import AGENT
from yurt.sdk.value import NANOSECONDS

if TYPE_CHECKING:
    pass

ENCODED: Final = 2_000
"""Gauges that are encoded together."""
PROMETHEUS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(call: Call) -> web.Response:
    """GET /v1/metrics."""
    if call.client is not None:
        await call.client.devices.uses()
    cluster = await call.cluster.gauges() if call.has_server else {}
    if call.query.get("format") == "prometheus":
        if not (call.agent.prometheus_metrics or call.agent.dev):
            raise Refused(415, "Prometheus is not enabled")
        pieces = await asyncio.to_thread(_prometheus, figures_of(call, cluster))
        return web.Response(body=body_of(pieces), headers={"Content-Type": PROMETHEUS_TYPE})
    moment = datetime.datetime.fromtimestamp(call.context.env.now() // NANOSECONDS, datetime.UTC)
    pieces = await asyncio.to_thread(json_pieces, figures_of(call, cluster), moment, pretty=call.options.pretty)
    return web.Response(body=body_of(pieces), content_type="application/json")


def _prometheus(figures: Figures) -> list[bytes]:
    from yurt.http.agent_routes.prometheus import (
        text_pieces,  # prometheus-client takes 1.5 MB and 50 ms, and few agents are asked.
    )

    return text_pieces(figures)


def json_pieces(figures: Figures, moment: datetime.datetime, *, pretty: bool) -> list[bytes]:
    """The figures as JSON, encoded some at a time: an encoder keeps the interpreter to itself until it is done."""
    rows, gauges = figures.gauges(), JsonList(pretty=pretty, depth=1)
    while part := [{"Labels": row.labels, "Name": row.name, "Value": row.value} for row in islice(rows, ENCODED)]:
        gauges.add(part)
    answer = {
        "Counters": [_counter(name, count) for name, count in figures.counters],
        "Gauges": gauges,
        "Points": [],
        "Samples": [_sample(name, timing.count, timing.total_s, timing.max_s) for name, timing in figures.timings],
        "Timestamp": f"{moment:%Y-%m-%d %H:%M:%S} +0000 UTC",
    }
    return object_pieces(answer, pretty=pretty)


def _counter(name: str, count: int) -> dict[str, Any]:
    return {"Count": count, "Labels": {}, "Name": PREFIX + name, "Sum": float(count)}


def _sample(name: str, count: int, total_s: float, max_s: float) -> dict[str, Any]:
    """Times in milliseconds, as go-metrics has them."""
    mean = total_s / count if count else 0.0
    times = {"Max": max_s * 1000, "Mean": mean * 1000, "Sum": total_s * 1000}
    return {"Count": count, "Labels": {}, "Name": PREFIX + name} | times


ROUTES = (routes.get("/v1/metrics", metrics, needs=needs.ANONYMOUS, answered_by=AGENT),)
