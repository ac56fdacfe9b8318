"""Starts real agents for tests, waits for their state, and stops only the processes it started."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

from yurt.testing.services.fork_server import ForkedCommand, forked
from yurt.testing.unique_ports import free_ports

T = TypeVar("T")

YURT = [sys.executable, "-m", "yurt.cli.main"]
POLL_S, POLL_OFTEN_S, POLL_LATER_S = 0.02, 5.0, 0.2
WAIT_LIMIT_S = 150.0
"""The time limit of a wait in a test: far above the usual duration, for busy machines."""


def wait_for(what: str, probe: Callable[[], T | None], timeout_s: float = WAIT_LIMIT_S) -> T:
    """Poll until the probe returns a true value; fails with `what` after the time limit."""
    begin = time.monotonic()
    while (passed_s := time.monotonic() - begin) < timeout_s:
        found = probe()
        if found:
            return found
        time.sleep(POLL_S if passed_s < POLL_OFTEN_S else POLL_LATER_S)
    raise AssertionError(f"not within {timeout_s} s: {what}")


class Agent:
    """One agent process and its HTTP API."""

    def __init__(
        self,
        folder: Path,
        *,
        data_dir: Path | None,
        name: str = "e2e",
        extra: Mapping[str, Any] | None = None,
        command: Sequence[str] = YURT,
        user: int | None = None,
    ) -> None:
        self.folder = folder
        self.data_dir = data_dir
        self.command = list(command)
        self.user = user
        http_port, rpc_port, serf_port = free_ports(3)
        self.host = "127.0.0.1"
        self.port = http_port
        config: dict[str, Any] = {"name": name, "ports": {"http": http_port, "rpc": rpc_port, "serf": serf_port}}
        if data_dir is not None:
            config |= {
                "data_dir": str(data_dir),
                "bind_addr": "127.0.0.1",
                "server": {"enabled": True, "bootstrap_expect": 1},
                "client": {"enabled": True, "options": {"driver.raw_exec.enable": "1"}},
            }
        config |= dict(extra or {})
        self.config = folder / "agent-config"
        self.config.write_text(json.dumps(config))
        self.log = folder / "agent.log"
        self.process: subprocess.Popen[bytes] | ForkedCommand | None = None
        self.flags: tuple[str, ...] = ()
        """Further flags of `yurt agent`."""
        self.token = ""
        """The secret that requests and commands show."""

    @property
    def address(self) -> str:
        """The URL of its HTTP API."""
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Start it and wait until its node is ready."""
        self.spawn()
        wait_for("a ready node", self.is_ready)

    def spawn(self) -> None:
        """Start it without waiting."""
        arguments = ["agent", "-config", str(self.config), *([] if self.data_dir else ["-dev"]), *self.flags]
        with self.log.open("ab") as log:
            self.process = self._forked(arguments, (0, log.fileno(), log.fileno())) or subprocess.Popen(
                [*self.command, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                user=self.user,
                env=self.environment(),
            )

    def _forked(self, arguments: Sequence[str], streams: Sequence[int]) -> ForkedCommand | None:
        if self.command != YURT or self.user is not None:
            return None
        return forked(arguments, cwd=self.folder, env=self.environment(), streams=streams)

    def is_ready(self) -> bool:
        """Whether its only node is ready."""
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            nodes = self.get("/v1/nodes")
        except (OSError, http.client.HTTPException, ApiFailure):
            return False
        return [node["Status"] for node in nodes] == ["ready"]

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=WAIT_LIMIT_S)

    def interrupt(self, timeout_s: float = WAIT_LIMIT_S) -> int:
        """Send SIGINT and return the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=timeout_s)

    def call(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
        """Send one request and return the decoded answer; raises ApiFailure. `token` replaces the agent's own."""
        shown = self.token if token is None else token
        headers = {"X-Nomad-Token": shown} if shown else {}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_LIMIT_S)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            raise ApiFailure(answer.status, data.decode())
        return json.loads(data) if data else None

    def get(self, path: str, *, token: str | None = None) -> Any:
        """Send a GET."""
        return self.call("GET", path, token=token)

    def cli(self, *arguments: str, timeout_s: float = WAIT_LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Run a command against this agent."""
        if self.command != YURT or self.user is not None:
            return subprocess.run(
                [*self.command, *arguments],
                capture_output=True,
                text=True,
                user=self.user,
                env=self.environment(),
                cwd=self.folder,
                timeout=timeout_s,
                check=False,
            )
        return yurt(*arguments, cwd=self.folder, env=self.environment(), timeout_s=timeout_s)

    def environment(self) -> dict[str, str]:
        """The environment of the agent and of commands: this agent's address, no colours, a home that exists."""
        own = {"NOMAD_ADDR": self.address, "NOMAD_CLI_NO_COLOR": "1", "HOME": str(self.folder)}
        return {**os.environ, **own, **({"NOMAD_TOKEN": self.token} if self.token else {})}

    def allocs(self, job_id: str) -> list[dict[str, Any]]:
        """The job's allocations."""
        found: list[dict[str, Any]] = self.get(f"/v1/job/{job_id}/allocations")
        return found

    def running(self, job_id: str, count: int) -> list[dict[str, Any]]:
        """Wait until the job has exactly `count` running allocations, and return them."""

        def probe() -> tuple[list[dict[str, Any]]] | None:
            live = [alloc for alloc in self.allocs(job_id) if alloc["ClientStatus"] == "running"]
            return (live,) if len(live) == count else None

        return wait_for(f"{count} running allocations of {job_id}", probe)[0]


def yurt(
    *words: str, cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float = WAIT_LIMIT_S
) -> subprocess.CompletedProcess[str]:
    """Run a command, in a fork where there is a fork server; its output is text."""
    environ = dict(os.environ if env is None else env)
    with TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
        process = forked(words, cwd=cwd, env=environ, streams=(0, stdout.fileno(), stderr.fileno()))
        if process is None:
            return subprocess.run(
                [*YURT, *words], capture_output=True, text=True, env=environ, cwd=cwd, timeout=timeout_s, check=False
            )
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(process.args, code, stdout.read(), stderr.read())


class ApiFailure(Exception):
    """An answer with a status of 400 or above."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


@contextmanager
def running_agent(folder: Path, *, data_dir: Path | None = None, **options: Any) -> Iterator[Agent]:
    """Run an agent during the block, which begins when it is ready; afterwards it and its tasks are gone."""
    agent = Agent(folder, data_dir=data_dir, **options)
    try:
        agent.start()
    except BaseException:
        agent.interrupt()
        raise
    try:
        yield agent
    finally:
        if data_dir is not None:
            stop_jobs(agent)
        agent.interrupt()


def stop_jobs(agent: Agent) -> None:
    """Stop every job and wait for its tasks: an agent with a data directory leaves tasks running."""
    if agent.process is None or agent.process.poll() is not None:
        return
    jobs = [job["ID"] for job in agent.get("/v1/jobs") if not job["Stop"]]
    for job in jobs:
        agent.call("DELETE", f"/v1/job/{job}")

    def is_quiet() -> bool:
        return all(alloc["ClientStatus"] not in ("running", "pending") for alloc in agent.get("/v1/allocations"))

    wait_for("all tasks stopped", is_quiet)


def dev_token(agent: Agent) -> str:
    """Wait for the management token on the first screen of `-dev -acl`; its secret."""

    def shown() -> str:
        found = re.search(r"export NOMAD_TOKEN=(\S+)", agent.log.read_text())
        return found[1] if found else ""

    return wait_for("the management token", shown)


def raw_exec_job(
    job_id: str, command: str, *args: str, kind: str = "service", count: int = 1, **group: Any
) -> dict[str, Any]:
    """A job of one group with one raw_exec task."""
    task = {
        "Name": "main",
        "Driver": "raw_exec",
        "Config": {"command": command, "args": list(args)},
        "Resources": {"CPU": 10, "MemoryMB": 10},
    }
    return {
        "ID": job_id,
        "Name": job_id,
        "Type": kind,
        "TaskGroups": [{"Name": "g", "Count": count, "Tasks": [task], **group}],
    }


def register(agent: Agent, job: dict[str, Any]) -> dict[str, Any]:
    """Register an API job."""
    answer: dict[str, Any] = agent.call("PUT", "/v1/jobs", {"Job": job})
    return answer


def pid_is_alive(pid: int) -> bool:
    """The process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
