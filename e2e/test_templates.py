"""Templates and variables with a real agent: `yurt var put` reaches tasks by restart, signal and script."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, ApiFailure, pid_is_alive, raw_exec_job, register, running_agent, wait_for

REPORTER = """
trap 'echo hup' HUP
echo "start user=$USER_NAME file=$(cat local/conf)"
while true; do sleep 0.05; done
"""
TELLER = 'echo "dir=$NOMAD_TASK_DIR"; exec sleep 600'
CONF = """{{ with nomadVar "nomad/jobs/%s" }}{{ .user }}{{ end }}"""
SERVICES = """{{ range nomadService "%s" }}{{ .Address }}:{{ .Port }};{{ end }}"""


def template(text: str, **changes: Any) -> dict[str, Any]:
    made = {
        "EmbeddedTmpl": text, "DestPath": "local/conf", "Splay": 0, "ChangeMode": "restart",
        "Wait": {"Min": 0, "Max": 0},
    }  # fmt: skip
    return made | changes


def job_with(name: str, *templates: dict[str, Any], script: str = REPORTER, **group: Any) -> dict[str, Any]:
    job = raw_exec_job(name, "/bin/sh", "-c", f'cd "$NOMAD_TASK_DIR/.."\n{script}', **group)
    job["TaskGroups"][0]["Tasks"][0]["Templates"] = list(templates)
    return job


def put(agent: Agent, path: str, *items: str) -> None:
    done = agent.cli("var", "put", "-force", "-out=none", path, *items)
    assert done.returncode == 0, done.stderr


def the_alloc(agent: Agent, name: str) -> dict[str, Any]:
    found: dict[str, Any] = agent.get(f"/v1/allocation/{agent.allocs(name)[0]['ID']}")
    return found


def events(agent: Agent, name: str) -> list[str]:
    states = the_alloc(agent, name)["TaskStates"] or {}
    return [event["DisplayMessage"] for event in states.get("main", {}).get("Events") or []]


def restarts(agent: Agent, name: str) -> int:
    """How often the task was started again, as the servers know: the client tells them a moment later."""
    return int(the_alloc(agent, name)["TaskStates"]["main"]["Restarts"])


def output(agent: Agent, name: str) -> str:
    return agent.cli("alloc", "logs", agent.allocs(name)[0]["ID"]).stdout


def said(agent: Agent, name: str, text: str) -> None:
    wait_for(f"{text!r} in the output of {name}", lambda: text in output(agent, name))


def test_a_task_waits_for_its_variable_and_restarts_when_it_changes(dev_agent: Agent) -> None:
    environment = template("USER_NAME={{ with nomadVar `nomad/jobs/waits` }}{{ .user }}{{ end }}", Envvars=True)
    environment["DestPath"] = "secrets/env"
    register(dev_agent, job_with("waits", template(CONF % "waits"), environment))
    wait_for(
        "the event that says what is missing",
        lambda: (
            dev_agent.allocs("waits")
            and any("Missing: nomad.var.block(nomad/jobs/waits@default)" in text for text in events(dev_agent, "waits"))
        ),
    )
    put(dev_agent, "nomad/jobs/waits", "user=anna")
    dev_agent.running("waits", 1)
    said(dev_agent, "waits", "start user=anna file=anna")
    put(dev_agent, "nomad/jobs/waits", "user=bert")
    said(dev_agent, "waits", "start user=bert file=bert")
    wait_for("one restart", lambda: restarts(dev_agent, "waits") == 1)
    assert "Template with change_mode restart re-rendered" in events(dev_agent, "waits")
    put(dev_agent, "nomad/jobs/waits", "user=bert", "other=1")
    put(dev_agent, "nomad/jobs/waits", "user=carl")
    said(dev_agent, "waits", "start user=carl")
    wait_for("two restarts", lambda: restarts(dev_agent, "waits") == 2)


def test_a_change_signals_and_runs_a_script_without_a_restart(dev_agent: Agent) -> None:
    put(dev_agent, "nomad/jobs/told", "user=anna")
    script = {"Command": "/bin/sh", "Args": ["-c", "touch local/done"], "Timeout": 5_000_000_000}
    by_script = template(CONF % "told", ChangeMode="script", ChangeScript=script, DestPath="local/other")
    by_signal = template(CONF % "told", ChangeMode="signal", ChangeSignal="SIGHUP")
    register(dev_agent, job_with("told", by_signal, by_script))
    dev_agent.running("told", 1)
    said(dev_agent, "told", "file=anna")
    put(dev_agent, "nomad/jobs/told", "user=bert")
    said(dev_agent, "told", "hup")
    wait_for(
        "the event of the script",
        lambda: any("Template successfully ran script /bin/sh" in text for text in events(dev_agent, "told")),
    )
    assert restarts(dev_agent, "told") == 0
    shown = dev_agent.cli("alloc", "fs", dev_agent.allocs("told")[0]["ID"], "main/local/conf")
    assert shown.stdout == "bert"


def test_a_template_follows_the_instances_of_a_service(dev_agent: Agent) -> None:
    register(dev_agent, job_with("watcher", template(SERVICES % "backend", ChangeMode="noop")))
    dev_agent.running("watcher", 1)
    backend = raw_exec_job("backend", "/bin/sleep", "600", count=2)
    backend["TaskGroups"][0] |= {
        "Networks": [{"DynamicPorts": [{"Label": "http"}]}],
        "Services": [{"Name": "backend", "Provider": "nomad", "PortLabel": "http"}],
    }
    register(dev_agent, backend)
    alloc_id = dev_agent.allocs("watcher")[0]["ID"]

    def rendered() -> str:
        return dev_agent.cli("alloc", "fs", alloc_id, "main/local/conf").stdout

    wait_for("two instances in the file", lambda: rendered().count(";") == 2)
    ports = {str(each["Port"]) for each in dev_agent.get("/v1/service/backend")}
    assert {entry.rpartition(":")[2] for entry in rendered().strip(";").split(";")} == ports
    dev_agent.call("DELETE", "/v1/job/backend")
    wait_for("no instance in the file", lambda: not rendered())


def test_an_agent_that_was_killed_finds_the_same_text_and_restarts_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_agent(tmp_path, data_dir=data) as agent:
        put(agent, "nomad/jobs/kept", "user=anna")
        register(agent, job_with("kept", template(CONF % "kept"), script="echo pid=$$; exec sleep 600"))
        agent.running("kept", 1)
        said(agent, "kept", "pid=")
        before = output(agent, "kept")
        agent.kill()
        agent.start()
        put(agent, "nomad/jobs/kept", "user=anna", "more=1")
        assert wait_for("its output", lambda: output(agent, "kept")) == before
        put(agent, "nomad/jobs/kept", "user=bert")
        wait_for("a restart", lambda: output(agent, "kept").count("pid=") == 2)
        shown = agent.cli("alloc", "fs", agent.allocs("kept")[0]["ID"], "main/local/conf")
        assert shown.stdout == "bert"
    stored = b"".join(path.read_bytes() for path in (data / "server").rglob("*") if path.is_file())
    assert b"anna" not in stored and b"bert" not in stored


def to_symlink(task: Path, outside: Path) -> None:
    os.symlink(outside, task / "local" / "sub")


def to_fifo(task: Path, outside: Path) -> None:
    (task / "local" / "sub").mkdir(exist_ok=True)
    (task / "local" / "sub" / "file").unlink(missing_ok=True)
    os.mkfifo(task / "local" / "sub" / "file")


def to_file_link(task: Path, outside: Path) -> None:
    (task / "local" / "sub").mkdir(exist_ok=True)
    (task / "local" / "sub" / "file").unlink(missing_ok=True)
    os.symlink(outside / "file", task / "local" / "sub" / "file")


@pytest.mark.parametrize("trick", [to_symlink, to_fifo, to_file_link], ids=lambda trick: trick.__name__)
def test_what_a_task_puts_in_the_way_never_leads_outside(
    dev_agent: Agent, tmp_path: Path, trick: Callable[[Path, Path], None]
) -> None:
    name = f"trick-{trick.__name__.replace('_', '-')}"
    outside = tmp_path / "outside"
    outside.mkdir()
    put(dev_agent, f"nomad/jobs/{name}", "user=anna")
    register(
        dev_agent, job_with(name, template(CONF % name, DestPath="local/sub/file", ChangeMode="noop"), script=TELLER)
    )
    dev_agent.running(name, 1)
    task = task_dir(dev_agent, name)
    if trick is to_symlink:
        (task / "local" / "sub" / "file").unlink()
        (task / "local" / "sub").rmdir()
    trick(task, outside)
    put(dev_agent, f"nomad/jobs/{name}", "user=bert")
    if trick is to_symlink:
        wait_for("the refusal", lambda: any("passes a symlink" in text for text in events(dev_agent, name)))
    else:
        target = task / "local" / "sub" / "file"
        wait_for("a plain file", lambda: target.is_file() and not target.is_symlink() and target.read_text() == "bert")
    assert not list(outside.iterdir())


def task_dir(agent: Agent, name: str) -> Path:
    """The task's directory, which its script tells first."""
    line = wait_for("its directory", lambda: output(agent, name).splitlines()[:1])[0]
    return Path(line.removeprefix("dir=")).parent


@pytest.mark.parametrize(
    "changes",
    [
        {"DestPath": "../escape"},
        {"DestPath": "${NOMAD_TASK_DIR}/../../escape"},
        {"EmbeddedTmpl": "{{ file `/etc/passwd` }}"},
        {"EmbeddedTmpl": "{{ mustEnv `PATH_THAT_IS_NOT` }}"},
        {"EmbeddedTmpl": "", "SourcePath": "/etc/hostname"},
        {"EmbeddedTmpl": "{{ plugin `id` }}"},
        {"EmbeddedTmpl": "{{ key `a` }}"},
    ],
    ids=["dots", "variable", "file", "environment", "source", "plugin", "consul"],
)
def test_what_a_template_must_not_do_fails_its_task_with_words(
    dev_agent: Agent, changes: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    name = f"bad-{request.node.callspec.id}"
    job = job_with(name, template("x", **changes))
    job["TaskGroups"][0] |= {"RestartPolicy": {"Attempts": 0, "Mode": "fail"}, "ReschedulePolicy": {"Attempts": 0}}
    try:
        register(dev_agent, job)
    except ApiFailure as error:
        assert "escapes" in str(error)
        return
    wait_for("its failure", lambda: [a for a in dev_agent.allocs(name) if a["ClientStatus"] == "failed"])
    assert any("emplate" in text for text in events(dev_agent, name)), events(dev_agent, name)


def test_a_task_bears_its_identity(dev_agent: Agent) -> None:
    script = 'echo "token=$NOMAD_TOKEN"; echo "file=$(cat secrets/nomad_token)"; exec sleep 600'
    job = job_with("bearer", script=script)
    job["TaskGroups"][0]["Tasks"][0]["Identities"] = [{"Name": "default", "Env": True, "File": True}]
    register(dev_agent, job)
    dev_agent.running("bearer", 1)
    said(dev_agent, "bearer", "file=")
    token, file = (line.partition("=")[2] for line in output(dev_agent, "bearer").splitlines())
    header, body, _ = (part + "=" * (-len(part) % 4) for part in token.split("."))
    claims = json.loads(base64.urlsafe_b64decode(body))
    assert token == file and claims["sub"] == "global:default:bearer:g:main:default"
    keys = {key["kid"] for key in dev_agent.get("/.well-known/jwks.json")["keys"]}
    assert json.loads(base64.urlsafe_b64decode(header))["kid"] in keys


def test_variables_on_the_command_line(dev_agent: Agent) -> None:
    folder = dev_agent.folder
    assert dev_agent.cli("var", "init", "-quiet", "spec.nv.hcl").returncode == 0
    first = dev_agent.cli("var", "put", "@spec.nv.hcl", "key2=other")
    assert json.loads(first.stdout)["Items"] == {"key1": "value 1", "key2": "other"}
    again = dev_agent.cli("var", "put", "path/to/variable", "a=b")
    assert again.returncode == 1 and "does not match the server-side index" in again.stderr
    written = dev_agent.cli("var", "get", "-out=hcl", "path/to/variable").stdout
    (folder / "again.hcl").write_text(written.replace("value 1", "value ${2}".replace("$", "$$")))
    assert dev_agent.cli("var", "put", "@again.hcl").returncode == 0
    assert dev_agent.cli("var", "get", "-item=key1", "path/to/variable").stdout == "value ${2}\n"
    assert "path/to/variable" in dev_agent.cli("var", "list", "path/").stdout
    shown = dev_agent.cli("var", "get", "-template", "{{ .Path }} {{ .Items.key2 }}", "path/to/variable")
    assert shown.stdout == "path/to/variable other\n"
    locked = dev_agent.cli("var", "lock", "-ttl=10s", "path/to/variable", "exit 7")
    assert locked.returncode == 7, locked.stderr
    assert dev_agent.cli("var", "purge", "path/to/variable").stdout.startswith("Successfully purged")
    assert dev_agent.cli("var", "get", "path/to/variable").returncode == 1
    assert dev_agent.cli("operator", "root", "keyring", "rotate", "-full").stdout.count("active") == 1


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_under_a_lock_never_outlives_who_holds_it(dev_agent: Agent, tmp_path: Path, sign: int) -> None:
    path, pid_file = f"locks/{sign}", tmp_path / "pid"
    command = [*dev_agent.command, "var", "lock", "-ttl=10s", path, f"echo $$ > {pid_file}; exec sleep 100"]
    holder = subprocess.Popen(command, env=dev_agent.environment())
    pid = int(wait_for("the command", lambda: pid_file.exists() and pid_file.read_text().strip()))
    held = dev_agent.cli("var", "lock", "-early-return", path, "true")
    assert held.returncode == 1 and "held by somebody else" in held.stderr
    holder.send_signal(sign)
    holder.wait(timeout=60)
    wait_for("the end of the command", lambda: not pid_is_alive(pid))
    if sign == signal.SIGTERM:
        assert dev_agent.cli("var", "lock", "-early-return", path, "exit 3").returncode == 3
