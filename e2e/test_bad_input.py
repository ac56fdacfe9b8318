"""Bad input gets a clear error, and nothing that was there is lost."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, ApiFailure, raw_exec_job, register, running_agent, wait_for

GOOD = """\
job "j" {
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


def put(agent: Agent, body: bytes, path: str = "/v1/jobs") -> tuple[int, str]:
    """A raw body; status and text."""
    connection = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=120)
    try:
        connection.request("PUT", path, body=body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (BrokenPipeError, ConnectionResetError):
        return 413, "closed"
    finally:
        connection.close()


def is_alive(agent: Agent) -> bool:
    """The agent still answers."""
    return bool(agent.get("/v1/status/leader"))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "Request body is empty"),
        (b"{}", "Job must be specified"),
        (b"{", ""),
        (b'{"Job": 7}', "Job"),
        (b'{"Job": {"ID": "x", "TaskGroups": "no"}}', "TaskGroups"),
        (b'{"Job": {"ID": "x", "TaskGroups": [{"Name": "g", "Count": "three"}]}}', "Count"),
        (b'{"Job": {"ID": "x", "Type": "nonsense", "TaskGroups": [{"Name": "g", "Tasks": []}]}}', "type"),
        (b"\xff\xfe\x00", ""),
        (b'{"Job": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", ""),
    ],
)
def test_a_bad_body_is_refused_with_a_reason(dev_agent: Agent, body: bytes, says: str) -> None:
    status, text = put(dev_agent, body)

    assert 400 <= status < 600
    assert says.lower() in text.lower()
    assert "Traceback" not in text
    assert is_alive(dev_agent)


def test_a_body_of_ten_megabytes_is_refused_quickly_and_leaves_the_agent_alone(dev_agent: Agent) -> None:
    status, text = put(dev_agent, b'{"Job": {"ID": "big", "Meta": {"k": "' + b"x" * 10_000_000 + b'"}}}')

    assert status in (400, 413), text[:200]
    assert is_alive(dev_agent)


def test_an_unknown_field_is_named_with_its_near_miss(dev_agent: Agent) -> None:
    job = raw_exec_job("typo", "/bin/true", kind="batch") | {"Prioritty": 60}

    answer = register(dev_agent, job)

    assert "Prioritty" in answer["Warnings"]
    assert "Priority" in answer["Warnings"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/job/none",
        "/v1/allocation/11111111-2222-3333-4444-555555555555",
        "/v1/node/11111111-2222-3333-4444-555555555555",
        "/v1/evaluation/11111111-2222-3333-4444-555555555555",
        "/v1/deployment/11111111-2222-3333-4444-555555555555",
        "/v1/client/fs/ls/11111111-2222-3333-4444-555555555555",
    ],
)
def test_unknown_ids_are_not_found(dev_agent: Agent, path: str) -> None:
    with pytest.raises(ApiFailure) as failure:
        dev_agent.get(path)

    assert failure.value.status == 404
    assert failure.value.text


@pytest.mark.parametrize(
    "path", ["/v1/jobs?index=a", "/v1/jobs?index=1&wait=soon", "/v1/jobs?filter=%3D%3D", "/v1/jobs?per_page=x"]
)
def test_bad_parameters_are_refused(dev_agent: Agent, path: str) -> None:
    with pytest.raises(ApiFailure) as failure:
        dev_agent.get(path)

    assert failure.value.status == 400


@pytest.mark.parametrize(
    ("change", "where", "says"),
    [
        (("command =", "comand ="), ":6:", "command"),
        (("driver =", "drivr ="), ":4:", "driver"),
        (('"/bin/true"', '"/bin/true'), ":6:", ""),
        (("  }\n}\n", "}\n"), "", ""),
        (("group", "grup"), ":2:", "group"),
    ],
)
def test_a_mistake_in_a_job_file_is_shown_where_it_stands(
    dev_agent: Agent, change: tuple[str, str], where: str, says: str
) -> None:
    path = dev_agent.folder / "mistake.nomad.hcl"
    path.write_text(GOOD.replace(*change, 1))

    for command in ("run", "plan", "validate"):
        result = dev_agent.cli("job", command, path.name)
        output = result.stdout + result.stderr

        assert result.returncode == (255 if command == "plan" else 1), output
        assert f"mistake.nomad.hcl{where}" in output
        assert says in output
        assert "Traceback" not in output


def test_a_missing_file_and_an_unknown_command_are_told(dev_agent: Agent) -> None:
    missing = dev_agent.cli("job", "run", "absent.nomad.hcl")
    unknown = dev_agent.cli("job", "rnu", "x")

    assert missing.returncode == 1
    assert "absent.nomad.hcl" in missing.stderr + missing.stdout
    assert unknown.returncode != 0
    assert "run" in unknown.stderr + unknown.stdout


def test_a_port_in_use_is_told_with_a_way_out(dev_agent: Agent, tmp_path: Path) -> None:
    second = Agent(tmp_path, data_dir=None, extra={"ports": {"http": dev_agent.port, "rpc": 1, "serf": 2}})

    result = second.cli("agent", "-dev", "-config", str(second.config))

    output = result.stdout + result.stderr
    assert result.returncode == 1
    assert str(dev_agent.port) in output
    assert "in use" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"server": {"redundancy_zone": "a"}}, "not available in this version"),
        ({"tls": {"http": True}}, "tls needs ca_file, cert_file, key_file"),
        ({"prots": {"http": 1}}, "ports"),
        ({"ports": {"http": "many"}}, "ports"),
    ],
)
def test_a_setting_that_cannot_be_honoured_stops_the_start(tmp_path: Path, extra: dict[str, Any], says: str) -> None:
    agent = Agent(tmp_path, data_dir=None, extra=extra)

    result = agent.cli("agent", "-dev", "-config", str(agent.config))

    assert result.returncode == 1
    assert says in result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr


def test_a_data_dir_of_another_version_or_of_a_running_agent_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_agent(tmp_path, data_dir=data) as agent:
        register(agent, raw_exec_job("kept", "/bin/sleep", "1000"))
        agent.running("kept", 1)
        other = tmp_path / "other"
        other.mkdir()
        second = Agent(other, data_dir=data)
        in_use = second.cli("agent", "-config", str(second.config))
        assert agent.interrupt() == 0

        versions = list(data.rglob("format"))
        assert versions, "the data directory names its version"
        before = {path: path.read_text() for path in versions}
        for path in versions:
            path.write_text("yurt data 999\n")
        refused = agent.cli("agent", "-config", str(agent.config))
        for path, text in before.items():
            path.write_text(text)
        agent.start()

        assert in_use.returncode == refused.returncode == 1
        assert str(data) in in_use.stdout + in_use.stderr
        assert "version" in refused.stdout + refused.stderr
        assert "Traceback" not in in_use.stderr + refused.stderr
        assert [job["ID"] for job in agent.get("/v1/jobs")] == ["kept"]
        agent.running("kept", 1)


def test_a_command_that_does_not_exist_fails_with_an_event_that_says_why(dev_agent: Agent) -> None:
    job = raw_exec_job("noexec", "/does/not/exist", kind="batch")
    job["TaskGroups"][0] |= {
        "RestartPolicy": {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000},
        "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
    }
    register(dev_agent, job)

    failed = wait_for("a failure", lambda: [a for a in dev_agent.allocs("noexec") if a["ClientStatus"] == "failed"])

    events = json.dumps(failed[0]["TaskStates"]["main"]["Events"])
    assert "/does/not/exist" in events
