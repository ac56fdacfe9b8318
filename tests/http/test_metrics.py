"""The figures of many jobs are written in pieces, which together are what one text would be."""

from __future__ import annotations

import datetime
import json

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from yurt.access import Access
from yurt.api.encode import encode_builtins
from yurt.http.agent_routes.figures import Figures, Gauge
from yurt.http.agent_routes.metrics import json_pieces
from yurt.http.agent_routes.prometheus import WRITTEN_TOGETHER, text_pieces
from yurt.server.metrics import Timing
from yurt.server.views import View
from yurt.state import Snapshot, Tables
from yurt.structs.summary import JobSummary, TaskGroupSummary

JOBS = 2 * WRITTEN_TOGETHER + 1
MOMENT = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)


@pytest.fixture
def figures() -> Figures:
    """Those of a server with many jobs."""
    rows = [
        JobSummary(job_id=f'job {number * 7919 % 12_007:05}"\\', summary={"web": TaskGroupSummary(running=number)})
        for number in range(JOBS)
    ]
    tables = {table.name: table for table in Snapshot.empty().tables()}
    summaries = Tables.job_summaries.with_rows([((row.namespace, row.job_id), row) for row in rows], index=1)
    return Figures(
        servers=(Gauge("nomad.nomad.state_index", 7.0, {}),),
        view=View(Snapshot(1, tables | {"job_summaries": summaries}), Access()),
        counters=(("plan.submitted", 3),),
        timings=(("plan.evaluate", Timing(2, 0.5, 0.3)),),
    )


class _AtOnce:
    """The gauges as whole families."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> list[GaugeMetricFamily]:
        families: dict[str, GaugeMetricFamily] = {}
        for row in self._figures.gauges():
            made = GaugeMetricFamily(row.name.replace(".", "_"), row.name, labels=tuple(row.labels))
            families.setdefault(row.name, made).add_metric(tuple(row.labels.values()), row.value)
        return list(families.values())


def test_prometheus_reads_in_pieces_what_it_would_read_at_once(figures: Figures) -> None:
    registry = CollectorRegistry()
    registry.register(_AtOnce(figures))
    pieces = text_pieces(figures)
    text = b"".join(pieces)
    assert text.startswith(generate_latest(registry))
    assert text[len(generate_latest(registry)) :].decode().splitlines() == [
        "# HELP nomad_nomad_plan_submitted_total plan.submitted",
        "# TYPE nomad_nomad_plan_submitted_total counter",
        "nomad_nomad_plan_submitted_total 3.0",
        "# HELP nomad_nomad_plan_evaluate_seconds plan.evaluate",
        "# TYPE nomad_nomad_plan_evaluate_seconds summary",
        "nomad_nomad_plan_evaluate_seconds_count 2.0",
        "nomad_nomad_plan_evaluate_seconds_sum 0.5",
    ]
    assert len(pieces) > 3


@pytest.mark.parametrize("pretty", [False, True])
def test_the_json_of_the_figures_comes_in_pieces_and_in_order(figures: Figures, pretty: bool) -> None:
    pieces = json_pieces(figures, MOMENT, pretty=pretty)
    shown = json.loads(b"".join(pieces))
    assert b"".join(pieces) == encode_builtins(shown, pretty=pretty)
    assert len(pieces) > 3
    gauges = [(row["Name"], row["Value"], row["Labels"]) for row in shown["Gauges"]]
    assert gauges == [(row.name, row.value, row.labels) for row in figures.gauges()]
    jobs = [labels["exported_job"] for name, _, labels in gauges if name.endswith("job_summary.running")]
    assert jobs == sorted(jobs) and len(jobs) == JOBS
