"""python-nomad, a client that others wrote, works against the agent."""

from __future__ import annotations

from typing import Any

import nomad
import pytest
from yurt.testing.agent import Agent, raw_exec_job, wait_for


@pytest.fixture
def client(dev_agent: Agent) -> Any:
    return nomad.Nomad(host="127.0.0.1", port=dev_agent.port, timeout=120)


def test_it_registers_reads_plans_and_stops_a_job(client: Any, dev_agent: Agent) -> None:
    job = raw_exec_job("theirs", "/bin/sleep", "1000")

    plan = client.job.plan_job("theirs", {"Job": job, "Diff": True})
    registered = client.job.register_job("theirs", {"Job": job})
    dev_agent.running("theirs", 1)

    assert plan["Diff"]["Type"] == "Added"
    assert registered["EvalID"]
    assert "theirs" in client.jobs
    assert client.job.get_job("theirs")["Status"] == "running"
    assert client.job.get_summary("theirs")["Summary"]["g"]["Running"] == 1
    assert client.job.get_versions("theirs")["Versions"][0]["Version"] == 0
    assert "job-register" in [e["TriggeredBy"] for e in client.job.get_evaluations("theirs")]
    get_evaluation = client.evaluation.get_evaluation
    wait_for("its end", lambda: get_evaluation(registered["EvalID"])["Status"] == "complete")
    allocation = client.job.get_allocations("theirs")[0]
    assert client.allocation.get_allocation(allocation["ID"])["Job"]["ID"] == "theirs"
    names = [entry["Name"] for entry in client.client.ls.list_files(allocation["ID"], "/")]
    assert names == ["alloc", "main"]
    assert client.client.allocation.read_allocation_stats(allocation["ID"])["Tasks"]["main"]
    client.job.deregister_job("theirs")
    wait_for("the job to die", lambda: client.job.get_job("theirs")["Status"] == "dead")


def test_it_sees_nodes_agents_and_status(client: Any) -> None:
    node = next(iter(client.nodes.get_nodes()))

    assert client.node.get_node(node["ID"])["Status"] == "ready"
    assert client.agent.get_members()["Members"]
    assert client.agent.get_agent()["config"]
    assert client.status.leader.get_leader()
    assert client.regions.get_regions() == ["global"]
    client.system.initiate_garbage_collection()


SOURCE = """
job "p" {
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
"""


def test_it_parses_and_validates_job_files(client: Any) -> None:
    parsed = client.jobs.parse(SOURCE)
    verdict = client.validate.validate_job({"Job": parsed})

    assert parsed["ID"] == "p"
    assert verdict.json()["ValidationErrors"] is None


def test_an_unknown_job_is_its_own_error(client: Any) -> None:
    with pytest.raises(nomad.api.exceptions.URLNotFoundNomadException):
        client.job.get_job("nope")


def test_it_acts_on_allocations_and_reads_their_files(client: Any, dev_agent: Agent) -> None:
    script = "trap 'echo hup' HUP; echo ready; while true; do sleep 0.05; done"
    client.job.register_job("acts", {"Job": raw_exec_job("acts", "/bin/sh", "-c", script)})
    first = dev_agent.running("acts", 1)[0]["ID"]
    wait_for("its first line", lambda: log_of(client, first).startswith("ready"))

    client.client.allocation.signal_allocation(first, "SIGHUP", task="main")
    wait_for("the signal in the log", lambda: "hup" in log_of(client, first))
    client.client.allocation.restart_allocation(first)
    wait_for("a second start", lambda: log_of(client, first).count("ready") == 2)
    stopped = client.allocation.stop_allocation(first)
    wait_for("a replacement", lambda: [a for a in dev_agent.running("acts", 1) if a["ID"] != first])

    assert stopped["EvalID"]
    assert "ready" in client.client.cat.read_file(first, "alloc/logs/main.stdout.0")
    assert client.client.stat.stat_file(first, "alloc/logs/main.stdout.0")["Size"] > 0
    assert client.client.read_at.read_file_offset(first, 0, 5, path="alloc/logs/main.stdout.0") == "ready"
    assert len(client.allocations.get_allocations()) >= 2
    client.job.deregister_job("acts", purge=True)


def log_of(client: Any, alloc_id: str) -> str:
    """The task's standard output so far."""
    return str(client.client.stream_logs.stream(alloc_id, "main", "stdout", plain=True))


def test_it_changes_versions_and_follows_deployments(client: Any, dev_agent: Agent) -> None:
    job = raw_exec_job("versions", "/bin/sleep", "1000", Update={"MinHealthyTime": 100_000_000})
    client.job.register_job("versions", {"Job": job})
    wait_for("the first deployment", lambda: status_of(client) == (0, "successful"))
    job["TaskGroups"][0]["Tasks"][0]["Config"]["args"] = ["1001"]
    client.job.register_job("versions", {"Job": job})
    wait_for("the second deployment", lambda: status_of(client) == (1, "successful"))

    client.job.revert_job("versions", 0)
    wait_for("the third deployment", lambda: status_of(client) == (2, "successful"))

    deployment = client.job.get_deployment("versions")["ID"]
    assert client.deployment.get_deployment(deployment)["TaskGroups"]["g"]["HealthyAllocs"] == 1
    assert client.deployment.get_deployment_allocations(deployment)
    assert [v["Version"] for v in client.job.get_versions("versions")["Versions"]] == [2, 1, 0]
    assert client.job.evaluate_job("versions")["EvalID"]
    assert client.search.search("versi", "jobs")["Matches"]["jobs"] == ["versions"]
    client.job.deregister_job("versions", purge=True)


def status_of(client: Any) -> tuple[int, str] | None:
    """Version and status of the job's newest deployment."""
    found = client.job.get_deployment("versions")
    return (found["JobVersion"], found["Status"]) if found else None


def test_it_manages_nodes_and_namespaces(client: Any, dev_agent: Agent) -> None:
    node = next(iter(client.nodes.get_nodes()))["ID"]

    client.node.eligible_node(node, ineligible=True)
    assert client.node.get_node(node)["SchedulingEligibility"] == "ineligible"
    client.node.eligible_node(node, eligible=True)
    assert client.node.get_node(node)["SchedulingEligibility"] == "eligible"
    client.namespace.create_namespace({"Name": "team", "Description": "a team"})
    assert "team" in [namespace["Name"] for namespace in client.namespaces.get_namespaces()]
    client.namespace.delete_namespace("team")
    assert client.metrics.get_metrics()
    assert isinstance(client.node.get_allocations(node), list)


def test_it_writes_and_reads_variables(client: Any) -> None:
    from nomad.api.exceptions import VariableConflict

    written = client.variable.create_variable("app/settings", {"Items": {"user": "anna"}})
    assert client.variable.get_variable("app/settings") == written
    assert [row["Path"] for row in client.variables.get_variables(prefix="app/")] == ["app/settings"]
    with pytest.raises(VariableConflict, match="anna"):
        client.variable.create_variable("app/settings", {"Items": {"user": "bert"}}, cas=0)
    client.variable.delete_variable("app/settings", cas=written["ModifyIndex"])
    assert "app/settings" not in client.variable
