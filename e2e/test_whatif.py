"""`yurt whatif` on real agents: changes, a played trace, and another cluster that is only read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, dev_token, raw_exec_job, register

TRACE = "submit,duration,cpu,memory_mb,tenant,limit\n" + "".join(
    f"{minute * 60},600,100,16,team-{minute % 2},900\n" for minute in range(20)
)
QUEUE = {"Name": "batch", "BatchQueue": {"FairShare": {}}}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A second cluster, with access control."""
    agent = Agent(tmp_path_factory.mktemp("other"), data_dir=None)
    agent.flags = ("-acl",)
    agent.spawn()
    try:
        agent.token = dev_token(agent)
        yield agent
    finally:
        agent.interrupt()


def asked(agent: Agent, *arguments: str) -> tuple[int, Any]:
    done = agent.cli("whatif", *arguments, "-json")
    assert done.returncode in (0, 2), done.stderr
    found = json.loads(done.stdout)
    assert found["Warnings"] == []
    return done.returncode, found.get("Jobs", found)


def job_file(folder: Path, name: str, count: int, cpu: int) -> str:
    path = folder / f"{name}.json"
    made = raw_exec_job(name, "/bin/sleep", "1000", count=count)
    made["TaskGroups"][0]["Tasks"][0]["Resources"] = {"CPU": cpu, "MemoryMB": 10}
    path.write_text(json.dumps({"Job": made}))
    return str(path)


def test_another_cluster_is_read_and_not_changed(dev_agent: Agent, other: Agent, tmp_path: Path) -> None:
    register(other, raw_exec_job("web", "/bin/sleep", "1000", count=2))
    other.running("web", 2)
    index = other.get("/v1/jobs")[0]["JobModifyIndex"]
    (node,) = other.get("/v1/nodes")
    token = other.token
    seen = ("-from", other.address, "-token", token)
    assert asked(dev_agent, *seen) == (0, [])
    code, (row,) = asked(dev_agent, *seen, "-lose", node["ID"])
    assert (code, row["JobID"], row["RunningBefore"], row["Running"], row["Lost"]) == (2, "web", 2, 0, 2)
    code, (row,) = asked(dev_agent, *seen, "-lose", node["ID"], "-add", f"1:{node['ID']}")
    assert (code, row["Running"], row["Lost"]) == (0, 2, 2)
    code, (row,) = asked(dev_agent, *seen, "-job", job_file(tmp_path, "small", 1, 10))
    assert (code, row["JobID"], row["Running"]) == (0, "small", 1)
    code, (row,) = asked(dev_agent, *seen, "-job", job_file(tmp_path, "large", 1, 10_000_000))
    assert (code, row["Waiting"], "cpu" in row["Reason"]) == (2, 1, True)
    assert [(job["ID"], job["JobModifyIndex"]) for job in other.get("/v1/jobs")] == [("web", index)]


def test_a_cluster_that_refuses_says_which_right_is_missing(dev_agent: Agent, other: Agent) -> None:
    done = dev_agent.cli("whatif", "-from", other.address)
    assert done.returncode == 1
    assert "GET /v1/nodes: " in done.stderr
    assert "-from needs a token with node:read" in done.stderr


def test_a_token_of_partial_rights_is_warned_of_what_it_does_not_see(dev_agent: Agent, other: Agent) -> None:
    other.call("PUT", "/v1/namespace", {"Name": "dark"})
    rules = 'namespace "default" {\n  policy = "read"\n}\nnode {\n  policy = "read"\n}\n'
    rules += 'operator {\n  policy = "read"\n}\nquota {\n  policy = "read"\n}\n'
    other.call("PUT", "/v1/acl/policy/part", {"Name": "part", "Rules": rules})
    token = other.call("PUT", "/v1/acl/token", {"Name": "part", "Type": "client", "Policies": ["part"]})["SecretID"]
    done = dev_agent.cli("whatif", "-from", other.address, "-token", token, "-json")
    assert done.returncode == 0, done.stderr
    (warning,) = json.loads(done.stdout)["Warnings"]
    assert "the token sees only the namespaces that its policies name" in warning
    assert f"Warning: {warning}" in done.stderr
    all_of = rules.replace('"default"', '"*"') + 'namespace "dark" {\n  policy = "deny"\n}\n'
    other.call("PUT", "/v1/acl/policy/part", {"Name": "part", "Rules": all_of})
    done = dev_agent.cli("whatif", "-from", other.address, "-token", token, "-json")
    (warning,) = json.loads(done.stdout)["Warnings"]
    assert "in namespaces that match dark" in warning


def test_a_trace_is_played_over_the_agent_and_over_another_one(dev_agent: Agent, other: Agent, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    code, found = asked(dev_agent, "-trace", str(trace), "-check", "mean_wait < 1d", "-check", "unplaced <= 0")
    assert (code, found["Unit"], found["Submissions"], found["Ended"]) == (0, "MHz", 20, 20)
    assert set(found["Rho"]) == {"team-0", "team-1"}
    assert found["Waits"]["all"]["Jobs"] == 20
    assert dev_agent.get("/v1/jobs?namespace=*") == [], "nothing was submitted"
    code, found = asked(dev_agent, "-from", other.address, "-token", other.token, "-trace", str(trace))
    assert (code, found["Ended"]) == (0, 20)
    code, found = asked(dev_agent, "-trace", str(trace), "-check", "utilisation > 100%")
    assert (code, [one["Holds"] for one in found["Checks"]]) == (2, [False])


def test_a_snapshot_file_answers_the_same(dev_agent: Agent, tmp_path: Path) -> None:
    saved, trace = tmp_path / "state.snap", tmp_path / "trace.csv"
    trace.write_text(TRACE)
    assert dev_agent.cli("operator", "snapshot", "save", str(saved)).returncode == 0
    live, file = (asked(dev_agent, *source, "-trace", str(trace))[1] for source in ((), ("-snapshot", str(saved))))
    assert live["Waits"] == file["Waits"]
