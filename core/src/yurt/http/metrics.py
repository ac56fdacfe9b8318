"""Figures of the agent, as go-metrics shows them and as Prometheus reads them."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from aiohttp import web

from yurt.client.devices.manager import DeviceManager
from yurt.http.call import Call, json_answer
from yurt.http.routing import route
from yurt.sdk.device import DeviceUse
from yurt.sdk.value import NANOSECONDS
from yurt.server.metrics import Metrics
from yurt.server.stats import gauges as server_gauges
from yurt.structs.summary import JobSummary

PREFIX = "nomad.nomad."
DEVICE_PREFIX = "nomad.client.device."


class Gauge(NamedTuple):
    """A value of this moment."""

    name: str
    value: float
    labels: dict[str, str]


def all_gauges(call: Call, cluster: dict[str, float]) -> Iterator[Gauge]:
    """Every gauge of the server and of the client; `cluster` are those of the servers as a whole."""
    server, client = call.context.server, call.client
    if server is None:
        return
    for name, value in (server_gauges(server) | cluster).items():
        yield Gauge(PREFIX + name, value, {})
    for status, count in sorted(Counter(job.status for job in server.state.jobs.values()).items()):
        yield Gauge(f"{PREFIX}job_status.{status}", float(count), {})
    for summary in sorted(server.state.job_summaries.values(), key=lambda row: (row.namespace, row.job_id)):
        yield from _summary_gauges(summary)
    if client is not None:
        labels = {"node_id": client.node_id, "datacenter": client.node.datacenter}
        allocs = Counter(alloc.client_status for alloc in server.state.allocs_of_node(client.node_id))
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


def counts_of(call: Call) -> Metrics:
    """What the server has counted."""
    return call.context.server.metrics if call.context.server is not None else Metrics()


async def metrics(call: Call) -> web.Response:
    """GET /v1/metrics."""
    if call.client is not None:
        await call.client.devices.uses()
    cluster = await call.cluster.gauges() if call.context.server is not None else {}
    if call.query.get("format") == "prometheus":
        from yurt.http.prometheus import prometheus  # prometheus-client takes 1.5 MB, and few agents are asked.

        return prometheus(call, cluster)
    counts = counts_of(call)
    moment = datetime.datetime.fromtimestamp(call.context.env.now() // NANOSECONDS, datetime.UTC)
    answer = {
        "Counters": [_counter(name, count) for name, count in sorted(counts.counters.items())],
        "Gauges": [{"Labels": row.labels, "Name": row.name, "Value": row.value} for row in all_gauges(call, cluster)],
        "Points": [],
        "Samples": [
            _sample(name, timing.count, timing.total_s, timing.max_s) for name, timing in sorted(counts.timings.items())
        ],
        "Timestamp": f"{moment:%Y-%m-%d %H:%M:%S} +0000 UTC",
    }
    return json_answer(call, answer)


def _counter(name: str, count: int) -> dict[str, Any]:
    return {"Count": count, "Labels": {}, "Name": PREFIX + name, "Sum": float(count)}


def _sample(name: str, count: int, total_s: float, max_s: float) -> dict[str, Any]:
    """Times in milliseconds, as go-metrics has them."""
    mean = total_s / count if count else 0.0
    times = {"Max": max_s * 1000, "Mean": mean * 1000, "Sum": total_s * 1000}
    return {"Count": count, "Labels": {}, "Name": PREFIX + name} | times


ROUTES = (route("/v1/metrics", get=metrics),)
