"""The metrics of an agent at one moment: gauges, counters and timings, independent of the output format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from yurt.api.page import in_order
from yurt.client.devices.manager import DeviceManager
from yurt.http.call import Call
from yurt.sdk.device import DeviceUse
from yurt.server.metrics import Timing
from yurt.server.views import View
from yurt.server.views.cluster import QuotaRows
from yurt.server.views.jobs import JobRows, JobSummaryRows
from yurt.server.views.scheduling import AllocationRows
from yurt.structs.summary import JobSummary

if TYPE_CHECKING:
    from yurt.client.client import Client
    from yurt.server.views.quotas import QuotaUsages

PREFIX: Final = "nomad.nomad."
DEVICE_PREFIX: Final = "nomad.client.device."


class Gauge(NamedTuple):
    """A value of this moment."""

    name: str
    value: float
    labels: dict[str, str]


class QuotaSums(NamedTuple):
    """What is used of quotas; `prepare` sums it up, in a thread, before the usages are read."""

    usages: QuotaUsages
    prepare: Callable[[], object]
    region: str


class Figures(NamedTuple):
    """What is shown of one moment: `servers` and `client` are gathered at once, the view is looked through later.

    It has figures for each group of each job, a second's work where there are many, so that is done in a thread.
    """

    servers: tuple[Gauge, ...] = ()
    view: View | None = None
    client: tuple[Gauge, ...] = ()
    counters: tuple[tuple[str, int], ...] = ()
    timings: tuple[tuple[str, Timing], ...] = ()
    quotas: QuotaSums | None = None

    def gauges(self) -> Iterator[Gauge]:
        """Every gauge of the server and of the client."""
        yield from self.servers
        if self.view is not None:
            yield from _job_gauges(self.view)
        if self.quotas is not None:
            yield from _quota_gauges(self.quotas)
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
        quotas=_quota_sums(call, view),
    )


def _quota_sums(call: Call, view: View) -> QuotaSums | None:
    """What is used of quotas; None without any."""
    if not view.of(QuotaRows).count():
        return None
    from yurt.server.views.quotas import QuotaUsages

    usages = view.of(QuotaUsages)
    return QuotaSums(usages, usages.preparation(), call.settings.region)


def _quota_gauges(sums: QuotaSums) -> Iterator[Gauge]:
    sums.prepare()
    for quota, dimension, used, allowed in sums.usages.dimensions(sums.region):
        labels = {"quota": quota, "dimension": dimension}
        yield Gauge(f"{PREFIX}quota.used", used, labels)
        if allowed is not None:
            yield Gauge(f"{PREFIX}quota.limit", allowed, labels)


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
