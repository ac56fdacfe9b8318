"""Writes the Grafana dashboard from one readable table: python packaging/monitoring/make_dashboard.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("grafana-dashboard.json")
TOP_JOBS: Final = "topk(10, max by (namespace, exported_job) (nomad_nomad_job_summary_{}))"
TOP_TASKS: Final = "topk(10, sum by (exported_job, task) (nomad_client_allocs_{}))"
RESTARTS: Final = "sum by (exported_job, task) (increase(nomad_client_allocs_restart[15m])) > 0"
WIDTH, HEIGHT, COLUMNS = 8, 7, 3
ROWS: Final[dict[str, list[tuple[str, str, dict[str, str]]]]] = {
    "Servers": [
        ("Leader", "short", {"{{instance}}": "nomad_nomad_server_is_leader"}),
        ("Since the leader was heard of", "ms", {"{{instance}}": "nomad_nomad_server_last_contact_ms"}),
        ("Servers", "short", {"{{node_state}}": "max by (node_state) (nomad_memberlist_node_instances)"}),
        ("Writes a second", "ops", {"{{instance}}": "rate(nomad_raft_apply[5m])"}),
        (
            "Time to make a write durable",
            "ms",
            {"{{instance}}": "rate(nomad_raft_commitTime_sum[5m]) / rate(nomad_raft_commitTime_count[5m])"},
        ),
        ("API requests a second", "reqps", {"{{code}}": "sum by (code) (rate(nomad_nomad_http_response[5m]))"}),
        (
            "Time of an API request",
            "ms",
            {"{{instance}} {{quantile}}": "nomad_nomad_http_request"},
        ),
        ("Memory of agents", "bytes", {"{{instance}}": "nomad_runtime_alloc_bytes"}),
        ("Index", "short", {"{{instance}}": "nomad_nomad_state_index"}),
    ],
    "Scheduling": [
        (
            "Evaluations",
            "short",
            {
                "ready": "sum(nomad_nomad_broker_total_ready)",
                "with workers": "sum(nomad_nomad_broker_total_unacked)",
                "for their time": "sum(nomad_nomad_broker_total_waiting)",
                "blocked": "sum(nomad_nomad_blocked_evals_total_blocked)",
            },
        ),
        (
            "Time of an evaluation",
            "ms",
            {
                "wait": "sum(rate(nomad_nomad_broker_wait_time_sum[5m]))"
                " / sum(rate(nomad_nomad_broker_wait_time_count[5m]))",
                "work": "sum(rate(nomad_nomad_broker_process_time_sum[5m]))"
                " / sum(rate(nomad_nomad_broker_process_time_count[5m]))",
            },
        ),
        (
            "Plans",
            "ops",
            {
                "submitted": "sum(rate(nomad_nomad_plan_submitted[5m]))",
                "refused in part": "sum(rate(nomad_nomad_plan_partial[5m]))",
            },
        ),
        (
            "Blocked jobs: MHz asked for",
            "short",
            {"{{namespace}}/{{exported_job}}": "topk(10, nomad_nomad_blocked_evals_job_cpu)"},
        ),
        ("Queues of node pools", "short", {"waiting": "sum(nomad_nomad_queue_waiting)"}),
        ("Nodes with heartbeats", "short", {"nodes": "sum(nomad_nomad_heartbeat_active)"}),
    ],
    "Jobs": [
        (
            "Jobs",
            "short",
            {
                "running": "max(nomad_nomad_job_status_running)",
                "pending": "max(nomad_nomad_job_status_pending)",
                "dead": "max(nomad_nomad_job_status_dead)",
            },
        ),
        (
            "Running allocations",
            "short",
            {"{{namespace}}/{{exported_job}}": TOP_JOBS.format("running")},
        ),
        (
            "Failed allocations",
            "short",
            {"{{namespace}}/{{exported_job}}": TOP_JOBS.format("failed")},
        ),
        (
            "CPU of tasks",
            "percent",
            {
                "{{exported_job}}/{{task}}": TOP_TASKS.format("cpu_total_percent"),
            },
        ),
        (
            "Memory of tasks",
            "bytes",
            {"{{exported_job}}/{{task}}": TOP_TASKS.format("memory_usage")},
        ),
        (
            "Restarts",
            "short",
            {"{{exported_job}}/{{task}}": RESTARTS},
        ),
    ],
    "Nodes": [
        (
            "CPU",
            "percent",
            {"{{host}}": "avg by (host) (nomad_client_host_cpu_total_percent)"},
        ),
        (
            "Memory in use",
            "percentunit",
            {"{{host}}": "1 - nomad_client_host_memory_available / nomad_client_host_memory_total"},
        ),
        ("Disk in use", "percent", {"{{host}} {{disk}}": "nomad_client_host_disk_used_percent"}),
        (
            "Allocated CPU",
            "percentunit",
            {
                "{{host}}": "nomad_client_allocated_cpu / (nomad_client_allocated_cpu + nomad_client_unallocated_cpu)",
            },
        ),
        (
            "Allocated memory",
            "percentunit",
            {
                "{{host}}": "nomad_client_allocated_memory"
                " / (nomad_client_allocated_memory + nomad_client_unallocated_memory)",
            },
        ),
        ("Use of GPUs", "percent", {"{{host}} {{device_id}}": "nomad_client_device_gpu_utilization"}),
    ],
}
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """The dashboard in Grafana's model."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row, charts in ROWS.items():
        panels.append(
            {"type": "row", "title": row, "collapsed": False, "id": len(panels) + 1, "panels": [],
             "gridPos": {"x": 0, "y": top, "w": WIDTH * COLUMNS, "h": 1}}
        )  # fmt: skip
        top += 1
        for number, (title, unit, queries) in enumerate(charts):
            x, y = number % COLUMNS * WIDTH, top + number // COLUMNS * HEIGHT
            panels.append(_panel(len(panels) + 1, title, unit, queries, {"x": x, "y": y, "w": WIDTH, "h": HEIGHT}))
        top += -(-len(charts) // COLUMNS) * HEIGHT
    return {
        "title": "Yurt",
        "uid": "yurt-cluster",
        "tags": ["yurt", "nomad"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }


def _panel(number: int, title: str, unit: str, queries: dict[str, str], place: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": title,
        "id": number,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend, "datasource": SOURCE}
            for index, (legend, expression) in enumerate(queries.items())
        ],
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(dashboard(), indent=1) + "\n")
