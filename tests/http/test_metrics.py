"""Metrics in JSON and in Prometheus' text: many are written in pieces, and both tell the same."""

from __future__ import annotations

import datetime
import json
import math

import pytest
from prometheus_client.parser import text_string_to_metric_families
from yurt.access import Access
from yurt.api.encode import encode_builtins
from yurt.http.agent_routes.metrics import json_pieces
from yurt.http.agent_routes.metrics_snapshot import (
    DEVICE_KINDS_MAX,
    MetricsSnapshot,
    device_state_gauges,
    runtime_gauges,
)
from yurt.http.agent_routes.prometheus import WRITTEN_TOGETHER, text_pieces
from yurt.http.telemetry import TelemetrySettings
from yurt.runtime.metrics import LABELLED_MAX, Count, Duration, Gauge, Metrics, Timing
from yurt.sdk.value import replace
from yurt.server.views import View
from yurt.state import Snapshot, Tables
from yurt.structs.node import DeviceHealth, DeviceMark, Node, NodeDevice, NodeDeviceResource, NodeResources
from yurt.structs.summary import JobSummary, TaskGroupSummary
from yurt.testing.http_api import Api

JOBS = 2 * WRITTEN_TOGETHER + 1
MOMENT = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)


def timing(*seconds: float) -> Timing:
    made = Timing()
    for each in seconds:
        made.add(each)
    return made


@pytest.fixture
def figures() -> MetricsSnapshot:
    """Those of a server with many jobs."""
    rows = [
        JobSummary(job_id=f'job {number * 7919 % 12_007:05}"\\', summary={"web": TaskGroupSummary(running=number)})
        for number in range(JOBS)
    ]
    tables = {table.name: table for table in Snapshot.empty().tables()}
    summaries = Tables.job_summaries.with_rows([((row.namespace, row.job_id), row) for row in rows], index=1)
    return MetricsSnapshot(
        settings=TelemetrySettings(host="a-host"),
        at_once=(Gauge("nomad.nomad.state.index", 7.0),),
        view=View(Snapshot(1, tables | {"job_summaries": summaries}), Access()),
        counts=(Count("nomad.nomad.plan.submitted", 3), Count("nomad.nomad.http.response", 2, {"code": "200"})),
        durations=(Duration("nomad.nomad.plan.evaluate", timing(0.2, 0.3)),),
    )


def test_prometheus_reads_what_there_is_under_nomads_names(figures: MetricsSnapshot) -> None:
    pieces = text_pieces(figures)
    text = b"".join(pieces).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    gauges = [(row.name.replace(".", "_"), dict(row.labels), row.value) for row in figures.gauges()]
    read = [(each.name, each.labels, each.value) for family in families.values() for each in family.samples]
    assert [row for row in read if row[0].startswith(("nomad_nomad_state", "nomad_nomad_job"))] == sorted(
        gauges, key=lambda row: [name for name, _, _ in gauges].index(row[0])
    )
    summary = families["nomad_nomad_plan_evaluate"]
    assert summary.type == "summary"
    assert [(each.name, each.labels.get("quantile"), each.value) for each in summary.samples] == [
        *((summary.name, share, 300.0) for share in ("0.5", "0.9", "0.99")),
        (f"{summary.name}_sum", None, 500.0),
        (f"{summary.name}_count", None, 2.0),
    ]
    assert 'nomad_nomad_http_response{code="200",host="a-host"} 2.0\n' in text
    assert len(pieces) > 3


@pytest.mark.parametrize("pretty", [False, True])
def test_the_json_of_the_figures_comes_in_pieces_and_in_order(figures: MetricsSnapshot, pretty: bool) -> None:
    pieces = json_pieces(figures, MOMENT, pretty=pretty)
    shown = json.loads(b"".join(pieces))
    assert b"".join(pieces) == encode_builtins(shown, pretty=pretty)
    assert len(pieces) > 3
    gauges = [(row["Name"], row["Value"], row["Labels"]) for row in shown["Gauges"]]
    assert gauges == [(row.name, row.value, row.labels) for row in figures.gauges()]
    jobs = [labels["job"] for name, _, labels in gauges if name.endswith("job_summary.running")]
    assert jobs == sorted(jobs) and len(jobs) == JOBS
    (sample,) = shown["Samples"]
    assert (sample["Count"], sample["Min"], sample["Max"], sample["Mean"]) == (2, 200.0, 300.0, 250.0)
    assert sample["Stddev"] == pytest.approx(70.7, abs=0.1)


def test_the_longest_prefix_decides_what_is_published() -> None:
    settings = TelemetrySettings(
        prefixes=(("nomad.raft", False), ("nomad.raft.apply", True), ("nomad.nomad", True)), is_published=False
    )
    published = [
        name
        for name in (
            "nomad.raft.commitTime",
            "nomad.raft.apply",
            "nomad.nomad.plan.submit",
            "nomad.runtime.alloc_bytes",
        )
        if settings.lets_through(name)
    ]
    assert published == ["nomad.raft.apply", "nomad.nomad.plan.submit"]


def test_allocations_and_hooks_are_published_only_where_they_are_wanted() -> None:
    settings = TelemetrySettings(has_hook_metrics=False)
    assert not settings.lets_through("nomad.client.allocs.memory.rss")
    assert not settings.lets_through("nomad.client.task_hook.prestart.success")
    assert settings.lets_through("nomad.client.allocations.running")
    assert TelemetrySettings(publishes_allocations=True).lets_through("nomad.client.allocs.memory.rss")


def test_dispatched_jobs_have_no_summaries_where_they_are_switched_off(figures: MetricsSnapshot) -> None:
    rows = [JobSummary(job_id=name, summary={"web": TaskGroupSummary()}) for name in ("a", "a/dispatch-1-2")]
    tables = {table.name: table for table in Snapshot.empty().tables()}
    summaries = Tables.job_summaries.with_rows([((row.namespace, row.job_id), row) for row in rows], index=1)
    view = View(Snapshot(1, tables | {"job_summaries": summaries}), Access())
    settings = TelemetrySettings(has_dispatched_summaries=False)
    shown = replace(figures, view=view, settings=settings).gauges()
    assert {row.labels["job"] for row in shown if "job" in row.labels} == {"a"}


def test_metadata_of_a_job_becomes_labels_with_valid_names() -> None:
    meta = {"team-name": "blue", "cost.centre": "7", "other": "x"}
    assert TelemetrySettings().meta_labels(meta) == {}
    chosen = TelemetrySettings(includes_alloc_meta=True, meta_keys=("team-name", "cost.centre"))
    assert chosen.meta_labels(meta) == {"team_name": "blue", "cost_centre": "7"}
    everything = TelemetrySettings(includes_alloc_meta=True)
    assert everything.meta_labels({"1st": "a"}) == {"_1st": "a"}, "no name of Prometheus begins with a digit"


def test_combinations_of_labels_are_bounded() -> None:
    metrics = Metrics()
    for number in range(LABELLED_MAX + 5):
        metrics.count("plan.node_rejected", labels=(("node_id", str(number)),))
    assert len(metrics.labelled_counters) == LABELLED_MAX
    assert sum(row.value for row in metrics.counts()) == LABELLED_MAX + 5


def test_quantiles_are_of_recent_durations() -> None:
    many = timing(*(each / 1000 for each in range(1000)))
    assert many.quantile(0.5) == pytest.approx(0.936, abs=0.002) and many.count == 1000
    assert math.isnan(Timing().quantile(0.5))


async def test_the_runtime_tells_its_memory_and_tasks() -> None:
    found = {row.name: row.value for row in runtime_gauges(Metrics())}
    assert found["nomad.runtime.alloc_bytes"] > 1e6 and found["nomad.runtime.num_goroutines"] >= 1


async def test_a_refused_request_is_no_failed_one(api: Api) -> None:
    assert (await api.get("/v1/job/none")).status == 404
    counters = api.server.http.metrics.counters
    assert (counters["rpc.request"], counters["rpc.query"], counters["rpc.request_error"]) == (1, 1, 0)
    assert counters["rpc.request"] == api.server.http.metrics.timings["http.request"].count


def _node_with_cards(kind: str, *states: str) -> Node:
    cards = tuple(NodeDevice(id=f"{at}", health=DeviceHealth(state=state)) for at, state in enumerate(states))  # type: ignore[arg-type]
    group = NodeDeviceResource(vendor="nvidia", type="gpu", name=kind, instances=cards)
    return Node(node_resources=NodeResources(devices=(group,)))


def test_devices_are_counted_by_kind_and_state_and_marks_count() -> None:
    node = _node_with_cards("H100", "healthy", "failed", "healthy")
    marked = replace(node, device_marks={"nvidia/gpu/H100/2": DeviceMark(kind="disabled")})
    found = {
        row.labels["state"]: row.value
        for row in device_state_gauges([marked, _node_with_cards("H100", "suspect", "probation")])
    }

    expected = {"healthy": 1, "suspect": 1, "degraded": 0, "failed": 1, "probation": 1, "disabled": 1}
    assert found == expected


def test_kinds_of_devices_have_a_bounded_number_of_gauges() -> None:
    nodes = [_node_with_cards(f"kind-{number}", "healthy") for number in range(DEVICE_KINDS_MAX + 5)]
    rows = list(device_state_gauges(nodes))

    assert len({row.labels["device"] for row in rows}) == DEVICE_KINDS_MAX + 1
    assert [row.value for row in rows if row.labels == {"device": "other", "state": "healthy"}] == [5]
