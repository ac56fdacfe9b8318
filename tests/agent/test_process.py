"""A real agent: it says what to do next, refuses what it cannot do in one sentence, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from yurt.cli.commands.agent import IMPORT_LOT, NEVER
from yurt.testing.agent import YURT, Agent, ApiFailure, dev_token, running_agent, wait_for, yurt
from yurt.testing.services.fork_server import fork_server


@pytest.fixture(scope="module", autouse=True)
def commands_are_forks() -> Iterator[None]:
    """Agents and commands are forks of one process, which spares each of them the imports of an interpreter."""
    with fork_server():
        yield


def start_and_fail(folder: Path, *arguments: str, python: tuple[str, ...] = ()) -> str:
    """What an agent that cannot start says."""
    if python:
        command = [sys.executable, *python, *YURT[1:], "agent", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=folder, check=False)
    else:
        done = yurt("agent", *arguments, cwd=folder)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    return done.stderr


def test_the_first_screen_says_what_runs_and_what_to_type(tmp_path: Path) -> None:
    with running_agent(tmp_path) as agent:
        text = wait_for(
            "the first screen", lambda: (out := agent.log.read_text()).count("will stream in below") and out
        )
        root = re.search(r"Data Dir: (\S+)", text)
        follow = agent.cli("node", "status", "-self")
        assert agent.interrupt() == 0

    assert text.startswith(f"==> Loaded configuration from {agent.config}\n==> Starting Yurt agent...\n")
    assert "Region: global (DC: dc1)" in text
    assert re.search(r"raw_exec +healthy", text)
    assert f"NOMAD_ADDR={agent.address} yurt job run example.nomad.hcl" in text
    # What earlier agents of this machine left is removed with a line each.
    assert len([line for line in text.splitlines() if "forgotten allocation" not in line]) < 30
    assert follow.returncode == 0 and "raw_exec" in follow.stdout
    assert root is not None and not Path(root[1]).exists()


@contextmanager
def dev_acl_agent(folder: Path, *more: str) -> Iterator[Agent]:
    agent = Agent(folder, data_dir=None)
    agent.flags = ("-acl", *more)
    agent.log.unlink(missing_ok=True)
    agent.spawn()
    try:
        agent.token = dev_token(agent)
        yield agent
    finally:
        assert agent.interrupt() == 0


def test_nobody_is_faster_than_a_dev_agent_in_making_the_first_token(tmp_path: Path) -> None:
    """Connections are taken from the start, and answered once access control is bootstrapped."""
    agent = Agent(tmp_path, data_dir=None)
    agent.flags = ("-acl",)
    agent.log.unlink(missing_ok=True)
    agent.spawn()
    answers = []

    def is_answered() -> bool:
        try:
            answers.append(agent.call("PUT", "/v1/acl/bootstrap", {}))
        except ApiFailure as failure:
            answers.append(str(failure))
        except OSError:
            return False
        return True

    try:
        wait_for("an answer to the stranger", is_answered)
        agent.token = dev_token(agent)
        assert agent.get("/v1/acl/token/self")["Type"] == "management"
    finally:
        assert agent.interrupt() == 0
    assert answers and all("bootstrap already done" in str(each) for each in answers), answers


def test_a_dev_agent_with_access_control_shows_a_token_that_works(tmp_path: Path) -> None:
    with dev_acl_agent(tmp_path) as agent:
        own = agent.get("/v1/acl/token/self")
        listed = agent.cli("node", "status")
        by_flag = agent.cli("acl", "token", "self", "-token", agent.token)
        with pytest.raises(ApiFailure, match="403: Permission denied"):
            agent.get("/v1/jobs", token="")
        again = agent.cli("acl", "bootstrap")

    assert (own["Type"], own["SecretID"]) == ("management", agent.token)
    assert f"Accessor ID: {own['AccessorID']}\n" in agent.log.read_text()
    assert listed.returncode == 0 and "ready" in listed.stdout
    assert by_flag.returncode == 0 and agent.token in by_flag.stdout
    assert again.returncode == 1 and "ACL bootstrap already done" in again.stderr


def test_a_dev_agent_with_a_data_directory_keeps_its_token(tmp_path: Path) -> None:
    kept = tmp_path / "data" / "server" / "dev-management-token"
    flags = ("-data-dir", str(tmp_path / "data"))
    with dev_acl_agent(tmp_path, *flags) as agent:
        first = agent.token
        assert (kept.read_text(), kept.stat().st_mode & 0o777) == (f"{first}\n", 0o600)
    with dev_acl_agent(tmp_path, *flags) as agent:
        assert agent.token == first
        assert agent.get("/v1/acl/token/self")["Type"] == "management"

    kept.write_text("root\n")
    said = start_and_fail(tmp_path, "-dev", "-acl", "-config", str(agent.config), *flags)
    assert f"{kept} holds no Secret ID of a token; remove it to get a new management token" in said


def test_a_file_in_the_data_directory_permits_another_bootstrap(tmp_path: Path) -> None:
    agent = Agent(tmp_path, data_dir=tmp_path / "data", extra={"acl": {"enabled": True}})
    agent.spawn()
    try:
        wait_for("a leader", lambda: "reset index" in agent.cli("acl", "bootstrap").stderr)
        index = re.search(r"reset index: (\d+)", agent.cli("acl", "bootstrap").stderr)
        assert index is not None
        (tmp_path / "data" / "server" / "acl-bootstrap-reset").write_text(f"{index[1]}\n")
        again = agent.cli("acl", "bootstrap", "-t", "{{.SecretID}}")
        assert again.returncode == 0
        agent.token = again.stdout.strip()
        assert len(agent.get("/v1/acl/tokens")) == 2
        refused = agent.cli("acl", "bootstrap")
    finally:
        assert agent.interrupt() == 0
    assert f"Invalid bootstrap reset index (specified {index[1]}, reset index: " in refused.stderr


def test_the_clients_state_lies_where_state_dir_says(tmp_path: Path) -> None:
    state = tmp_path / "elsewhere" / "state"
    extra = {
        "client": {"enabled": True, "state_dir": str(state)},
        "plugin": {"raw_exek": {"config": {"enabled": True}}},
    }
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra=extra) as agent:
        node_id = agent.get("/v1/nodes")[0]["ID"]
        assert agent.interrupt() == 0
        agent.start()
        assert agent.get("/v1/nodes")[0]["ID"] == node_id
        said = agent.log.read_text()

    assert (state / "client.db").exists()
    assert (state / "plugins" / "raw_exec").is_dir()
    assert not (tmp_path / "data" / "client" / "client.db").exists()
    assert 'plugin "raw_exek" in the configuration has no effect' in said
    assert 'did you mean "raw_exec"?' in said


def test_a_port_in_use_is_told_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (tmp_path / "c").write_text(json.dumps({"ports": {"http": port}}))

        said = start_and_fail(tmp_path, "-dev", "-config", "c")

    assert f"Port {port} on 127.0.0.1 is in use" in said
    assert "choose another port" in said


def test_a_data_directory_of_another_format_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "format").write_text("yurt data 99\n")

    said = start_and_fail(tmp_path, "-server", "-client", "-data-dir", str(data), "-bind", "127.0.0.1")

    assert 'has the format "yurt data 99"' in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "Must specify either server, client or dev mode for the agent."),
        (("-acl",), "-acl is for dev agents. Switch access control on with -acl-enabled"),
        (("-dev", "-acl", "-acl-enabled=false"), "-acl and -acl-enabled=false contradict each other"),
        (("-dev", "-acl-replication-token=x"), "replication_token must be the Secret ID of a management token"),
        (("-dev", "-dev-connect"), "-dev-connect is not available: Yurt has no service mesh"),
        (("-dev", "-config", "missing.hcl"), "missing.hcl: there is no such file"),
        (("-dev", "-bind", "192.0.2.77"), 'This machine has no address "192.0.2.77"'),
        (("-dev", "-log-levle", "x"), 'did you mean "-log-level"?'),
    ],
)
def test_a_wrong_start_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in start_and_fail(tmp_path, *arguments)


def test_it_refuses_to_run_without_its_own_checks(tmp_path: Path) -> None:
    assert "does not run under `python -O`" in start_and_fail(tmp_path, "-dev", python=("-O",))


def test_a_hang_up_reads_the_configuration_again(tmp_path: Path) -> None:
    import signal

    agent = Agent(tmp_path, data_dir=None)
    agent.start()
    assert agent.process is not None
    try:
        wait_for("the first screen", lambda: "will stream in below" in agent.log.read_text())
        agent.config.write_text(json.dumps({**json.loads(agent.config.read_text()), "log_level": "WARN"}))
        agent.process.send_signal(signal.SIGHUP)
        agent.config.write_text(json.dumps({**json.loads(agent.config.read_text()), "log_levl": "WARN"}))
        agent.process.send_signal(signal.SIGHUP)
        wait_for("the refusal", lambda: 'unknown key "log_levl"' in agent.log.read_text())
    finally:
        assert agent.interrupt() == 0


def test_debug_lines_reach_a_monitor_that_asks_for_them(tmp_path: Path) -> None:
    with running_agent(tmp_path) as agent:
        command = [*YURT, "monitor", "-address", agent.address, "-log-level", "DEBUG"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as monitor:
            assert monitor.stdout is not None
            reader = monitor.stdout
            seen = wait_for("a debug line", lambda: agent.get("/v1/status/leader") and has_line(reader, b"[DEBUG]"))
            monitor.terminate()
        assert "[DEBUG]" not in agent.log.read_text()

    assert seen


def has_line(reader: IO[bytes], word: bytes) -> bool:
    """What came so far holds the word."""
    os.set_blocking(reader.fileno(), False)
    return word in (reader.read() or b"")


def test_an_agent_without_a_server_collects_garbage_once_it_has_started(tmp_path: Path) -> None:
    """The start examines no object twice; afterwards Python decides again, since there is no server that would."""
    seen, own = tmp_path / "seen", (653, 11, 12)  # no version's defaults
    expected = str([own, (IMPORT_LOT, NEVER, NEVER), own])
    watching = (
        "import gc, sys, threading, time\n"
        "from pathlib import Path\n"
        "from yurt.cli.main import main\n"
        f"gc.set_threshold(*{own})\n"
        "def watch():\n"
        "    states = []\n"
        "    while len(states) < 3:\n"
        "        if states[-1:] != [gc.get_threshold()]:\n"
        "            states.append(gc.get_threshold())\n"
        f"        Path({str(seen)!r}).write_text(str(states))\n"
        "        time.sleep(0.002)\n"
        "threading.Thread(target=watch, daemon=True).start()\n"
        "sys.exit(main())\n"
    )
    extra = {"server": {"enabled": False}, "client": {"enabled": True, "servers": ["127.0.0.1:9"]}}
    command = [sys.executable, "-c", watching]
    agent = Agent(tmp_path, data_dir=tmp_path / "data", extra=extra, command=command)
    agent.spawn()
    try:
        wait_for("collections", lambda: seen.exists() and seen.read_text() == expected)
    finally:
        assert agent.interrupt() == 0
