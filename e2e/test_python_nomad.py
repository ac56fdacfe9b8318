"""python-nomad, a client that others wrote, works against the agent."""

from __future__ import annotations

from typing import Any

import nomad
import pytest
from yurt.testing.agent import Agent, raw_exec_job, wait_for


@pytest.fixture
def client(dev_agent: Agent) -> Any:
    return nomad.Nomad(host="127.0.0.1", port=dev_agent.port, timeout=10)


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
    assert [e["TriggeredBy"] for e in client.job.get_evaluations("theirs")] == ["job-register"]
    evaluation = client.evaluation.get_evaluation(registered["EvalID"])
    assert evaluation["Status"] == "complete"
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
