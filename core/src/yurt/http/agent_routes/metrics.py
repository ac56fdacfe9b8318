"""Figures of the agent, as go-metrics shows them and as Prometheus reads them."""

from __future__ import annotations

import asyncio
import datetime
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiohttp import web

from yurt.access import needs
from yurt.api.page import in_order
from yurt.api.pieces import JsonList, object_pieces
from yurt.client.devices.manager import DeviceManager
from yurt.http import routes
from yurt.http.call import Call
from yurt.http.errors import Refused
from yurt.http.pieces import body_of
from yurt.http.routes import AGENT
from yurt.sdk.device import DeviceUse
from yurt.sdk.value import NANOSECONDS
from yurt.server.metrics import Timing
from yurt.server.views import View
from yurt.server.views.jobs import JobRows, JobSummaryRows
from yurt.server.views.scheduling import AllocationRows
from yurt.structs.summary import JobSummary

if TYPE_CHECKING:
    from yurt.client.client import Client

PREFIX = "nomad.nomad."
ENCODED: Final = 2_000
"""Gauges that are encoded together."""
PROMETHEUS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
DEVICE_PREFIX = "nomad.client.device."


class Gauge(NamedTuple):
    """A value of this moment."""

    name: str
    value: float
    labels: dict[str, str]


class Figures(NamedTuple):
    """What is shown of one moment: `servers` and `client` are gathered at once, the view is looked through later.

    It has figures for each group of each job, a second's work where there are many, so that is done in a thread.
    """

    servers: tuple[Gauge, ...] = ()
    view: View | None = None
    client: tuple[Gauge, ...] = ()
    counters: tuple[tuple[str, int], ...] = ()
    timings: tuple[tuple[str, Timing], ...] = ()

    def gauges(self) -> Iterator[Gauge]:
        """Every gauge of the server and of the client."""
        yield from self.servers
        if self.view is not None:
            yield from _job_gauges(self.view)
        yield from self.client


def figures_of(call: Call, cluster: dict[str, float]) -> Figures:
    """The figures of this moment; `cluster` are those of the servers as a whole."""
    if not call.has_server:
        return Figures()
    server, view = call.server_facts, call.known_view()
    return Figures(
        servers=tuple(Gauge(PREFIX + name, value, {}) for name, value in (server.gauges() | cluster).items()),
        view=view,
        client=tuple(_client_gauges(call.client, view)) if call.client is not None else (),
        counters=server.counters(),
        timings=server.timings(),
    )


def _job_gauges(view: View) -> Iterator[Gauge]:
    for status, count in sorted(Counter(job.status for job in view.of(JobRows).all()).items()):
        yield Gauge(f"{PREFIX}job_status.{status}", float(count), {})
    for summary in in_order(view.of(JobSummaryRows).all(), lambda row: (row.namespace, row.job_id)):
        if summary is not None:
            yield from _summary_gauges(summary)


def _client_gauges(client: Client, view: View) -> Iterator[Gauge]:
    labels = {"node_id": client.node_id, "datacenter": client.node.datacenter}
    allocs = Counter(alloc.client_status for alloc in view.of(AllocationRows).each_where("node", client.node_id))
    for status, count in sorted(allocs.items()):
        yield Gauge(f"nomad.client.allocations.{status}", float(count), labels)
    yield from _device_gauges(client.devices, labels)


def _device_gauges(devices: DeviceManager, labels: dict[str, str]) -> Iterator[Gauge]:
    """Whether each device is healthy, and its last figures."""
    uses = devices.last_uses
    for group in devices.groups:
        for instance in group.instances:
            own = {**labels, "device": f"{group.vendor}/{group.type}/{group.name}", "device_id": instance.id}
            yield Gauge(f"{DEVICE_PREFIX}healthy", float(instance.is_healthy), own)
            yield from _figures(uses[instance.id], own) if instance.id in uses else ()


def _figures(use: DeviceUse, labels: dict[str, str]) -> Iterator[Gauge]:
    """The figures of a device that are numbers; of a part of a whole, the whole too."""
    for name, stat in sorted(use.stats.items()):
        key = f"{DEVICE_PREFIX}{name.lower().replace(' ', '_')}"
        if isinstance(stat.value, int | float):
            yield Gauge(key, float(stat.value), labels)
        if stat.of is not None:
            yield Gauge(f"{key}.limit", float(stat.of), labels)


def _summary_gauges(summary: JobSummary) -> Iterator[Gauge]:
    for group, counts in sorted(summary.summary.items()):
        labels = {"exported_job": summary.job_id, "namespace": summary.namespace, "task_group": group}
        for name in counts.__struct_fields__:
            yield Gauge(f"{PREFIX}job_summary.{name}", float(getattr(counts, name)), labels)


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
