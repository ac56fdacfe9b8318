"""Clients that others wrote: HashiCorp's Go package (e2e/go_api), with and without access control, and python-nomad."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nomad
import pytest
from yurt.testing.agent import Agent, ApiFailure, raw_exec_job, running_agent, wait_for
from yurt.testing.services.go_programs import build_go, fetched_module

pytestmark = pytest.mark.timeout(900)

SOURCES = Path(__file__).parent / "go_api"
OLDEST_GO = (1, 24)
RUN_LIMIT_S = 200
DENIED = "Unexpected response code: 403 (Permission denied)"
EXPECTED = {
    "list without a token": DENIED,
    "register elsewhere": DENIED,
    "register by a reader": DENIED,
    "stop by a reader": DENIED,
    "nodes by a developer": DENIED,
    "token list by a reader": DENIED,
    "logs by a reader": DENIED,
    "files by a reader": DENIED,
    "stop of an allocation by a reader": DENIED,
    "event stream of nodes": DENIED,
    "one-time exchange again": DENIED,
    "list with a revoked token": DENIED,
}
"""What the Go package is told in the steps that access control refuses."""
BEGINNINGS = {
    "bootstrap again": "Unexpected response code: 400 (ACL bootstrap already done (reset index: ",
    "wrong policy": "Unexpected response code: 400 (policy 0 invalid: 1 error occurred:\n\t* failed to parse rules: ",
    "token without rights": "Unexpected response code: 400 (token 0 invalid: 1 error occurred:\n\t* client token ",
    "login of another team": "Unexpected response code: 400 (no role or policy bindings matched)",
    "login by another key": "Unexpected response code: 401 (unable to validate provided token: ",
    "auth url without its parts": "Unexpected response code: 400 (invalid OIDC auth-url request: missing client nonce",
    "exec without alloc-node-exec": "Permission denied: ",
}
"""How the other refusals begin."""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """A dev agent with access control that nobody has bootstrapped."""
    made = Agent(tmp_path, data_dir=None)
    made.flags = ("-acl-enabled",)
    made.spawn()
    try:
        wait_for("the first screen", lambda: "will stream in below" in made.log.read_text())
        yield made
    finally:
        made.interrupt()


@pytest.fixture(scope="module")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of e2e/go_api; skips where it cannot be built."""
    folder = tmp_path_factory.mktemp("go")
    build_go(fetched_module(SOURCES, folder, oldest=OLDEST_GO), folder, ".")
    return folder / "goapi"


def test_the_go_package_bootstraps_grants_and_is_refused(agent: Agent, go_client: Path) -> None:
    done = subprocess.run(
        [str(go_client), agent.address], capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, str] = json.loads(done.stdout)

    assert {step: text for step, text in told.items() if step in EXPECTED} == EXPECTED
    for step, beginning in BEGINNINGS.items():
        assert told[step].startswith(beginning), (step, told[step])
    rest = {step: text for step, text in told.items() if step not in EXPECTED and step not in BEGINNINGS}
    assert len(rest) > 20 and set(rest.values()) == {"ok"}, rest


def test_the_go_package_leads_jobs_variables_volumes_and_nodes(tmp_path: Path, go_client: Path) -> None:
    with running_agent(tmp_path) as agent:
        done = subprocess.run(
            [str(go_client), agent.address, "flows"], capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
        )
    assert done.returncode == 0, done.stderr
    told: dict[str, str] = json.loads(done.stdout)

    assert {step: text for step, text in told.items() if text != "ok"} == {}
    assert len(told) > 80


def client_of(agent: Agent, token: str | None, **more: Any) -> Any:
    return nomad.Nomad(host="127.0.0.1", port=agent.port, timeout=120, token=token, **more)


def test_python_nomad_bootstraps_grants_and_is_refused(agent: Agent) -> None:
    exceptions = nomad.api.exceptions
    anonymous = client_of(agent, None)
    with pytest.raises(exceptions.URLNotAuthorizedNomadException):
        anonymous.jobs.get_jobs()
    first = anonymous.acl.generate_bootstrap()
    with pytest.raises(exceptions.BadRequestNomadException, match="ACL bootstrap already done"):
        anonymous.acl.generate_bootstrap()

    root = client_of(agent, first["SecretID"])
    root.namespace.create_namespace({"Name": "team"})
    root.acl.create_policy(id_="dev", policy={"Name": "dev", "Rules": 'namespace "team" { policy = "write" }'})
    made = root.acl.create_token({"Name": "dev", "Type": "client", "Policies": ["dev"]})
    developer = client_of(agent, made["SecretID"], namespace="team")
    assert developer.acl.get_self_token()["AccessorID"] == made["AccessorID"]
    assert [policy["Name"] for policy in root.acl.get_policies()] == ["dev"]
    assert root.acl.get_policy("dev")["Rules"] == 'namespace "team" { policy = "write" }'

    job = {**raw_exec_job("theirs", "/bin/sleep", "1000"), "Namespace": "team"}
    assert developer.job.register_job("theirs", {"Job": job})["EvalID"]
    assert developer.job.get_job("theirs")["ID"] == "theirs"
    with pytest.raises(exceptions.URLNotAuthorizedNomadException):
        developer.job.register_job("theirs", {"Job": {**job, "Namespace": "default"}})
    for refused in (developer.nodes.get_nodes, developer.acl.get_tokens, developer.agent.get_agent):
        with pytest.raises(exceptions.URLNotAuthorizedNomadException):
            refused()
    root.acl.delete_token(made["AccessorID"])
    with pytest.raises(exceptions.URLNotAuthorizedNomadException):
        developer.job.get_job("theirs")


def test_the_command_line_bootstraps_and_shows_tokens_as_recorded(agent: Agent) -> None:
    """The keys and sentences are those of Nomad's commands."""
    first = facts(agent, "acl", "bootstrap")
    agent.token = first["Secret ID"]
    assert list(first) == [
        "Accessor ID", "Secret ID", "Name", "Type", "Global", "Create Time", "Expiry Time", "Create Index",
        "Modify Index", "Policies", "Roles",
    ]  # fmt: skip
    assert (first["Name"], first["Type"], first["Expiry Time"], first["Policies"]) == (
        "Bootstrap Token", "management", "<none>", "n/a",
    )  # fmt: skip
    (agent.folder / "dev.hcl").write_text('namespace "default" { policy = "write" }\n')
    applied = agent.cli("acl", "policy", "apply", "-description=Developers", "dev", "dev.hcl")
    assert applied.stdout == 'Successfully wrote "dev" ACL policy!\n'
    listed = agent.cli("acl", "policy", "list").stdout.splitlines()
    assert [line.split() for line in listed] == [["Name", "Description"], ["dev", "Developers"]]
    made = facts(agent, "acl", "token", "create", "-name=anna", "-policy=dev", "-ttl=1h")
    assert (made["Type"], made["Policies"], made["Global"]) == ("client", "[dev]", "false")
    assert made["Expiry Time"] != "<none>"
    tokens = agent.cli("acl", "token", "list").stdout.splitlines()
    assert tokens[0].split() == ["Name", "Type", "Global", "Accessor", "ID", "Expired"] and len(tokens) == 3
    deleted = agent.cli("acl", "token", "delete", made["Accessor ID"])
    assert deleted.stdout == f"Token {made['Accessor ID']} successfully deleted\n"
    with pytest.raises(ApiFailure, match="Permission denied"):
        agent.get("/v1/jobs", token=made["Secret ID"])
    assert agent.cli("acl", "policy", "delete", "dev").stdout == "Successfully deleted dev policy!\n"


def facts(agent: Agent, *words: str) -> dict[str, str]:
    """The `key = value` lines of a command."""
    done = agent.cli(*words)
    assert done.returncode == 0, done.stderr
    pairs = (line.split("=", 1) for line in done.stdout.splitlines() if " = " in line)
    return {key.strip(): value.strip() for key, value in pairs}
