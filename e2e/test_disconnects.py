"""A node goes away and comes back: what becomes of its allocations, for every strategy, kind of job and kind of fault.

The table of the explanation "When a node goes away" is here, row by row. All jobs run at once on the one node that goes
away, so that one fault shows all of it; replacements can only run on the other node. `YURT_DISCONNECT_SERVERS=3` runs
the same with three servers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from yurt.testing.agent import pid_is_alive, raw_exec_job, register, wait_for
from yurt.testing.faults.clock_skew import skewed_command
from yurt.testing.real_cluster import AgentHost, ClientAgent, RealCluster, ServerAgent
from yurt.testing.services.network import Network

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.timeout(300),
]

SERVERS = int(os.environ.get("YURT_DISCONNECT_SERVERS", "1"))
SCRIPT = 'echo $$ > "$NOMAD_ALLOC_DIR/pid"; exec sleep 3000'
SECOND = 1_000_000_000
LONG, SHORT, CUT_OFF = 900 * SECOND, 3 * SECOND, 20 * SECOND
HOUR_S = 3600
HEARTBEATS = {"min_heartbeat_ttl": "2s", "heartbeat_grace": "4s", "failover_heartbeat_ttl": "20s"}
ORIGINAL, REPLACEMENT, ANEW = "the original", "the replacement", "a new one on its own node"


class Row(NamedTuple):
    """A job, and what runs of it in the end; `meanwhile` is the original's status while its node is away."""

    kind: str
    disconnect: dict[str, Any] | None
    meanwhile: str
    stays: str
    prefers: str = ""
    """The node that its placement has an affinity to."""

    @property
    def is_replaced(self) -> bool:
        """Another one runs while the node is away."""
        return self.kind != "system" and (self.disconnect is None or self.disconnect.get("Replace", True))


def rows() -> dict[str, Row]:
    """All jobs by id."""
    found: dict[str, Row] = {}
    for kind in ("service", "batch"):
        for name, reconcile, prefers, stays in (
            ("keep-original", "keep_original", "", ORIGINAL),
            ("keep-replacement", "keep_replacement", "", REPLACEMENT),
            ("longest-running", "longest_running", "", ORIGINAL),
            ("best-score-near", "best_score", "cli1", ORIGINAL),
            ("best-score-far", "best_score", "cli2", REPLACEMENT),
        ):
            block = {"LostAfter": LONG, "Replace": True, "Reconcile": reconcile}
            found[f"{name}-{kind}"] = Row(kind, block, "unknown", stays, prefers)
        found[f"not-replaced-{kind}"] = Row(kind, {"LostAfter": LONG, "Replace": False}, "unknown", ORIGINAL)
        found[f"expires-{kind}"] = Row(kind, {"LostAfter": SHORT, "Replace": True}, "lost", REPLACEMENT)
        found[f"cut-off-{kind}"] = Row(kind, {"StopOnClientAfter": CUT_OFF}, "lost", REPLACEMENT)
        found[f"plain-{kind}"] = Row(kind, None, "lost", REPLACEMENT)
    for reconcile in ("best_score", "keep_original", "keep_replacement", "longest_running"):
        block = {"LostAfter": LONG, "Reconcile": reconcile}
        found[f"{reconcile.replace('_', '-')}-system"] = Row("system", block, "unknown", ORIGINAL)
    found["plain-system"] = Row("system", None, "lost", ANEW)
    return found


ROWS = rows()


class Bench:
    """The cluster, the node that goes away, and what ran on it."""

    def __init__(self, cluster: RealCluster, away: ClientAgent) -> None:
        self.cluster = cluster
        self.away = away
        self.originals: dict[str, str] = {}
        self.pids: dict[str, int] = {}

    @property
    def server(self) -> ServerAgent:
        return self.cluster.wait_leader()

    def start_jobs(self) -> None:
        """Every job runs on the one node there is."""
        for job_id, row in ROWS.items():
            register(self.server, job_of(job_id, row))
        for job_id in ROWS:
            (alloc,) = self.server.running(job_id, 1)
            self.originals[job_id] = alloc["ID"]
            self.pids[job_id] = pid_of(self.cluster, alloc["ID"])

    def allocs(self, job_id: str) -> dict[str, dict[str, Any]]:
        """The job's allocations by id."""
        return {alloc["ID"]: alloc for alloc in self.server.allocs(job_id)}

    def node_is(self, *statuses: str) -> bool:
        """The node that goes away has one of these statuses."""
        nodes = {node["Name"]: node["Status"] for node in self.server.get("/v1/nodes")}
        return nodes.get("cli1") in statuses

    def wait_away(self) -> None:
        """The servers have noticed, and everything that is replaced runs elsewhere."""
        wait_for("the node to be missed", lambda: self.node_is("disconnected", "down"))
        for job_id, row in ROWS.items():
            wait_for(f"{job_id} without its node", partial(self._is_away, job_id, row))

    def _is_away(self, job_id: str, row: Row) -> bool:
        allocs = self.allocs(job_id)
        if allocs[self.originals[job_id]]["ClientStatus"] != row.meanwhile:
            return False
        others = [a for a in allocs.values() if a["ID"] != self.originals[job_id] and a["NodeName"] == "cli2"]
        return [a["ClientStatus"] for a in others] == ["running"] * (row.is_replaced or row.kind == "system")

    def wait_table(self) -> None:
        """The node is ready again, and of every job exactly what the table says runs."""
        wait_for("the node to be ready again", lambda: self.node_is("ready"))
        for job_id, row in ROWS.items():
            wait_for(f"{job_id}: {row.stays} stays, {self._told(job_id)}", partial(self._is_so, job_id, row))
        for job_id, row in ROWS.items():
            self.check_process(job_id, stays=row.stays == ORIGINAL)

    def check_process(self, job_id: str, *, stays: bool) -> None:
        """The original's process goes on; or it ends, which servers that took it for lost do not wait for."""
        pid = self.pids[job_id]
        if stays:
            assert pid_is_alive(pid), job_id
        else:
            wait_for(f"the end of {job_id}'s process", lambda: not pid_is_alive(pid))

    def _is_so(self, job_id: str, row: Row) -> bool:
        allocs = self.allocs(job_id)
        running = [a for a in allocs.values() if a["ClientStatus"] == "running" and a["DesiredStatus"] == "run"]
        live = [a for a in allocs.values() if a["ClientStatus"] in ("running", "pending", "unknown")]
        where = sorted(a["NodeName"] for a in running)
        original = allocs[self.originals[job_id]]
        is_kept = original in running and original["TaskStates"]["main"]["Restarts"] == 0
        if len(live) != len(running) or is_kept != (row.stays == ORIGINAL):
            return False
        if row.kind == "system":
            return where == ["cli1", "cli2"]
        return where == ["cli1" if row.stays == ORIGINAL else "cli2"]

    def _told(self, job_id: str) -> list[tuple[str, str, str]]:
        return [(a["NodeName"], a["DesiredStatus"], a["ClientStatus"]) for a in self.allocs(job_id).values()]


def job_of(job_id: str, row: Row) -> dict[str, Any]:
    """The job of a row."""
    job = raw_exec_job(job_id, "/bin/sh", "-c", SCRIPT, kind=row.kind)
    group = job["TaskGroups"][0]
    if row.kind == "service":
        group["Update"] = {"MaxParallel": 0}
    if row.disconnect is not None:
        group["Disconnect"] = row.disconnect
    if row.prefers:
        group["Affinities"] = [
            {"LTarget": "${node.unique.name}", "RTarget": row.prefers, "Operand": "=", "Weight": 100}
        ]
    return job


def pid_of(cluster: RealCluster, alloc_id: str) -> int:
    """The pid that a task wrote down."""
    paths = [client.folder / "data" / "alloc" / alloc_id / "alloc" / "pid" for client in cluster.clients]

    def read() -> int | None:
        found = [path.read_text().strip() for path in paths if path.exists()]
        return int(found[0]) if found and found[0] else None

    return wait_for("a pid file", read)


@contextmanager
def bench(folder: Path, *, skews: tuple[int, int] = (0, 0)) -> Iterator[tuple[Bench, Network]]:
    """All jobs on a node in a network of its own, and a second node that came later."""
    with Network() as network, closing(RealCluster(folder, server=HEARTBEATS)) as cluster:
        cluster.add_servers(SERVERS, [machine(network) for _ in range(SERVERS)])
        away = add_client(cluster, network, skews[0])
        made = Bench(cluster, away)
        made.start_jobs()
        add_client(cluster, network, skews[1])
        wait_for("system jobs on both", lambda: len(made.allocs("plain-system")) == 2)
        yield made, network


def add_client(cluster: RealCluster, network: Network, skew_s: int) -> ClientAgent:
    """One more client whose clock is that wrong, in a network of its own; it is ready, as all others are."""
    place = machine(network)
    client = cluster.add_client(place)
    client.command = skewed_command(place.before, skew_s)
    cluster.start()
    return client


def machine(network: Network) -> AgentHost:
    """One more machine, which keeps the mounts of this one: cgroups among them."""
    place = network.machine()
    return AgentHost(place.address, ("nsenter", f"--net=/run/netns/{place.before[-1]}"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Network]]:
    """All jobs on nodes whose clocks agree."""
    with bench(tmp_path_factory.mktemp("whole")) as made:
        yield made


def restarts(alloc: dict[str, Any]) -> int:
    """How often its task was started again; one that waits for its client has not been started yet."""
    states = alloc["TaskStates"] or {}
    return int(states["main"]["Restarts"]) if "main" in states else 0


def test_servers_that_die_and_come_back_change_nothing(whole: tuple[Bench, Network]) -> None:
    made, _ = whole
    before = {job_id: made.allocs(job_id) for job_id in ROWS}
    leader, begun_s = made.server, time.monotonic()
    leader.kill()
    leader.start()
    made.cluster.wait_leader()
    wait_for("both nodes", lambda: [n["Status"] for n in made.server.get("/v1/nodes")] == ["ready"] * 2)

    is_slow = (time.monotonic() - begun_s) * SECOND > CUT_OFF / 2
    for job_id, known in before.items():
        if is_slow and job_id.startswith("cut-off"):
            continue
        now = made.allocs(job_id)
        assert set(now) == set(known), job_id
        assert [restarts(row) for row in now.values()] == [0] * len(known)
        assert pid_is_alive(made.pids[job_id]), job_id


def test_a_node_that_is_cut_off_and_comes_back_goes_by_the_table(whole: tuple[Bench, Network]) -> None:
    cut_off_and_back(*whole)


def test_clocks_that_are_wrong_decide_nothing(tmp_path: Path) -> None:
    with bench(tmp_path, skews=(HOUR_S, -HOUR_S)) as made:
        cut_off_and_back(*made)


def test_a_client_that_dies_and_comes_back_with_a_wrong_clock_goes_by_the_table(tmp_path: Path) -> None:
    with bench(tmp_path, skews=(-HOUR_S, HOUR_S)) as (made, _):
        made.away.kill()
        made.wait_away()
        assert all(pid_is_alive(pid) for pid in made.pids.values()), "a task died with its agent"
        made.away.start()
        made.wait_table()


def cut_off_and_back(made: Bench, network: Network) -> None:
    """No packet passes between the node and the servers, until all that follows from it has happened."""
    with network.cut(made.away.host, *(server.host for server in made.cluster.servers)):
        made.wait_away()
        for job_id in made.pids:
            made.check_process(job_id, stays=not job_id.startswith("cut-off"))
    made.wait_table()


@contextmanager
def two_nodes(folder: Path) -> Iterator[RealCluster]:
    """A cluster on loopback with two clients."""
    cluster = RealCluster(folder, server=HEARTBEATS)
    try:
        cluster.add_servers(SERVERS)
        for _ in range(2):
            cluster.add_client()
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def test_drains_move_services_let_batch_work_run_and_stop_system_jobs_last(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as cluster:
        server = cluster.wait_leader()
        web = raw_exec_job(
            "web", "/bin/sh", "-c", SCRIPT, count=2, Migrate={"MaxParallel": 1, "MinHealthyTime": SECOND}
        )
        for job in (web, raw_exec_job("each", "/bin/sh", "-c", SCRIPT, kind="system")):
            register(server, job)
        server.running("web", 2)
        register(server, raw_exec_job("work", "/bin/sh", "-c", SCRIPT, kind="batch"))
        (work,) = server.running("work", 1)
        nodes = {node["Name"]: node["ID"] for node in server.get("/v1/nodes")}
        first = work["NodeName"]
        other = next(name for name in nodes if name != first)

        drain(server, nodes[first], {"Deadline": HOUR_S * SECOND, "IgnoreSystemJobs": True})
        wait_for("services on the other node", lambda: where(server, "web") == [other] * 2)
        assert where(server, "work") == [first], "batch work may run until the deadline"
        drain(server, nodes[first], {"Deadline": SECOND, "IgnoreSystemJobs": True})
        node = wait_for("the end of the drain", lambda: drained(server, nodes[first]))
        assert {"deadline_reached": "true"} in [event["Details"] for event in node["Events"]]
        assert (where(server, "work"), where(server, "each")) == ([], sorted(nodes)), "system jobs are ignored"

        server.call("PUT", f"/v1/node/{nodes[first]}/eligibility", {"Eligibility": "eligible"})
        drain(server, nodes[other], {"Deadline": -1})
        wait_for("the end of the forced drain", lambda: drained(server, nodes[other]))
        wait_for("all on the first node", lambda: where(server, "web") == [first] * 2)
        assert where(server, "each") == [first]


def drain(server: ServerAgent, node_id: str, spec: dict[str, Any]) -> None:
    """Begin a drain."""
    server.call("PUT", f"/v1/node/{node_id}/drain", {"DrainSpec": spec})


def drained(server: ServerAgent, node_id: str) -> dict[str, Any] | None:
    """The node, once its drain is over."""
    node: dict[str, Any] = server.get(f"/v1/node/{node_id}")
    return node if node["DrainStrategy"] is None and node["LastDrain"]["Status"] == "complete" else None


def where(server: ServerAgent, job_id: str) -> list[str]:
    """The nodes on which a job runs."""
    return sorted(alloc["NodeName"] for alloc in server.allocs(job_id) if alloc["ClientStatus"] == "running")
