"""Access control on a real agent: who may do what, at once and after rights change, and over restarts."""

from __future__ import annotations

import http.client
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, ApiFailure, dev_token, raw_exec_job, register, wait_for

DEVELOPER = 'namespace "NAME" { policy = "write" }'
LISTENING_S = 60.0
COUNTING = "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.2; done"


@pytest.fixture(scope="module")
def acl_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A dev agent with access control, namespaces `team-a` and `team-b`, and tokens that may expire soon."""
    extra = {"acl": {"token_min_expiration_ttl": "1s"}}
    agent = Agent(tmp_path_factory.mktemp("acl"), data_dir=None, extra=extra)
    agent.flags = ("-acl",)
    agent.spawn()
    try:
        agent.token = dev_token(agent)
        for name in ("team-a", "team-b"):
            agent.call("PUT", f"/v1/namespace/{name}", {"Name": name})
        yield agent
    finally:
        agent.interrupt()


def token_with(agent: Agent, name: str, rules: str, **more: Any) -> dict[str, Any]:
    """A new token with one new policy."""
    agent.call("PUT", f"/v1/acl/policy/{name}", {"Name": name, "Rules": rules})
    body = {"Name": name, "Type": "client", "Policies": [name], **more}
    made: dict[str, Any] = agent.call("PUT", "/v1/acl/token", body)
    return made


def secret_with(agent: Agent, name: str, rules: str, **more: Any) -> str:
    """The secret of a new token with one new policy."""
    return str(token_with(agent, name, rules, **more)["SecretID"])


def answer_of(agent: Agent, method: str, path: str, body: Any = None, *, token: str) -> tuple[int, str]:
    """Status and text of a request that may be refused."""
    try:
        return 200, json.dumps(agent.call(method, path, body, token=token))
    except ApiFailure as failure:
        return failure.status, failure.text


DENIED = (403, "Permission denied")


@pytest.fixture(scope="module")
def counting(acl_agent: Agent) -> str:
    """An allocation in `team-a` that writes lines to its log."""
    job = {**raw_exec_job("counting", "/bin/sh", "-c", COUNTING), "Namespace": "team-a"}
    register(acl_agent, job)

    def running() -> str:
        allocs = acl_agent.get("/v1/job/counting/allocations?namespace=team-a")
        return next((alloc["ID"] for alloc in allocs if alloc["ClientStatus"] == "running"), "")

    return wait_for("the counting job", running)


# One team beside another.


def test_a_team_runs_reads_and_stops_its_own_jobs_only(acl_agent: Agent) -> None:
    anna = secret_with(acl_agent, "own-jobs", DEVELOPER.replace("NAME", "team-a"))
    job = raw_exec_job("sleeper", "/bin/sleep", "1000")
    for namespace, allowed in (("team-a", True), ("team-b", False), ("default", False)):
        body = {"Job": {**job, "Namespace": namespace}}
        status, text = answer_of(acl_agent, "PUT", "/v1/jobs", body, token=anna)
        assert (status == 200) is allowed, (namespace, status, text)
    register(acl_agent, {**job, "Namespace": "team-b"})

    listed = acl_agent.get("/v1/jobs?namespace=*&prefix=sleeper", token=anna)
    assert [row["Namespace"] for row in listed] == ["team-a"]
    assert acl_agent.get("/v1/job/sleeper?namespace=team-a", token=anna)["ID"] == "sleeper"
    foreign = answer_of(acl_agent, "GET", "/v1/job/sleeper?namespace=team-b", token=anna)
    missing = answer_of(acl_agent, "GET", "/v1/job/nothing?namespace=team-b", token=anna)
    assert foreign == missing == DENIED
    assert answer_of(acl_agent, "DELETE", "/v1/job/sleeper?namespace=team-b", token=anna) == DENIED
    assert answer_of(acl_agent, "DELETE", "/v1/job/sleeper?namespace=team-a", token=anna)[0] == 200
    assert acl_agent.get("/v1/job/sleeper?namespace=team-b")["Stop"] is False
    acl_agent.call("DELETE", "/v1/job/sleeper?namespace=team-b")


def test_what_is_found_by_its_id_is_held_to_its_own_namespace(acl_agent: Agent, counting: str) -> None:
    bert = secret_with(acl_agent, "by-id", DEVELOPER.replace("NAME", "team-b"))
    evaluation = acl_agent.get(f"/v1/allocation/{counting}")["EvalID"]
    for path in (f"/v1/allocation/{counting}", f"/v1/evaluation/{evaluation}", f"/v1/client/fs/ls/{counting}"):
        status, text = answer_of(acl_agent, "GET", f"{path}?namespace=team-b", token=bert)
        unknown = path.replace(counting, "11111111-2222-3333-4444-555555555555").replace(
            evaluation, "11111111-2222-3333-4444-555555555555"
        )
        absent = answer_of(acl_agent, "GET", f"{unknown}?namespace=team-b", token=bert)
        assert status in (403, 404) and (status, "team-a" in text) == (absent[0], False), (path, status, text, absent)


def test_operators_of_nodes_may_not_read_jobs_and_the_other_way_round(acl_agent: Agent) -> None:
    operator = secret_with(acl_agent, "nodes", 'node { policy = "write" }')
    developer = secret_with(acl_agent, "jobs", DEVELOPER.replace("NAME", "*"))
    node = acl_agent.get("/v1/nodes")[0]["ID"]
    drain = {"DrainSpec": None, "MarkEligible": True}
    assert answer_of(acl_agent, "PUT", f"/v1/node/{node}/drain", drain, token=operator)[0] == 200
    assert answer_of(acl_agent, "PUT", f"/v1/node/{node}/drain", drain, token=developer) == DENIED
    assert answer_of(acl_agent, "GET", "/v1/jobs", token=operator) == DENIED
    assert answer_of(acl_agent, "GET", "/v1/nodes", token=developer) == DENIED
    for path in ("/v1/acl/tokens", "/v1/operator/snapshot", "/v1/agent/self"):
        assert answer_of(acl_agent, "GET", path, token=developer) == DENIED, path


# Logs, files and commands in tasks.

TASK_RIGHTS = (
    '"parse-job"', '"read-logs"', '"read-fs"', '"alloc-exec"', '"alloc-exec", "alloc-node-exec"', '"alloc-lifecycle"',
)  # fmt: skip


def test_logs_files_and_commands_each_need_their_right(acl_agent: Agent, counting: str) -> None:
    rules = 'namespace "team-a" { capabilities = ["list-jobs", "read-job", CAPABILITIES] }'
    may: dict[str, set[str]] = {}
    for number, capabilities in enumerate(TASK_RIGHTS):
        secret = secret_with(acl_agent, f"task-rights-{number}", rules.replace("CAPABILITIES", capabilities))
        who = ("-namespace=team-a", f"-token={secret}")
        done = {
            "logs": acl_agent.cli("alloc", "logs", *who, counting),
            "fs": acl_agent.cli("alloc", "fs", *who, counting, "alloc/logs/"),
            "exec": acl_agent.cli("alloc", "exec", *who, counting, "/bin/echo", "ran"),
            "signal": acl_agent.cli("alloc", "signal", "-s", "SIGCONT", *who, counting),
        }
        may[capabilities] = {name for name, result in done.items() if result.returncode == 0}
        refused = [result.stderr for result in done.values() if result.returncode != 0]
        assert all("ermission denied" in said for said in refused), refused
    assert may == {
        '"parse-job"': set(),
        '"read-logs"': {"logs"},
        '"read-fs"': {"logs", "fs"},
        '"alloc-exec"': set(),
        '"alloc-exec", "alloc-node-exec"': {"exec"},
        '"alloc-lifecycle"': {"signal"},
    }


def test_a_log_that_is_followed_ends_when_the_token_is_revoked(acl_agent: Agent, counting: str) -> None:
    token = token_with(acl_agent, "follower", 'namespace "team-a" { policy = "write" }')
    command = [*acl_agent.command, "alloc", "logs", "-f", "-namespace=team-a", f"-token={token['SecretID']}", counting]
    environment = acl_agent.environment()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=acl_agent.folder
    ) as follow:
        assert follow.stdout is not None and follow.stdout.readline().startswith("line ")
        acl_agent.call("DELETE", f"/v1/acl/token/{token['AccessorID']}")
        begun = time.monotonic()
        _, said = follow.communicate(timeout=LISTENING_S)
    assert follow.returncode != 0 and "ermission denied" in said, said
    assert time.monotonic() - begun < LISTENING_S


# Rights that change while a request waits.


class Waiting:
    """A request in another thread."""

    def __init__(self, agent: Agent, path: str, token: str) -> None:
        self.answer: tuple[int, str] = (0, "")
        self._thread = threading.Thread(target=self._ask, args=(agent, path, token), daemon=True)
        self._thread.start()

    def _ask(self, agent: Agent, path: str, token: str) -> None:
        self.answer = answer_of(agent, "GET", path, token=token)

    def end(self) -> tuple[int, str]:
        """Wait for the answer."""
        self._thread.join(LISTENING_S)
        assert not self._thread.is_alive(), "the request still waits"
        return self.answer


def index_of(agent: Agent, path: str) -> int:
    """The index of an answer."""
    connection = http.client.HTTPConnection(agent.host, agent.port, timeout=LISTENING_S)
    connection.request("GET", path, headers={"X-Nomad-Token": agent.token})
    response = connection.getresponse()
    response.read()
    connection.close()
    return int(response.headers["X-Nomad-Index"])


def test_a_blocking_query_is_decided_again_when_it_wakes(acl_agent: Agent) -> None:
    token = token_with(acl_agent, "waiter", 'namespace "team-b" { policy = "read" }')
    register(acl_agent, {**raw_exec_job("wake", "/bin/sleep", "1000"), "Namespace": "team-b"})
    path = "/v1/jobs?namespace=team-b"
    index = index_of(acl_agent, path)
    waiting = Waiting(acl_agent, f"{path}&index={index + 1000}&wait=10s", token["SecretID"])
    time.sleep(0.5)
    acl_agent.call("DELETE", f"/v1/acl/token/{token['AccessorID']}")
    acl_agent.call("DELETE", "/v1/job/wake?namespace=team-b")
    assert waiting.end() == DENIED


def test_a_change_of_a_policy_counts_at_once(acl_agent: Agent) -> None:
    secret = secret_with(acl_agent, "changing", 'namespace "team-b" { policy = "read" }')
    assert answer_of(acl_agent, "GET", "/v1/jobs?namespace=team-b", token=secret)[0] == 200
    rules = 'namespace "team-a" { policy = "read" }'
    acl_agent.call("PUT", "/v1/acl/policy/changing", {"Name": "changing", "Rules": rules})
    assert answer_of(acl_agent, "GET", "/v1/jobs?namespace=team-b", token=secret) == DENIED
    assert answer_of(acl_agent, "GET", "/v1/jobs?namespace=team-a", token=secret)[0] == 200
    acl_agent.call("DELETE", "/v1/acl/policy/changing")
    assert answer_of(acl_agent, "GET", "/v1/jobs?namespace=team-a", token=secret) == DENIED


def test_a_token_ends_with_its_time(acl_agent: Agent) -> None:
    secret = secret_with(acl_agent, "short", 'namespace "team-b" { policy = "read" }', ExpirationTTL="2s")
    assert answer_of(acl_agent, "GET", "/v1/jobs?namespace=team-b", token=secret)[0] == 200
    wait_for("its end", lambda: answer_of(acl_agent, "GET", "/v1/jobs?namespace=team-b", token=secret) == DENIED)


def test_a_policy_named_anonymous_is_for_callers_without_a_token(acl_agent: Agent) -> None:
    assert answer_of(acl_agent, "GET", "/v1/jobs?namespace=team-b", token="") == DENIED
    acl_agent.call(
        "PUT", "/v1/acl/policy/anonymous", {"Name": "anonymous", "Rules": 'namespace "team-b" { policy = "read" }'}
    )
    try:
        assert answer_of(acl_agent, "GET", "/v1/jobs?namespace=team-b", token="")[0] == 200
        assert answer_of(acl_agent, "GET", "/v1/jobs?namespace=team-a", token="") == DENIED
        unknown = "11111111-2222-3333-4444-555555555555"
        for wrong in (unknown, "not-a-token"):
            assert answer_of(acl_agent, "GET", "/v1/jobs?namespace=team-b", token=wrong) == DENIED
    finally:
        acl_agent.call("DELETE", "/v1/acl/policy/anonymous")


# The event stream.


class Stream:
    """A reader of the event stream."""

    def __init__(self, agent: Agent, query: str, token: str) -> None:
        self._connection = http.client.HTTPConnection(agent.host, agent.port, timeout=LISTENING_S)
        self._connection.request("GET", f"/v1/event/stream?{query}", headers={"X-Nomad-Token": token})
        self._response = self._connection.getresponse()
        self.status = self._response.status

    def line(self) -> dict[str, Any]:
        """The next line that says something; empty at the end."""
        while text := self._response.readline():
            found: dict[str, Any] = json.loads(text)
            if found:
                return found
        return {}

    def close(self) -> None:
        """Leave."""
        self._connection.close()


def test_a_stream_shows_own_events_and_ends_with_the_token(acl_agent: Agent) -> None:
    token = token_with(acl_agent, "listener", 'namespace "team-a" { policy = "read" }')
    for query in ("topic=Node", "topic=*", "topic=Job&namespace=team-b", "topic=ACLToken", "topic=Job&namespace=*"):
        refused = Stream(acl_agent, query, token["SecretID"])
        assert refused.status == 403, query
        refused.close()
    stream = Stream(acl_agent, "topic=Job&namespace=team-a", token["SecretID"])
    assert stream.status == 200
    register(acl_agent, {**raw_exec_job("foreign", "/bin/sleep", "1000"), "Namespace": "team-b"})
    register(acl_agent, {**raw_exec_job("own", "/bin/sleep", "1000"), "Namespace": "team-a"})
    seen: list[str] = []
    while "own" not in seen:
        seen += [event["Key"] for event in stream.line()["Events"]]
    assert "foreign" not in seen
    acl_agent.call("DELETE", f"/v1/acl/token/{token['AccessorID']}")
    last: dict[str, Any] = {}
    while found := stream.line():
        last = found
    assert last.get("Error", "").startswith("subscription closed by server, client should resubscribe"), last
    stream.close()


# A server that keeps its state.


def test_tokens_policies_and_revocations_outlive_restarts(tmp_path: Path) -> None:
    agent = Agent(tmp_path, data_dir=tmp_path / "data", extra={"acl": {"enabled": True}})
    agent.spawn()
    made = wait_for("the first token", lambda: _bootstrapped(agent))
    try:
        agent.token = made["SecretID"]
        kept = secret_with(agent, "kept", 'node { policy = "read" }')
        revoked = token_with(agent, "revoked", 'node { policy = "read" }')
        agent.call("DELETE", f"/v1/acl/token/{revoked['AccessorID']}")
        agent.kill()
        agent.start()
        assert agent.get("/v1/acl/token/self")["AccessorID"] == made["AccessorID"]
        assert answer_of(agent, "GET", "/v1/nodes", token=kept)[0] == 200
        assert answer_of(agent, "GET", "/v1/nodes", token=revoked["SecretID"]) == DENIED
        again = agent.cli("acl", "bootstrap")
        assert again.returncode == 1 and "ACL bootstrap already done" in again.stderr
    finally:
        agent.interrupt()
    secrets = (made["SecretID"], kept, revoked["SecretID"])
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert not [secret for secret in secrets if secret.encode() in stored]
    assert not [secret for secret in secrets if secret in agent.log.read_text()]


def _bootstrapped(agent: Agent) -> dict[str, Any] | None:
    """The bootstrap token; None while the server cannot make it yet."""
    try:
        made: dict[str, Any] = agent.call("PUT", "/v1/acl/bootstrap")
    except (OSError, http.client.HTTPException, ApiFailure):
        return None
    return made
