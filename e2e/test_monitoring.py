"""Prometheus reads an agent, and finds all that the shipped alert rules and the dashboard ask for."""

from __future__ import annotations

import http
import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, wait_for
from yurt.testing.unique_ports import free_ports

SHIPPED = Path(__file__).parents[1] / "packaging" / "monitoring"
ALERTS = SHIPPED / "alerts.yml"
DASHBOARD = json.loads((SHIPPED / "grafana-dashboard.json").read_text())
ONLY_SOMETIMES = {
    "nomad_nomad_blocked_evals_job_cpu", "nomad_client_allocs_restart", "nomad_client_allocs_oom_killed",
    "nomad_client_device_healthy", "nomad_client_device_gpu_utilization", "nomad_nomad_worker_failed",
    "nomad_nomad_plan_partial", "nomad_nomad_members_failed",
}  # fmt: skip
"""What an agent has only when something is wrong, or with GPUs."""
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Prometheus is not installed: apt install prometheus"
)


def expressions() -> list[str]:
    """All that the dashboard and the alerts ask Prometheus for."""
    shown = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    return shown + re.findall(r"^ +expr: (.+)$", ALERTS.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def prometheus(dev_agent: Agent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that reads the agent each 0.5 s."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\nrule_files: [{ALERTS}]\n"
        "scrape_configs:\n  - job_name: yurt\n    metrics_path: /v1/metrics\n    params: {format: [prometheus]}\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{dev_agent.port}']}}]\n"
    )
    (port,) = free_ports(1)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def ask(address: str, expression: str) -> list[Any]:
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query?{query}") as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
            return found
    except (ConnectionError, urllib.error.URLError) as error:
        is_starting = isinstance(error, urllib.error.HTTPError) and error.code == http.HTTPStatus.SERVICE_UNAVAILABLE
        assert is_starting or not isinstance(error, urllib.error.HTTPError), (expression, error.read())
        return []


@needs_prometheus
def test_prometheus_accepts_the_alert_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_prometheus_reads_an_agent_and_finds_what_the_dashboard_shows(dev_agent: Agent, prometheus: str) -> None:
    dev_agent.call(
        "PUT",
        "/v1/jobs",
        {
            "Job": {
                "ID": "watched",
                "Type": "service",
                "Datacenters": ["*"],
                "TaskGroups": [
                    {
                        "Name": "g",
                        "Tasks": [
                            {
                                "Name": "t",
                                "Driver": "raw_exec",
                                "Config": {"command": "/bin/sleep", "args": ["300"]},
                            }
                        ],
                    }
                ],
            }
        },
    )
    wait_for("the agent is up", lambda: [row["value"][1] for row in ask(prometheus, "up")] == ["1"])
    wait_for("the task is measured", lambda: ask(prometheus, 'nomad_client_allocs_memory_rss{task="t"}'))
    (host,) = {row["metric"]["host"] for row in ask(prometheus, "nomad_nomad_server_is_leader")}
    assert host == socket.gethostname()
    for expression in expressions():
        ask(prometheus, expression)  # fails where Prometheus cannot read it
    names = {name for text in expressions() for name in re.findall(r"nomad_[A-Za-z_]+", text)}
    missing = {name for name in names - ONLY_SOMETIMES if not ask(prometheus, name)}
    assert not missing
    dev_agent.call("DELETE", "/v1/job/watched?purge=true")
