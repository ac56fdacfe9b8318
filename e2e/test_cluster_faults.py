"""Three servers while parts of them die, freeze, are cut off or lose their disks: writes go on, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from yurt.testing.agent import ApiFailure, pid_is_alive, raw_exec_job, register, wait_for
from yurt.testing.faults.load import Load
from yurt.testing.real_cluster import RealCluster, ServerAgent, real_cluster
from yurt.testing.services.network import Network

ROUNDS = int(os.environ.get("YURT_KILLS", "6"))
"""How often the leader is killed; 20 give the figures of the README."""
SCRIPT = 'echo $$ > "$NOMAD_ALLOC_DIR/pid"; exec sleep 3000'
COUNT = 4

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and mounts need root")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three servers and two clients that run a service."""
    with real_cluster(tmp_path_factory.mktemp("faults"), clients=2) as made:
        register(made.wait_leader(), raw_exec_job("web", "/bin/sh", "-c", SCRIPT, count=COUNT))
        made.wait_leader().running("web", COUNT)
        yield made


class Tasks:
    """The service's tasks as they were: afterwards they must be the same processes, started once."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._allocs = {alloc["ID"] for alloc in cluster.wait_leader().running("web", COUNT)}
        wait_for("all tasks to have told their process", lambda: len(self._read()) == COUNT)
        self._pids = self._read()

    def check(self) -> None:
        """Wait until every server lists them as running, and compare."""
        for server in self._cluster.running_servers:
            allocs = server.running("web", COUNT)
            assert {alloc["ID"] for alloc in allocs} == self._allocs, "allocations were replaced"
            assert [alloc["TaskStates"]["main"]["Restarts"] for alloc in allocs] == [0] * COUNT
        assert self._read() == self._pids
        assert all(pid_is_alive(pid) for pid in self._pids.values())

    def _read(self) -> dict[str, int]:
        files = [
            path for client in self._cluster.clients for path in (client.folder / "data").glob("alloc/*/alloc/pid")
        ]
        told = {path.parts[-3]: path.read_text() for path in files}
        return {alloc_id: int(text) for alloc_id, text in told.items() if text and alloc_id in self._allocs}


@contextmanager
def nothing_lost(cluster: RealCluster) -> Iterator[Load]:
    """Writes that go on during the block; afterwards each acknowledged one is on every server, jobs have their counts,
    and tasks are the same."""
    tasks = Tasks(cluster)
    with Load(cluster.servers) as load:
        wait_for("the first writes", lambda: len(load.acknowledged) > 10)
        yield load
        before = len(load.acknowledged)
        wait_for("writes at the end", lambda: len(load.acknowledged) > before + 10)
    assert_jobs_count(cluster)
    for server in cluster.running_servers:
        assert load.missing(server) == [], server.name
    tasks.check()


def assert_jobs_count(cluster: RealCluster) -> None:
    """Every job that has been registered is there with its count."""
    for job in cluster.wait_leader().answer("/v1/jobs"):
        count = cluster.wait_leader().answer(f"/v1/job/{job['ID']}")["TaskGroups"][0]["Count"]
        cluster.wait_leader().running(job["ID"], count)


def is_taken(server: ServerAgent, job: dict[str, Any]) -> bool:
    """Register a job; False where no server leads just now."""
    try:
        register(server, job)
    except (ApiFailure, OSError) as error:
        print(f"{job['ID']} is not registered yet: {error}")
        return False
    return True


def kill_etcd(server: ServerAgent) -> None:
    member = server.etcd
    assert member is not None
    member.kill()


KILLS: dict[str, Callable[[ServerAgent], None]] = {
    "agent and etcd": lambda leader: leader.kill(),
    "agent": lambda leader: os.kill(leader.pid, signal.SIGKILL),
    "etcd": kill_etcd,
}


def test_streams_at_a_follower_outlive_the_leader(cluster: RealCluster) -> None:
    leader = cluster.wait_leader()
    follower = next(each for each in cluster.servers if each is not leader)
    index = int(leader.get("/v1/agent/self")["stats"]["raft"]["applied_index"])
    path = f"/v1/event/stream?topic=Job:late&index={index}"
    view = quote(json.dumps({"ID": "late", "Kind": "jobs", "Where": ["ID:late"]}))
    with (
        urllib.request.urlopen(follower.address + path, timeout=60) as lines,
        urllib.request.urlopen(f"{follower.address}/v1/yurt/watch?view={view}", timeout=60) as watched,
    ):
        lines.readline()
        watched.readline()
        leader.kill()
        present = cluster.wait_leader(other_than=leader)
        wait_for("a job under the next leader", partial(is_taken, present, raw_exec_job("late", "/bin/true")))
        found = next(line for line in map(json.loads, lines) if line.get("Events"))
        row = next(line for line in map(json.loads, watched) if line.get("Views"))
    leader.start()
    cluster.wait_leader().call("DELETE", "/v1/job/late?purge=true")  # later tests count the tasks of every job
    assert found["Events"][0]["Type"] == "JobRegistered"
    assert row["Views"]["late"]["Columns"]["ID"] == ["late"]


def test_killing_the_leader_again_and_again_loses_nothing(cluster: RealCluster) -> None:
    gaps: list[float] = []
    with nothing_lost(cluster) as load:
        for number in range(ROUNDS):
            leader, kind = cluster.wait_leader(), list(KILLS)[number % len(KILLS)]
            job = raw_exec_job(f"more-{number}", "/bin/sleep", "3000")
            wait_for("a new job", partial(is_taken, cluster.servers[number % 3], job))
            moment = time.monotonic()
            KILLS[kind](leader)
            gaps.append(load.wait_resumed(moment))
            print(f"{kind} of {leader.name} killed: no write acknowledged for {gaps[-1]:.2f} s")
            if not leader.is_running or kind == "agent":
                leader.wait_end()
                leader.start()
            index = cluster.wait_leader().get("/v1/agent/self")["stats"]["raft"]["applied_index"]
            cluster.wait_index(int(index))
    gaps.sort()
    print(f"{ROUNDS} kills: median {gaps[len(gaps) // 2]:.2f} s, longest {gaps[-1]:.2f} s")


def test_a_frozen_leader_is_replaced_and_follows_when_it_thaws(cluster: RealCluster) -> None:
    with nothing_lost(cluster) as load:
        frozen = cluster.wait_leader()
        moment = time.monotonic()
        frozen.freeze()
        try:
            load.wait_resumed(moment)
            others = [each for each in cluster.servers if each is not frozen]
            wait_for("another leader", lambda: any(each.leads() for each in others))
        finally:
            frozen.thaw()
        leader = cluster.wait_leader()
        assert leader is not frozen or not any(each.leads() for each in others)
        assert sum(each.leads() for each in cluster.servers) == 1


def test_a_rolling_restart_is_a_matter_of_moments(cluster: RealCluster) -> None:
    with nothing_lost(cluster) as load:
        for server in cluster.servers:
            moment = time.monotonic()
            server.restart()
            print(f"{server.name} restarted: no write acknowledged for {load.wait_resumed(moment):.2f} s")
            cluster.wait_leader()


def test_a_follower_that_was_away_catches_up_through_what_it_missed(cluster: RealCluster) -> None:
    with nothing_lost(cluster) as load:
        away = cluster.followers()[0]
        away.kill()
        before = len(load.acknowledged)
        wait_for("writes without it", lambda: len(load.acknowledged) > before + 100)
        away.start()


def test_all_servers_lose_their_power_at_once(cluster: RealCluster) -> None:
    tasks = Tasks(cluster)
    with Load(cluster.servers) as load:
        wait_for("writes", lambda: len(load.acknowledged) > 50)
        for server in cluster.servers:
            os.kill(server.pid, signal.SIGKILL)
        for server in cluster.servers:
            server.kill()
    cluster.start()
    cluster.wait_leader()
    for server in cluster.servers:
        assert load.missing(server) == [], server.name
    assert_jobs_count(cluster)
    tasks.check()


def test_a_leader_whose_disk_is_lost_takes_its_place_again(cluster: RealCluster) -> None:
    with nothing_lost(cluster):
        lost = cluster.wait_leader()
        lost.kill()
        lost.lose_disk()
        lost.start()
        cluster.wait_log_peers(*(each.full_name for each in cluster.servers))


def test_a_snapshot_is_restored_in_a_cluster(cluster: RealCluster, tmp_path: Path) -> None:
    tasks, file = Tasks(cluster), tmp_path / "state.snap"
    follower, other = cluster.followers()
    assert (saved := follower.cli("operator", "snapshot", "save", str(file))).returncode == 0, saved.stderr
    assert "Index" in follower.cli("operator", "snapshot", "inspect", str(file)).stdout
    job = raw_exec_job("after-the-snapshot", "/bin/sleep", "3000")
    wait_for("a job after the snapshot", lambda: is_taken(other, job))
    other.change("operator", "snapshot", "restore", str(file))

    def is_forgotten(server: ServerAgent) -> bool:
        return all(each["ID"] != job["ID"] for each in server.get("/v1/jobs?stale"))

    wait_for("the old state everywhere", lambda: all(is_forgotten(each) for each in cluster.servers))
    tasks.check()


@contextmanager
def faulty_writes(server: ServerAgent) -> Iterator[None]:
    """Every fsync of the server's etcd fails with EIO."""
    assert server.etcd is not None
    command = ["strace", "-f", "-q", "-o", "/dev/null", "-e", "inject=fsync,fdatasync:error=EIO", "-p"]
    tracer = subprocess.Popen([*command, str(server.etcd.pid)], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        tracer.terminate()
        try:
            tracer.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it waits for good for the thread of an etcd that ends just then
            tracer.kill()
            tracer.wait()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@needs_root
def test_a_leader_whose_disk_fails_acknowledges_nothing_more(cluster: RealCluster) -> None:
    with nothing_lost(cluster) as load:
        broken = cluster.wait_leader()
        member = broken.etcd
        assert member is not None
        moment = time.monotonic()
        with faulty_writes(broken):
            load.wait_resumed(moment)
            wait_for("etcd to stop", lambda: not pid_is_alive(member.pid))
        wait_for("its etcd to run again", lambda: (found := broken.etcd) is not None and found.pid != member.pid)


@needs_root
def test_a_disk_that_is_full_costs_its_server_only(tmp_path: Path) -> None:
    disk = tmp_path / "srv1" / "data"
    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", str(disk)], check=True)
    try:
        with real_cluster(tmp_path, clients=1) as cluster:
            register(cluster.wait_leader(), raw_exec_job("web", "/bin/sh", "-c", SCRIPT, count=COUNT))
            with nothing_lost(cluster) as load:
                fill_for_a_while(cluster.server("srv1"), disk / "ballast", load)
                cluster.wait_leader()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill_for_a_while(server: ServerAgent, ballast: Path, load: Load) -> None:
    """Leave a server's disk no byte while the others go on."""
    with ballast.open("wb") as file:
        fill(file.fileno())
    before = len(load.acknowledged)
    wait_for("writes with a full disk", lambda: len(load.acknowledged) > before + 200)
    ballast.unlink()
    if not server.is_running:
        server.start()


def fill(file: int) -> None:
    """Write until nothing more fits."""
    size = 1 << 20
    while size:
        try:
            os.write(file, bytes(size))
        except OSError:
            size //= 2


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealCluster, Network]]:
    """Three servers and a client, each on a machine of its own."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with Network() as network:
        places = [network.machine() for _ in range(4)]
        cluster = RealCluster(tmp_path_factory.mktemp("machines"))
        try:
            cluster.add_servers(3, places[:3])
            cluster.add_client(places[3])
            cluster.start()
            register(cluster.wait_leader(), raw_exec_job("web", "/bin/sh", "-c", SCRIPT, count=COUNT))
            cluster.wait_leader().running("web", COUNT)
            yield cluster, network
        finally:
            cluster.close()


@needs_root
@pytest.mark.parametrize(
    "lost", [{}, {"incoming": False}, {"outgoing": False}], ids=["both ways", "sending", "receiving"]
)
def test_a_leader_that_is_cut_off_stops_leading(machines: tuple[RealCluster, Network], lost: dict[str, Any]) -> None:
    cluster, network = machines
    with nothing_lost(cluster) as load:
        cut = cluster.wait_leader()
        others = [each for each in cluster.servers if each is not cut]
        moment = time.monotonic()
        with network.cut(cut.host, *(each.host for each in others), **lost):
            load.wait_resumed(moment)
            wait_for("a leader among the others", lambda: any(each.leads() for each in others))
            wait_for("the one that is cut off to know it", lambda: not cut.leads())
            acknowledged = len(load.acknowledged)
            wait_for("writes without it", lambda: len(load.acknowledged) > acknowledged + 20)
            if not lost:
                assert_answers_only_stale_reads(cut)
        cluster.wait_leader()


def assert_answers_only_stale_reads(server: ServerAgent) -> None:
    with pytest.raises((ApiFailure, OSError)):
        server.get("/v1/jobs")
    assert [job["ID"] for job in server.get("/v1/jobs?stale")] == ["web"]


@needs_root
def test_a_follower_that_is_cut_off_hurts_nobody(machines: tuple[RealCluster, Network]) -> None:
    cluster, network = machines
    with nothing_lost(cluster) as load:
        leader, cut = cluster.wait_leader(), cluster.followers()[0]
        with network.cut(cut.host, *(each.host for each in cluster.servers if each is not cut)):
            before = len(load.acknowledged)
            wait_for("writes without it", lambda: len(load.acknowledged) > before + 100)
            assert cluster.server(leader.name).leads()
        cluster.wait_leader()
