"""A cluster of real agents, each a process: servers with their own etcd members, and clients.

Each part can be killed, frozen, stopped and started again by itself. Agents listen on loopback, or where an `AgentHost`
says: in a network namespace, say. Afterwards everything that was started is gone.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from yurt.testing.agent import WAIT_LIMIT_S, YURT, Agent, ApiFailure, stop_jobs, wait_for
from yurt.testing.unique_ports import quiet_port

LEADER_LIMIT_S = 90.0
STOP_LIMIT_S = 60.0
LEADERLESS = ("No cluster leader", "may or may not")
"""What servers say of a change while their leader changes, as it does by itself where a machine is busy."""


class AgentHost(NamedTuple):
    """Where an agent runs: its listen address, and a prefix of its command (`ip netns exec NAME`)."""

    address: str = "127.0.0.1"
    before: tuple[str, ...] = ()


HERE = AgentHost()


class ClusterAgent(Agent):
    """An agent of a cluster; it is ready when `ready_path` of its HTTP API answers."""

    ready_path = "/v1/status/leader"

    def __init__(self, folder: Path, name: str, settings: dict[str, Any], place: AgentHost = HERE) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, data_dir=folder / "data", name=name, command=[*place.before, *YURT])
        self.name = name
        self.host = place.address
        probed = "127.0.0.1" if place.before else place.address
        self.ports = {kind: quiet_port(probed) for kind in ("http", "rpc", "serf", "etcd")}
        self.port = self.ports["http"]
        self.settings: dict[str, Any] = {
            "name": name, "data_dir": str(folder / "data"), "bind_addr": place.address, "ports": self.ports,
            "log_level": "DEBUG", **settings,
        }  # fmt: skip
        self.write_config()

    def write_config(self) -> None:
        """Write the configuration file; it takes effect at the next start."""
        self.config.write_text(json.dumps(self.settings))

    def at(self, kind: str) -> str:
        """The address `host:port` of its `http`, `rpc`, `serf` or `etcd` listener."""
        return f"{self.host}:{self.ports[kind]}"

    @property
    def is_running(self) -> bool:
        """Whether its process is alive."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """The pid of the agent; `ip netns exec` replaces itself by the agent."""
        assert self.process is not None
        return self.process.pid

    def is_ready(self) -> bool:
        """Whether it answers and knows a leader."""
        assert self.is_running, self.log.read_text()
        return bool(self.try_get(self.ready_path))

    def try_get(self, path: str) -> Any:
        """Send a GET; None for any failure."""
        try:
            return self.get(path)
        except (OSError, http.client.HTTPException, ApiFailure, ValueError):
            return None

    def answer(self, path: str) -> Any:
        """Send a GET, repeated while it fails: servers on a busy machine may change their leader."""
        return wait_for(
            f"an answer to {path}", lambda: (found,) if (found := self.try_get(path)) is not None else None
        )[0]

    def change(self, *words: str) -> None:
        """Run a command that changes something, repeated during elections; fails the test otherwise."""

        def is_made() -> bool:
            done = self.cli(*words)
            assert done.returncode == 0 or any(text in done.stderr for text in LEADERLESS), done.stderr
            return done.returncode == 0

        wait_for(" ".join(words), is_made)

    def put(self, path: str, body: Any) -> None:
        """Send a PUT that may be repeated safely, again during elections."""

        def is_made() -> bool:
            try:
                self.call("PUT", path, body)
            except ApiFailure as error:
                if not any(text in error.text for text in LEADERLESS):
                    raise
                return False
            return True

        wait_for(f"a change by {path}", is_made)

    def allocs(self, job_id: str) -> list[dict[str, Any]]:
        """The job's allocations."""
        found: list[dict[str, Any]] = self.answer(f"/v1/job/{job_id}/allocations")
        return found

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.spawn()
        wait_for(f"{self.name} to be ready", self.is_ready, LEADER_LIMIT_S)

    def ask_to_stop(self) -> None:
        """Send SIGTERM once: a second one would end the agent before its shutdown is complete."""
        assert self.process is not None
        self.process.terminate()

    def stop(self) -> None:
        """Shut it down; does nothing when it does not run."""
        if self.is_running:
            self.ask_to_stop()
            self.wait_end()

    def wait_end(self) -> int:
        """Wait for its end; returns the exit code."""
        assert self.process is not None
        return self.process.wait(timeout=STOP_LIMIT_S)

    def kill(self) -> None:
        """Kill it and its etcd member with SIGKILL; returns when both are gone."""
        family = [process for process in (self._process(), self.etcd) if process is not None]
        super().kill()
        psutil.wait_procs(family, timeout=STOP_LIMIT_S)

    def restart(self) -> None:
        """Shut it down, start it again, and wait until it is ready."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Freeze the agent and its etcd member (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume both (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in (self._process(), self.etcd):
            if process is not None:
                process.send_signal(number)

    def _process(self) -> psutil.Process | None:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid)
        return None

    @property
    def etcd(self) -> psutil.Process | None:
        """Its etcd process; None when there is none."""
        children: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.pid).children()
        for child in children:
            with suppress(psutil.NoSuchProcess):  # another one may end just now
                if child.name() == "etcd":
                    return child
        return None

    def log_text(self) -> str:
        """Its log over all starts."""
        return self.log.read_text(errors="replace")


class ServerAgent(ClusterAgent):
    """A server; it is ready when it knows a leader."""

    @property
    def full_name(self) -> str:
        """Its member name, with the region."""
        return f"{self.name}.{self.settings.get('region', 'global')}"

    def leads(self) -> bool:
        """Whether it says that it leads."""
        return self.is_running and (self.try_get("/v1/status/leader?stale") == self.at("rpc"))

    def lose_disk(self) -> None:
        """Delete its data; it must not run."""
        import shutil

        assert not self.is_running
        shutil.rmtree(self.folder / "data")


class ClientAgent(ClusterAgent):
    """A client without a server part; it is ready when its node is."""

    def is_ready(self) -> bool:
        """Whether its health check passes."""
        assert self.is_running, self.log.read_text()
        found = self.try_get("/v1/agent/health?type=client")
        return bool(found and found["client"]["ok"])


class RealCluster:
    """Servers `srv1`, `srv2` ... and clients `cli1`, `cli2` ..., each with its own folder.

    `settings` are laid over the configuration of every agent, `server` and `client` over those blocks.
    """

    def __init__(
        self, folder: Path, *, settings: dict[str, Any] | None = None, server: dict[str, Any] | None = None,
        client: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.servers: list[ServerAgent] = []
        self.clients: list[ClientAgent] = []
        self._settings = settings or {}
        self._server = server or {}
        self._client = client or {}

    # Making agents.

    def add_servers(self, count: int, places: Sequence[AgentHost] = (), **server: Any) -> list[ServerAgent]:
        """Add servers that form a cluster, or join one with `bootstrap_expect=0`; starts none."""
        first = len(self.servers) + 1
        made = [
            ServerAgent(self.folder / f"srv{number}", f"srv{number}", dict(self._settings), place)
            for number, place in zip(range(first, first + count), [*places, *[HERE] * count], strict=False)
        ]
        self.servers += made
        block = {"enabled": True, "bootstrap_expect": count, **self._server, **server}
        if block["bootstrap_expect"] == 0:
            del block["bootstrap_expect"]
        for each in made:
            join = {"retry_join": [other.at("serf") for other in self.servers], "retry_interval": "1s"}
            each.settings |= {"server": {"server_join": join, **block}, "client": {"enabled": False}}
            each.write_config()
        return made

    def add_client(self, place: AgentHost = HERE, **client: Any) -> ClientAgent:
        """Add a client that knows all servers added so far; does not start it."""
        number = len(self.clients) + 1
        servers = [each.at("rpc") for each in self.servers]
        block = {"enabled": True, "servers": servers, "options": {"driver.raw_exec.enable": "1"}}
        settings = {**self._settings, "server": {"enabled": False}, "client": block | self._client | client}
        made = ClientAgent(self.folder / f"cli{number}", f"cli{number}", settings, place)
        self.clients.append(made)
        return made

    # Acting on all.

    @property
    def agents(self) -> list[ClusterAgent]:
        """All agents, clients first."""
        return [*self.clients, *self.servers]

    def start(self) -> None:
        """Start all agents that do not run, concurrently, and wait until each is ready."""
        fresh = [agent for agent in (*self.servers, *self.clients) if not agent.is_running]
        for agent in fresh:
            agent.spawn()
        for agent in fresh:
            wait_for(f"{agent.name} to be ready", agent.is_ready, LEADER_LIMIT_S)

    def power_off(self) -> None:
        """Kill all agents at the same time."""
        running = [agent for agent in self.agents if agent.is_running]
        for agent in running:
            os.kill(agent.pid, signal.SIGKILL)
        for agent in running:
            agent.kill()

    def stop_servers(self) -> None:
        """Shut down all servers concurrently; each must exit without an error."""
        running = self.running_servers
        for server in running:
            server.ask_to_stop()
        codes = {server.name: server.wait_end() for server in running}
        assert not any(codes.values()), codes

    def close(self) -> None:
        """Stop the jobs when there is a leader, shut the clients down, and kill the servers.

        A server that stops after most others have waits for a majority that does not come; tests that check how
        servers stop call `stop` or `stop_servers`.
        """
        for agent in self.agents:
            if agent.is_running:
                agent.thaw()
        leader = next((each for each in self.servers if each.leads()), None)
        if leader is not None and self.clients:
            with suppress(AssertionError, ApiFailure, OSError):
                stop_jobs(leader)
        running = [client for client in self.clients if client.is_running]
        for client in running:
            client.ask_to_stop()
        for client in running:
            client.wait_end()
        self.power_off()

    # Asking.

    @property
    def running_servers(self) -> list[ServerAgent]:
        """The servers whose process is alive."""
        return [each for each in self.servers if each.is_running]

    def server(self, name: str) -> ServerAgent:
        """A server by name."""
        return next(each for each in self.servers if each.name == name)

    def wait_leader(self, *, other_than: ServerAgent | None = None, limit_s: float = LEADER_LIMIT_S) -> ServerAgent:
        """Wait until one server leads and every running server agrees; returns it."""

        def agreed() -> ServerAgent | None:
            leaders = {str(each.try_get("/v1/status/leader")) for each in self.running_servers}
            found = next((each for each in self.running_servers if each.at("rpc") in leaders), None)
            return found if len(leaders) == 1 and found is not other_than else None

        return wait_for("a leader that all servers agree on", agreed, limit_s)

    def followers(self) -> list[ServerAgent]:
        """The running servers that do not lead."""
        leader = self.wait_leader()
        return [each for each in self.running_servers if each is not leader]

    def statuses(self, agent: ClusterAgent | None = None) -> dict[str, str]:
        """The status of each server by name, as one server sees it."""
        found = (agent or self.running_servers[0]).get("/v1/agent/members")["Members"]
        return {each["Name"]: each["Status"] for each in found}

    def wait_statuses(self, expected: dict[str, str], limit_s: float = WAIT_LIMIT_S) -> None:
        """Wait until every running server sees these statuses of these servers."""

        def is_seen() -> bool:
            answers = [each.try_get("/v1/agent/members") for each in self.running_servers]
            seen = [{row["Name"]: row["Status"] for row in (answer or {}).get("Members", ())} for answer in answers]
            return all(each.get(name) == status for each in seen for name, status in expected.items())

        wait_for(f"statuses {expected}", is_seen, limit_s)

    def log_peers(self, agent: ClusterAgent | None = None) -> list[dict[str, Any]]:
        """The peers of the log."""
        found: list[dict[str, Any]] = (agent or self.wait_leader()).answer("/v1/operator/raft/configuration")["Servers"]
        return found

    def wait_log_peers(self, *names: str, limit_s: float = WAIT_LIMIT_S) -> None:
        """Wait until every running server names exactly these peers of the log."""

        def is_so() -> bool:
            answers = [each.try_get("/v1/operator/raft/configuration") for each in self.running_servers]
            return all(found and {row["Node"] for row in found["Servers"]} == set(names) for found in answers)

        wait_for(f"the log to be kept by {', '.join(names)}", is_so, limit_s)

    def wait_index(self, index: int, limit_s: float = WAIT_LIMIT_S) -> None:
        """Wait until every running server has applied the log up to an index."""

        def reached() -> bool:
            return all(_applied(each) >= index for each in self.running_servers)

        wait_for(f"index {index} on all servers", reached, limit_s)


def _applied(server: ServerAgent) -> int:
    found = server.try_get("/v1/agent/self")
    return int(found["stats"]["raft"]["applied_index"]) if found else 0


@contextmanager
def real_cluster(
    folder: Path, *, servers: int = 3, clients: int = 0, prepare: Callable[[RealCluster], None] | None = None,
    **options: Any,
) -> Iterator[RealCluster]:  # fmt: skip
    """Run a cluster with a leader during the block; `prepare` may change it before the start."""
    cluster = RealCluster(folder, **options)
    try:
        cluster.add_servers(servers)
        for _ in range(clients):
            cluster.add_client()
        if prepare is not None:
            prepare(cluster)
        cluster.start()
        cluster.wait_leader()
        yield cluster
    finally:
        cluster.close()
