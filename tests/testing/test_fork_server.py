"""The fork server runs commands as a new interpreter does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from yurt.testing.agent import YURT, Agent, running_agent, wait_for, yurt
from yurt.testing.processes import descendants
from yurt.testing.services import fork_server
from yurt.testing.services.fork_server import Command, ForkedCommand, ForkServer

pytestmark = pytest.mark.keeps_processes

Start = Callable[..., ForkedCommand]


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()


@pytest.fixture
def start(server: ForkServer, tmp_path: Path) -> Start:
    """Starts a command with its output in `out` and its errors in `err`."""

    def started(*words: str, stdin: int = 0, **changes: str) -> ForkedCommand:
        with (tmp_path / "out").open("ab") as out, (tmp_path / "err").open("ab") as err:
            command = Command(list(words), str(tmp_path), {**os.environ, **changes})
            return server.start(["yurt", *words], command, (stdin, out.fileno(), err.fileno()))

    return started


@pytest.fixture
def active(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server._Active, "server", server)


@pytest.mark.parametrize(
    "words",
    [["version"], ["node", "-help"], ["node", "stat"], ["job", "validate", "none.hcl"], ["fmt", "-check", "."]],
    ids=" ".join,
)
def test_a_fork_says_and_ends_as_a_new_interpreter(start: Start, tmp_path: Path, words: list[str]) -> None:
    forked = start(*words)
    new = subprocess.run([*YURT, *words], cwd=tmp_path, capture_output=True, check=False)
    assert forked.wait(60) == new.returncode
    assert ((tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes()) == (new.stdout, new.stderr)


def test_a_fork_has_its_own_environment_folder_and_input(start: Start, tmp_path: Path) -> None:
    (tmp_path / "in").write_text('variable "count" {}\njob "a" {\n group "g" {\n count = var.count\n }\n }')
    with (tmp_path / "in").open() as file:
        assert start("fmt", "-", stdin=file.fileno()).wait(60) == 0
    assert "    count = var.count" in (tmp_path / "out").read_text()
    assert start("node", "status", NOMAD_ADDR="http://127.0.0.1:1").wait(60) == 1
    assert "127.0.0.1:1" in (tmp_path / "err").read_text()
    assert start("tls", "ca", "create").wait(60) == 0
    assert (tmp_path / "nomad-agent-ca.pem").exists()


def test_forks_draw_different_random_numbers(start: Start, tmp_path: Path) -> None:
    certificates = []
    for _ in range(2):
        assert start("tls", "ca", "create").wait(60) == 0
        certificates.append((tmp_path / "nomad-agent-ca.pem").read_text())
        for made in tmp_path.glob("*.pem"):
            made.unlink()
    assert certificates[0] != certificates[1]


def test_a_fork_keeps_only_its_standard_streams(start: Start, active: None, tmp_path: Path) -> None:
    ended = start("version")
    ended.wait(60)
    with running_agent(tmp_path) as agent:
        assert isinstance(agent.process, ForkedCommand)
        links = {os.readlink(f"/proc/{agent.process.pid}/fd/{fd}") for fd in (0, 1, 2)}
        open_files = [
            os.readlink(f"/proc/{agent.process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{agent.process.pid}/fd")
        ]
        assert f"{agent.log}" in links
        assert not [path for path in open_files if path.endswith(("/out", "/err")) or "pidfd" in path]
        assert len(os.listdir(f"/proc/{agent.process.pid}/task")) >= 1
        assert json.loads(agent.cli("node", "status", "-json").stdout)[0]["Status"] == "ready"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_signals_end_a_command_as_they_end_a_new_interpreter(active: None, tmp_path: Path, number: int) -> None:
    codes = []
    for is_forked in (True, False):
        agent = Agent(tmp_path, data_dir=None, command=YURT if is_forked else ["env", *YURT])
        agent.start()
        assert agent.process is not None and isinstance(agent.process, ForkedCommand) == is_forked
        agent.process.send_signal(number)
        codes.append(agent.process.wait(60))
        assert agent.process.poll() == codes[-1]
        agent.process.send_signal(signal.SIGKILL)  # of no effect: the pid may be another process's by now
    assert codes[0] == codes[1]


def test_a_wait_for_a_command_has_a_limit(active: None, tmp_path: Path) -> None:
    agent = Agent(tmp_path, data_dir=None)
    agent.start()
    assert agent.process is not None and agent.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        agent.process.wait(0.01)
    assert agent.interrupt() == 0


def test_the_server_leaves_no_zombie(server: ForkServer, start: Start) -> None:
    ended = [start("version") for _ in range(5)]
    assert [each.wait(60) for each in ended] == [0] * 5
    children = Path(f"/proc/{server._process.pid}/task/{server._process.pid}/children")
    wait_for("no child of the server", lambda: not children.read_text().strip())


def test_commands_go_on_when_the_server_ends(tmp_path: Path) -> None:
    server = ForkServer()
    read_end, write_end = os.pipe()
    with (tmp_path / "out").open("wb") as out:
        command = Command(["fmt", "-"], str(tmp_path), dict(os.environ))
        process = server.start(["yurt"], command, (read_end, out.fileno(), out.fileno()))
    os.close(read_end)
    server.close()
    with pytest.raises(AssertionError, match="the fork server has ended"):
        process.wait(60)
    os.write(write_end, b'job  "a"  {}')
    os.close(write_end)
    wait_for("the command's output", lambda: b'job "a" {}' in (tmp_path / "out").read_bytes())


@pytest.mark.parametrize("changed", ["PYTHONHASHSEED", "LANG", "TZ"])
def test_variables_that_an_interpreter_reads_at_its_start_ask_for_a_new_one(
    active: None, tmp_path: Path, changed: str
) -> None:
    env = {**os.environ, changed: "1"}
    assert fork_server.forked(["version"], cwd=tmp_path, env=env, streams=(0, 1, 2)) is None
    assert yurt("version", cwd=tmp_path, env=env).args[:3] == YURT
    assert yurt("version", cwd=tmp_path).args == ["yurt", "version"]


def test_tests_may_ask_for_new_interpreters(active: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fork_server.new_interpreters():
        assert yurt("version", cwd=tmp_path).args[:3] == YURT
    assert yurt("version", cwd=tmp_path).args == ["yurt", "version"]
    fork_server._Active.server = None
    monkeypatch.setenv(fork_server.NEW_INTERPRETERS, "1")
    with fork_server.fork_server():
        assert yurt("version", cwd=tmp_path).args[:3] == YURT


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """An executable that runs `yurt` in a fork, and the descriptors for it."""
    path = tmp_path_factory.mktemp("program") / "nomad"
    with fork_server.forking_program(path) as inherited:
        yield path, inherited


def test_a_program_says_and_ends_as_a_new_interpreter(
    program: tuple[Path, tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOMAD_ADDR", "http://127.0.0.1:1")
    path, inherited = program
    for words, text in ((["fmt", "-"], b'job  "a"  {}'), (["node", "status"], b""), (["node", "stat"], b"")):
        done, new = (
            subprocess.run([*command, *words], cwd=tmp_path, input=text, capture_output=True, check=False, pass_fds=fds)
            for command, fds in (([path], inherited), (YURT, ()))
        )
        assert (done.returncode, done.stdout, done.stderr) == (new.returncode, new.stdout, new.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_program_passes_signals_on(program: tuple[Path, tuple[int, ...]], tmp_path: Path, number: int) -> None:
    path, inherited = program
    agent = Agent(tmp_path, data_dir=None)
    with subprocess.Popen([path, "agent", "-dev", "-config", agent.config], pass_fds=inherited) as process:
        agent.process = process
        wait_for("a ready node", agent.is_ready)
        process.send_signal(number)
        assert process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_program_ends_by_the_signal_that_ends_its_fork(program: tuple[Path, tuple[int, ...]], number: int) -> None:
    (path, inherited), before = program, descendants()
    with subprocess.Popen([path, "fmt", "-"], stdin=subprocess.PIPE, pass_fds=inherited) as process:
        (fork,) = wait_for("the fork", lambda: descendants() - before - {process.pid})
        os.kill(fork, number)
        assert process.wait(60) == -number


def test_what_killed_programs_leave_ends_with_the_block(tmp_path: Path) -> None:
    agent = Agent(tmp_path, data_dir=None)
    with fork_server.forking_program(tmp_path / "nomad") as inherited:
        command = [tmp_path / "nomad", "agent", "-dev", "-config", agent.config]
        with subprocess.Popen(command, pass_fds=inherited) as agent.process:
            wait_for("a ready node", agent.is_ready)
            agent.process.kill()
        assert agent.get("/v1/nodes")
    with pytest.raises(ConnectionRefusedError):
        agent.get("/v1/nodes")


def test_a_program_may_be_a_new_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fork_server.NEW_INTERPRETERS, "1")
    with fork_server.forking_program(tmp_path / "nomad") as inherited:
        assert inherited == ()
        assert b"Yurt" in subprocess.run([tmp_path / "nomad", "version"], stdout=subprocess.PIPE, check=True).stdout
