"""The metrics of an agent at one moment: gauges, counters and timings, independent of the output format."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import psutil

from yurt.api.page import in_order
from yurt.client.devices.manager import DeviceManager
from yurt.client.gauges import GaugeSettings
from yurt.http.telemetry import TelemetrySettings
from yurt.runtime.metrics import CLIENT_PREFIX, SERVER_PREFIX, Count, Duration, Gauge, Metrics, full_name
from yurt.sdk.device import DeviceUse
from yurt.server.views import View
from yurt.server.views.cluster import NodeRows, QuotaRows
from yurt.server.views.jobs import JobRows, JobSummaryRows
from yurt.structs.node import SHOWN_DEVICE_STATES, Node, shown_state
from yurt.structs.summary import JobSummary

if TYPE_CHECKING:
    from yurt.client.client import Client
    from yurt.http.cluster import Cluster
    from yurt.server.server_status import ServerFacts
    from yurt.server.views.quotas import QuotaUsages

PREFIX: Final = SERVER_PREFIX
DEVICE_PREFIX: Final = f"{CLIENT_PREFIX}device."
DISPATCHED: Final = "/dispatch-"
"""Stands in the id of a job that was dispatched."""
UTILIZATIONS: Final = {
    "cpu": "cpu",
    "cores": "cores",
    "memory": "memory_mb",
    "variables": "storage.variables_mb",
    "host_volumes": "storage.host_volumes_mb",
}
"""Dimensions of quotas that Nomad has gauges for, and their names there."""
MEMBER_STATES: Final = {"alive": "alive", "suspect": "suspect", "failed": "dead", "left": "left"}
"""The states of servers by the names of Nomad's gossip."""


class MetricsSource(msgspec.Struct, frozen=True):
    """An agent whose metrics are gathered."""

    settings: TelemetrySettings
    region: str
    metrics: Metrics
    """Of the server, or of the HTTP API on an agent without one."""
    facts: ServerFacts | None = None
    """Of the server, where there is one."""
    view: Callable[[], View] | None = None
    """The part of the state that may be shown."""
    cluster: Cluster | None = None
    client: Client | None = None


DEVICE_KINDS_MAX: Final = 64
"""Kinds of devices with gauges of their own."""
OTHER_KINDS: Final = "other"


class QuotaSums(msgspec.Struct, frozen=True):
    """The usage of quotas; `prepare` computes it in a thread before the usages are read."""

    usages: QuotaUsages
    prepare: Callable[[], object]
    region: str


class MetricsSnapshot(msgspec.Struct, frozen=True):
    """The metrics at one moment: most are gathered at once, the view is read later.

    It has figures for each group of each job, a second's work where there are many, so that is done in a thread.
    """

    settings: TelemetrySettings = TelemetrySettings()
    at_once: tuple[Gauge, ...] = ()
    view: View | None = None
    counts: tuple[Count, ...] = ()
    durations: tuple[Duration, ...] = ()
    blocked: Callable[[], Iterable[Gauge]] = tuple
    """Sums up blocked evaluations."""
    quotas: QuotaSums | None = None

    def gauges(self) -> Iterator[Gauge]:
        """Every gauge that is published."""
        return self.settings.published(self._all_gauges())

    def counters(self) -> Iterator[Count]:
        """Every counter that is published."""
        return self.settings.published(self.counts)

    def timings(self) -> Iterator[Duration]:
        """Every timing that is published."""
        return self.settings.published(self.durations)

    def _all_gauges(self) -> Iterator[Gauge]:
        yield from self.at_once
        if self.view is not None:
            yield from device_state_gauges(self.view.of(NodeRows).all())
            yield from _job_gauges(self.view, has_dispatched=self.settings.has_dispatched_summaries)
        yield from self.blocked()
        if self.quotas is not None:
            yield from _quota_gauges(self.quotas)


async def gather(source: MetricsSource) -> MetricsSnapshot:
    """The figures of this moment; reading the node's takes some milliseconds."""
    metrics = [source.metrics]
    gauges = [*runtime_gauges(source.metrics)]
    if source.facts is not None and source.cluster is not None:
        states = Counter(MEMBER_STATES.get(each.status, each.status) for each in source.cluster.members())
        gauges += [Gauge("nomad.memberlist.node.instances", states[each], {"node_state": each}) for each in _STATES]
        gauges += [Gauge(full_name(name), value) for name, value in (await source.cluster.gauges()).items()]
        gauges += source.facts.gauges()
        gauges += await source.facts.usage_gauges()
    if source.client is not None:
        metrics.append(source.client.calls.figures.metrics)
        await source.client.devices.uses()
        settings = source.settings
        gauge_settings = GaugeSettings(settings.publishes_node, settings.publishes_allocations, settings.meta_labels)
        gauges += await source.client.calls.figures.gauges(gauge_settings)
        gauges += _device_gauges(source.client.devices, source.client.calls.figures.labels())
    view = None if source.view is None else source.view()
    return MetricsSnapshot(
        settings=source.settings,
        at_once=tuple(gauges),
        view=view,
        counts=tuple(row for each in metrics for row in each.counts()),
        durations=tuple(row for each in metrics for row in each.durations()),
        blocked=tuple if source.facts is None else source.facts.blocked_gauges(),
        quotas=None if view is None else _quota_sums(view, source),
    )


_STATES: Final = tuple(MEMBER_STATES.values())


def runtime_gauges(metrics: Metrics) -> Iterable[Gauge]:
    """Gauges of this process under the names of Nomad's Go runtime, as far as Python has the like."""
    memory = psutil.Process().memory_info()
    pauses = metrics.timings.get("runtime.gc_pause_ns")
    return (
        Gauge("nomad.runtime.alloc_bytes", float(memory.rss)),
        Gauge("nomad.runtime.sys_bytes", float(memory.vms)),
        Gauge("nomad.runtime.heap_objects", float(sys.getallocatedblocks())),
        Gauge("nomad.runtime.num_goroutines", float(len(asyncio.all_tasks()))),
        Gauge("nomad.runtime.total_gc_runs", float(sum(each["collections"] for each in gc.get_stats()))),
        Gauge("nomad.runtime.total_gc_pause_ns", round(pauses.total_s * 1e9) if pauses is not None else 0.0),
    )


def _quota_sums(view: View, source: MetricsSource) -> QuotaSums | None:
    """The usage of quotas; None without quotas."""
    if not source.settings.has_quota_utilization or not view.of(QuotaRows).count():
        return None
    from yurt.server.views.quotas import QuotaUsages

    usages = view.of(QuotaUsages)
    return QuotaSums(usages, usages.preparation(), source.region)


def _quota_gauges(sums: QuotaSums) -> Iterator[Gauge]:
    sums.prepare()
    for quota, dimension, used, allowed in sums.usages.dimensions(sums.region):
        labels = {"quota": quota, "dimension": dimension}
        yield Gauge(f"{PREFIX}quota.used", used, labels)
        if (name := UTILIZATIONS.get(dimension)) is not None:
            yield Gauge(f"{PREFIX}quota.utilization.{name}", used, {"quota_name": quota, "region": sums.region})
        if allowed is not None:
            yield Gauge(f"{PREFIX}quota.limit", allowed, labels)
    for quota, dimension, guaranteed, used in sums.usages.guarantees(sums.region):
        labels = {"quota": quota, "dimension": dimension}
        yield Gauge(f"{PREFIX}quota.guaranteed", guaranteed, labels)
        yield Gauge(f"{PREFIX}quota.lent", max(0.0, guaranteed - used), labels)
        yield Gauge(f"{PREFIX}quota.borrowed", max(0.0, used - guaranteed), labels)


def device_state_gauges(nodes: Iterable[Node]) -> Iterator[Gauge]:
    """How many devices of each kind are in each state; of the `DEVICE_KINDS_MAX` most frequent kinds by name."""
    counts: dict[str, Counter[str]] = {}
    for node in nodes:
        for group in node.node_resources.devices:
            kind = f"{group.vendor}/{group.type}/{group.name}"
            marks = node.device_marks
            counts.setdefault(kind, Counter()).update(
                shown_state(each, marks.get(f"{kind}/{each.id}")) for each in group.instances
            )
    kinds = sorted(counts, key=lambda kind: (-counts[kind].total(), kind))
    for kind in kinds[DEVICE_KINDS_MAX:]:
        counts.setdefault(OTHER_KINDS, Counter()).update(counts[kind])
    for kind in (*kinds[:DEVICE_KINDS_MAX], *((OTHER_KINDS,) if OTHER_KINDS in counts else ())):
        for state in SHOWN_DEVICE_STATES:
            yield Gauge(f"{PREFIX}devices", float(counts[kind][state]), {"device": kind, "state": state})


def _job_gauges(view: View, *, has_dispatched: bool) -> Iterator[Gauge]:
    counts = Counter(job.status for job in view.of(JobRows).all())
    for status in ("dead", "pending", "running"):
        yield Gauge(f"{PREFIX}job_status.{status}", float(counts[status]), {})
    for summary in in_order(view.of(JobSummaryRows).all(), lambda row: (row.namespace, row.job_id)):
        if summary is not None and (has_dispatched or DISPATCHED not in summary.job_id):
            yield from _summary_gauges(summary)


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
        labels = {
            "exported_job": summary.job_id,
            "job": summary.job_id,
            "namespace": summary.namespace,
            "task_group": group,
        }
        for name in counts.__struct_fields__:
            yield Gauge(f"{PREFIX}job_summary.{name}", float(getattr(counts, name)), labels)
