"""Servers while their cluster shrinks, their etcd nears its quota, certificates are renewed, a state is replaced."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from yurt.testing.agent import ApiFailure, raw_exec_job, register, wait_for, yurt
from yurt.testing.faults.load import Load
from yurt.testing.real_cluster import LEADERLESS, RealCluster, ServerAgent, real_cluster

QUOTA_BYTES = 16 * 1024**2
FAT_BYTES = 48 * 1024
LIMIT_S = 180.0


def write_fat(agent: ServerAgent, number: int) -> None:
    """Store a variable that takes some room, and is not the smaller for being packed."""
    path = f"fat/{number:05d}"
    agent.call("PUT", f"/v1/var/{path}", {"Path": path, "Items": {"random": os.urandom(FAT_BYTES // 2).hex()}})


def is_stored(agent: ServerAgent, number: int) -> bool:
    """Store a variable; False while servers on a busy machine change their leader."""
    try:
        write_fat(agent, number)
    except ApiFailure as failure:
        assert is_known(str(failure)), failure
        return False
    return True


def is_known(refusal: str) -> bool:
    """Whether a refusal only means that the same may be asked again later."""
    return any(words in refusal for words in ("nearly full", *LEADERLESS))


def fat_paths(agent: ServerAgent) -> set[str]:
    return {row["Path"] for row in agent.get("/v1/vars?prefix=fat/")}


def alarms(server: ServerAgent) -> str:
    """The alarms of etcd, as its own tool lists them."""
    address = server.folder / "data" / "server" / "etcd" / "socket" / "etcd:0"
    command = ["etcdctl", "--endpoints", f"unix://{address}", "alarm", "list"]
    environment = os.environ | {"ETCDCTL_API": "3"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30).stdout


def test_more_than_the_quota_is_written_and_nothing_is_lost(tmp_path: Path) -> None:
    with real_cluster(tmp_path, settings={"etcd": {"quota_bytes": QUOTA_BYTES}}, clients=1) as cluster:
        register(cluster.wait_leader(), raw_exec_job("web", "/bin/sleep", "3000"))
        (before,) = cluster.wait_leader().running("web", 1)
        stored, refused = write_past_quota(cluster, 2 * QUOTA_BYTES // FAT_BYTES)
        print(f"{len(stored)} stored, {len(refused)} refused: {set(refused)}")
        for each in cluster.servers:
            assert fat_paths(each) >= stored, each.name
        for each in cluster.servers:
            assert alarms(each) == "", each.name
            assert "etcd's quota is exhausted" not in each.log_text(), each.name
        assert all(is_known(text) for text in refused), set(refused)
        (after,) = cluster.wait_leader().running("web", 1)
        assert after["ID"] == before["ID"]
        assert after["TaskStates"]["main"]["Restarts"] == 0


def write_past_quota(cluster: RealCluster, count: int) -> tuple[set[str], list[str]]:
    """Store more than the quota bears at once; what was acknowledged, and what was said instead meanwhile."""
    stored: set[str] = set()
    refused: list[str] = []
    end_s = time.monotonic() + 2 * LIMIT_S
    while len(stored) < count:
        assert time.monotonic() < end_s, refused[-5:]
        try:
            write_fat(cluster.servers[len(stored) % 3], len(stored))
        except ApiFailure as failure:
            refused.append(str(failure))
            time.sleep(0.2)
        else:
            stored.add(f"fat/{len(stored):05d}")
    return stored, refused


def test_a_large_state_is_restored_through_a_follower_while_clients_run(tmp_path: Path) -> None:
    with real_cluster(tmp_path, clients=1) as cluster:
        register(cluster.wait_leader(), raw_exec_job("web", "/bin/sleep", "3000", count=2))
        before = {each["ID"] for each in cluster.wait_leader().running("web", 2)}
        for number in range(9 * 1024**2 // (FAT_BYTES // 2)):
            wait_for("room and a leader", partial(is_stored, cluster.servers[number % 3], number))
        kept = fat_paths(cluster.wait_leader())
        follower, other = cluster.followers()
        file = tmp_path / "state.snap"
        assert follower.cli("operator", "snapshot", "save", str(file)).returncode == 0
        assert file.stat().st_size > 8 * 1024**2
        wait_for("a variable after it", lambda: is_stored(other, 99_999))
        with Load(cluster.servers) as load:
            wait_for("writes", lambda: len(load.acknowledged) > 10)
            follower.change("operator", "snapshot", "restore", str(file))
            moment = time.monotonic()
            load.wait_resumed(moment)
        late = {written.path for written in load.acknowledged if written.asked > moment}
        for each in cluster.servers:
            assert fat_paths(each) == kept, each.name
            assert late <= {row["Path"] for row in each.get("/v1/vars?prefix=load/")}
        after = cluster.wait_leader().running("web", 2)
        assert {each["ID"] for each in after} == before
        assert [each["TaskStates"]["main"]["Restarts"] for each in after] == [0, 0]


def test_three_servers_become_two_and_one_and_three_again(tmp_path: Path) -> None:
    with real_cluster(tmp_path, settings={"leave_on_terminate": True}) as cluster:
        names = {each.full_name for each in cluster.servers}
        left: list[ServerAgent] = []
        for number in (3, 2):
            leader = cluster.wait_leader()
            leader.call("PUT", "/v1/namespace", {"Name": f"with-{number}"})
            leader.stop()
            cluster.wait_statuses({leader.full_name: "left"})
            left.append(leader)
            cluster.wait_log_peers(*(names - {each.full_name for each in left}), limit_s=LIMIT_S)
        last = cluster.wait_leader()
        done = last.cli("namespace", "apply", "alone")
        assert done.returncode == 0, done.stderr
        for each in left:
            each.start()
        cluster.wait_log_peers(*names, limit_s=LIMIT_S)
        for each in cluster.servers:
            wait_for("the state", has_itself(each, "with-3", "with-2", "alone"), LIMIT_S)


def has_itself(agent: ServerAgent, *names: str) -> Callable[[], bool]:
    """Whether a server has these namespaces in its own state."""
    return lambda: set(names) <= {row["Name"] for row in agent.try_get("/v1/namespaces?stale") or ()}


def test_autopilot_puts_a_dead_server_out_once_another_has_come(tmp_path: Path) -> None:
    with real_cluster(tmp_path, settings={"autopilot": {"server_stabilization_time": "1s"}}) as cluster:
        gone = cluster.followers()[0]
        (fourth,) = cluster.add_servers(1, bootstrap_expect=0)
        fourth.start()
        names = {each.full_name for each in cluster.servers}
        cluster.wait_log_peers(*names, limit_s=LIMIT_S)
        gone.kill()
        cluster.wait_log_peers(*(names - {gone.full_name}), limit_s=LIMIT_S)
        told = "is gone and no longer keeps the cluster's log"
        wait_for("a line that tells it", lambda: any(told in each.log_text() for each in cluster.servers))
        assert fourth.cli("namespace", "apply", "after").returncode == 0


def make_certificate(folder: Path) -> None:
    """A certificate of a server by the authority in the folder, in the place of the one that is there."""
    for old in folder.glob("global-server-*"):
        old.unlink()
    yurt("tls", "cert", "create", "-server", cwd=folder).check_returncode()


def shown_at(server: ServerAgent, kind: str, keys: Path) -> bytes:
    """The certificate that a port shows to a server."""
    context = ssl.create_default_context(cafile=str(keys / "nomad-agent-ca.pem"))
    context.load_cert_chain(keys / "global-server-nomad.pem", keys / "global-server-nomad-key.pem")
    with (
        socket.create_connection((server.host, server.ports[kind]), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="server.global.nomad") as wrapped,
    ):
        return wrapped.getpeercert(binary_form=True) or b""


def test_certificates_are_renewed_while_servers_run(tmp_path: Path) -> None:
    keys = tmp_path / "pki"
    keys.mkdir()
    yurt("tls", "ca", "create", cwd=keys).check_returncode()
    make_certificate(keys)
    pair = {"cert_file": f"{keys}/global-server-nomad.pem", "key_file": f"{keys}/global-server-nomad-key.pem"}
    settings: dict[str, Any] = {"tls": {"rpc": True, "ca_file": f"{keys}/nomad-agent-ca.pem", **pair}}
    with real_cluster(tmp_path, settings=settings) as cluster:
        old = shown_at(cluster.servers[0], "etcd", keys)
        make_certificate(keys)
        for each in cluster.servers:
            os.kill(each.pid, signal.SIGHUP)
        for each in cluster.servers:
            for kind in ("etcd", "rpc"):
                wait_for(f"a new certificate at {kind}", lambda e=each, k=kind: shown_at(e, k, keys) != old, LIMIT_S)
        gone = cluster.wait_leader()
        gone.kill()
        assert cluster.wait_leader().cli("namespace", "apply", "renewed").returncode == 0
        gone.start()
        wait_for("the state", has_itself(gone, "renewed"), LIMIT_S)
        cluster.wait_statuses(dict.fromkeys((each.full_name for each in cluster.servers), "alive"))
