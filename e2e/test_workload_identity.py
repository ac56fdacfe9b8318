"""Tasks act as themselves: over their socket and in their templates, on a real agent with access control."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, dev_token, raw_exec_job, register, running_agent, wait_for

from e2e.test_far_clients import ServerAgent, far_agent, rpc_port

ASKER = """
import http.client, json, os, socket, sys, time

class Socket(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("secrets/api.sock")  # the whole path is longer than the 107 bytes that a socket may have

def ask(path, token):
    found = Socket("task", timeout=60)
    found.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = found.getresponse()
    return answer.status, answer.read().decode()

token = os.environ["NOMAD_TOKEN"]
told = {path: ask(path, token) for path in sys.argv[1:]}
told["without a token"] = ask("/v1/jobs", "")
told["from a template"] = open("local/conf").read() if os.path.exists("local/conf") else ""
told["address"] = os.environ["NOMAD_UNIX_ADDR"] == f"unix://{os.getcwd()}/secrets/api.sock"
told["as a file"] = open("secrets/nomad_token").read() == token
print(json.dumps(told), flush=True)
time.sleep(600)
"""
OWN, FOREIGN = "/v1/var/nomad/jobs/reader", "/v1/var/nomad/jobs/other"
PATHS = (OWN, FOREIGN, "/v1/vars", "/v1/services", "/v1/jobs", "/v1/acl/policy/self")
VALUE = '{{ with nomadVar "nomad/jobs/%s" }}{{ .secret }}{{ end }}'


def reader(name: str, *, template: str = "") -> dict[str, Any]:
    job = raw_exec_job(
        name, "/bin/sh", "-c", 'cd "$NOMAD_TASK_DIR/.." && exec "$@"', "sh", sys.executable, "-c", ASKER, *PATHS
    )
    task = job["TaskGroups"][0]["Tasks"][0]
    job["TaskGroups"][0] |= {
        "RestartPolicy": {"Attempts": 0, "Mode": "fail"}, "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
    }  # fmt: skip
    task["Identity"] = {"Env": True, "File": True}
    if template:
        task["Templates"] = [{"EmbeddedTmpl": VALUE % template, "DestPath": "local/conf", "ChangeMode": "noop"}]
    return job


def put(agent: Agent, job: str) -> None:
    path = f"nomad/jobs/{job}"
    agent.call("PUT", f"/v1/var/{path}", {"Path": path, "Items": {"secret": f"secret of {job}"}})


def told(agent: Agent, job: str) -> dict[str, Any]:
    """What the task has printed; fails with what it said when it ended."""

    def logged() -> str:
        for alloc in agent.allocs(job):
            found = agent.cli("alloc", "logs", alloc["ID"])
            if found.stdout.strip():
                return found.stdout
            if alloc["ClientStatus"] in ("failed", "complete"):
                said = agent.cli("alloc", "logs", "-stderr", alloc["ID"]).stdout
                raise AssertionError(
                    f"{job} ended: {said or found.stderr}\n{agent.cli('alloc', 'status', alloc['ID']).stdout}"
                )
        return ""

    found: dict[str, Any] = json.loads(wait_for("what the task was told", logged))
    return found


def check(found: dict[str, Any]) -> None:
    """The task read what is its own, and nothing else."""
    status, text = found[OWN]
    assert (status, json.loads(text)["Items"]) == (200, {"secret": "secret of reader"})
    assert found[FOREIGN] == [403, "Permission denied"]
    assert [row["Path"] for row in json.loads(found["/v1/vars"][1])] == ["nomad/jobs/reader"]
    assert found["/v1/services"][0] == 200
    assert found["/v1/jobs"] == [403, "Permission denied"]
    assert found["/v1/acl/policy/self"] == [200, "null"]
    assert found["without a token"] == [401, "Unauthorized"]
    assert found["from a template"] == "secret of reader"
    assert found["as a file"] is True
    assert found["address"] is True


@pytest.fixture(scope="module")
def acl_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A dev agent with access control, and the variables of two jobs."""
    agent = Agent(tmp_path_factory.mktemp("acl"), data_dir=None)
    agent.flags = ("-acl",)
    agent.spawn()
    agent.token = dev_token(agent)
    wait_for("a ready node", agent.is_ready)
    try:
        put(agent, "reader")
        put(agent, "other")
        yield agent
    finally:
        agent.interrupt()


def test_a_task_reads_its_own_variables_by_its_socket_and_by_template_and_no_others(acl_agent: Agent) -> None:
    register(acl_agent, reader("reader", template="reader"))
    check(told(acl_agent, "reader"))


def test_a_template_does_not_read_the_variables_of_another_job(acl_agent: Agent) -> None:
    register(acl_agent, reader("thief", template="other"))

    def events() -> list[str]:
        allocs = acl_agent.allocs("thief")
        states = acl_agent.get(f"/v1/allocation/{allocs[0]['ID']}")["TaskStates"] if allocs else {}
        return [each["DisplayMessage"] for each in (states or {}).get("main", {}).get("Events") or []]

    wait_for("the refusal", lambda: any("Permission denied" in text for text in events()))
    assert not any("Started" in text for text in events())


def test_a_policy_of_the_job_lets_its_template_read_more(acl_agent: Agent) -> None:
    rules = 'namespace "default" { variables { path "nomad/jobs/other" { capabilities = ["read"] } } }'
    body = {"Name": "borrower", "Rules": rules, "JobACL": {"Namespace": "default", "JobID": "borrower"}}
    acl_agent.call("PUT", "/v1/acl/policy/borrower", body)
    register(acl_agent, reader("borrower", template="other"))
    found = told(acl_agent, "borrower")
    assert found["from a template"] == "secret of other"
    assert found[FOREIGN][0] == 200
    assert found[OWN] == [403, "Permission denied"]


def test_the_socket_serves_again_after_the_agent_was_killed(tmp_path: Path) -> None:
    with running_agent(tmp_path, data_dir=tmp_path / "data") as agent:
        register(agent, raw_exec_job("stays", "/bin/sh", "-c", "sleep 600"))
        (alloc,) = agent.running("stays", 1)
        path = tmp_path / "data" / "alloc" / alloc["ID"] / "main" / "secrets" / "api.sock"
        before = path.stat().st_ino
        agent.kill()
        agent.start()
        wait_for("another socket", lambda: path.exists() and path.stat().st_ino != before)
        agent.running("stays", 1)


def test_the_socket_of_a_client_without_a_server_asks_its_servers(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    extra = {"client": {"enabled": False}, "acl": {"enabled": True}}
    server = ServerAgent(tmp_path / "server", data_dir=tmp_path / "server" / "data", name="main", extra=extra)
    server.spawn()
    client = far_agent(tmp_path, "far", rpc_port(server))
    settings = json.loads(client.config.read_text())
    client.config.write_text(json.dumps(settings | {"acl": {"enabled": True}}))
    try:
        wait_for("a leader", lambda: "bootstrapped" in bootstrap(server))
        client.token = server.token
        client.start()
        put(server, "reader")
        put(server, "other")
        register(server, reader("reader", template="reader"))
        check(told(server, "reader"))
        server.call("DELETE", "/v1/job/reader")
        wait_for("the end", lambda: all(each["ClientStatus"] == "complete" for each in server.allocs("reader")))
    finally:
        client.interrupt()
        server.interrupt()


def bootstrap(server: Agent) -> str:
    """Take the first management token, once the server leads."""
    try:
        server.token = server.call("PUT", "/v1/acl/bootstrap")["SecretID"]
    except OSError:
        return ""
    return "bootstrapped"
