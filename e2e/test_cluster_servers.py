"""Servers as processes: they form a cluster, come and go, and are put out and replaced."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import ApiFailure, wait_for, yurt
from yurt.testing.real_cluster import RealCluster, ServerAgent, real_cluster
from yurt.testing.unique_ports import quiet_port

START_S = 60.0
"""How long an agent may take to say something."""
CUT, WRITES_BEYOND_THE_CUT = 1024, 30
"""A length of a raft log in bytes, and writes that it does not hold, of which etcd has stored most in its database."""
NAMES = ("srv1.global", "srv2.global", "srv3.global")


@pytest.fixture(scope="module")
def shared() -> Iterator[list[RealCluster]]:
    """The cluster of the tests that leave three servers as they found them, once there is one."""
    found: list[RealCluster] = []
    yield found
    for each in found:
        each.close()


@pytest.fixture
def cluster(shared: list[RealCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three servers with a leader; afterwards they must be three again, or the next test gets others."""
    if not shared:
        shared.append(RealCluster(tmp_path_factory.mktemp("shared")))
        shared[0].add_servers(3)
        shared[0].start()
        shared[0].wait_leader()
    yield shared[0]
    try:
        shared[0].start()
        shared[0].wait_statuses(dict.fromkeys(NAMES, "alive"), START_S)
        shared[0].wait_log_peers(*NAMES, limit_s=START_S)
    except BaseException:
        shared.pop().close()
        raise


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[RealCluster]:
    """Three servers with a leader for one test, which adds others or puts some out."""
    with real_cluster(tmp_path) as found:
        yield found


def apply_namespace(server: ServerAgent, name: str) -> None:
    """A write, through one server."""
    server.put("/v1/namespace", {"Name": name})


def namespaces(server: ServerAgent, *, stale: bool = False) -> set[str]:
    """What a server answers, or has itself."""
    return {row["Name"] for row in server.get("/v1/namespaces" + ("?stale" * stale))}


def voters(cluster: RealCluster) -> set[str]:
    """The servers that keep the log."""
    return {row["Node"] for row in cluster.log_peers()}


def named_leaders(cluster: RealCluster) -> set[str]:
    """Whom the servers take for the leader."""
    return {each.get("/v1/status/leader") for each in cluster.servers}


def test_a_server_is_forced_out_and_another_one_joins(own_cluster: RealCluster) -> None:
    cluster = own_cluster
    gone = cluster.followers()[0]
    leader = cluster.wait_leader()
    others = {name: "alive" for name in NAMES if name != gone.full_name}
    for flags, shown in (((), {**others, gone.full_name: "leaving"}), (("-prune",), others)):
        early = leader.cli("server", "force-leave", *flags, gone.full_name)
        assert early.returncode == 0, early.stderr
        assert cluster.statuses(leader) == shown
    apply_namespace(gone, "by-the-one-that-stays")
    assert voters(cluster) == set(NAMES)
    cluster.wait_statuses({gone.full_name: "alive"})
    gone.kill()
    cluster.wait_statuses({gone.full_name: "failed"})
    done = cluster.wait_leader().cli("server", "force-leave", gone.full_name)
    assert done.returncode == 0, done.stderr
    cluster.wait_statuses({gone.full_name: "left"})
    left = set(NAMES) - {gone.full_name}
    cluster.wait_log_peers(*left)

    (fourth,) = cluster.add_servers(1, bootstrap_expect=0)
    fourth.start()
    cluster.wait_log_peers(*left, "srv4.global")
    apply_namespace(fourth, "by-the-fourth")
    pruned = fourth.cli("server", "force-leave", "-prune", gone.full_name)
    assert pruned.returncode == 0, pruned.stderr
    wait_for("it to be forgotten everywhere", lambda: gone.full_name not in cluster.statuses(cluster.wait_leader()))

    gone.start()
    cluster.wait_statuses({gone.full_name: "alive"})
    cluster.wait_log_peers(*NAMES, "srv4.global")
    wait_for("what it missed", lambda: "by-the-fourth" in namespaces(gone, stale=True))


def test_a_new_server_takes_the_place_of_one_that_has_failed(own_cluster: RealCluster) -> None:
    cluster = own_cluster
    gone = cluster.followers()[0]
    gone.kill()
    cluster.wait_statuses({gone.full_name: "failed"})
    (fourth,) = cluster.add_servers(1, bootstrap_expect=0)
    fourth.start()
    cluster.wait_log_peers(*(set(NAMES) - {gone.full_name}), "srv4.global")


def test_a_server_waits_alone_and_says_for_whom(tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path)
    try:
        first, second, third = cluster.add_servers(3)
        first.spawn()
        reason = "waiting for 3 servers: know srv1.global"
        wait_for("the reason", lambda: reason in first.log_text(), START_S)
        wait_for("an answer", lambda: first.try_get("/v1/agent/members"))
        with pytest.raises(ApiFailure, match="No cluster leader"):
            first.get("/v1/status/leader")
        third.settings["server"]["bootstrap_expect"] = 5
        third.write_config()
        second.spawn()
        third.spawn()
        told = "bootstrap_expect must be the same on all servers of a region"
        wait_for("the mismatch", lambda: told in first.log_text(), START_S)
    finally:
        cluster.close()


def test_two_servers_of_one_name_do_not_become_one(tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path)
    try:
        first, second = cluster.add_servers(2)
        second.settings["name"] = "srv1"
        second.write_config()
        first.spawn()
        second.spawn()
        wait_for("the conflict", lambda: 'there is a server "srv1.global" already' in second.log_text(), START_S)
    finally:
        cluster.close()


def test_the_state_of_a_single_server_is_not_taken_for_a_clusters(tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path)
    try:
        (single,) = cluster.add_servers(1)
        single.start()
        single.stop()
        single.settings["server"]["bootstrap_expect"] = 3
        single.write_config()
        done = single.cli("agent", "-config", str(single.config))
        assert done.returncode == 1
        assert "holds the state of a single server" in done.stderr
    finally:
        cluster.close()


def test_servers_with_certificates_form_a_cluster_and_strangers_do_not_join(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    pki.mkdir()
    for command in (["ca", "create"], ["cert", "create", "-server"], ["cert", "create", "-client"]):
        done = yurt("tls", *command, cwd=pki)
        assert done.returncode == 0, done.stderr

    def tls(role: str) -> dict[str, Any]:
        pair = {"cert_file": f"{pki}/global-{role}-nomad.pem", "key_file": f"{pki}/global-{role}-nomad-key.pem"}
        return {"tls": {"rpc": True, "ca_file": f"{pki}/nomad-agent-ca.pem", **pair}}

    with real_cluster(tmp_path, settings=tls("server")) as cluster:
        apply_namespace(cluster.followers()[0], "encrypted")
        plain = cluster.servers[0]
        stranger = ServerAgent(tmp_path / "other", "other", {"client": {"enabled": False}})
        stranger.settings["server"] = {"enabled": True, "server_join": {"retry_join": [plain.at("serf")]}}
        stranger.write_config()
        try:
            stranger.spawn()
            wait_for("its first attempt", lambda: "no other server can be joined yet" in stranger.log_text(), START_S)
            assert "other.global" not in cluster.statuses()
        finally:
            stranger.kill()


def test_servers_use_an_etcd_that_stands_by_itself(tmp_path: Path) -> None:
    with standing_etcd(tmp_path / "etcd") as endpoint:

        def prepare(cluster: RealCluster) -> None:
            for each in cluster.servers:
                each.settings["etcd"] = {"endpoints": [endpoint]}
                each.write_config()

        with real_cluster(tmp_path, servers=2, prepare=prepare) as cluster:
            for each in cluster.servers:
                assert each.etcd is None
                apply_namespace(each, f"by-{each.name}")
            leader = cluster.wait_leader()
            assert {row["Node"] for row in cluster.log_peers()} == {"srv1.global", "srv2.global"}
            refused = leader.cli("operator", "raft", "remove-peer", "-peer-id", "srv1.global")
            assert refused.returncode == 1 and "etcdctl" in refused.stderr
            leader.kill()
            second = cluster.wait_leader(other_than=leader)
            assert namespaces(second) >= {"by-srv1", "by-srv2"}


def test_a_client_is_sent_to_servers_over_http(tmp_path: Path) -> None:
    with real_cluster(tmp_path, servers=1) as cluster:
        (server,) = cluster.servers
        lost = cluster.add_client(servers=["127.0.0.1:1"])
        lost.spawn()
        wait_for("its API", lambda: lost.try_get("/v1/agent/servers"), START_S)
        assert not lost.is_ready()
        lost.call("PUT", f"/v1/agent/servers?address={server.at('rpc')}")
        wait_for("the node to be ready", lost.is_ready, START_S)
        assert lost.get("/v1/agent/servers") == [server.at("rpc")]
        with pytest.raises(ApiFailure, match="missing server address"):
            lost.call("PUT", "/v1/agent/servers")


def test_without_etcd_a_server_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = RealCluster(tmp_path).add_servers(3)[0]
    monkeypatch.setenv("PATH", str(tmp_path))
    done = server.cli("agent", "-config", str(server.config))
    assert done.returncode == 1
    assert "etcd is not on PATH; several servers need etcd (apt install etcd-server)" in done.stderr


def test_an_agent_is_told_by_flags_whom_to_join_and_when_to_give_up(tmp_path: Path) -> None:
    server = RealCluster(tmp_path).add_servers(1)[0]
    del server.settings["server"]["server_join"]
    server.write_config()
    flags = ("-bootstrap-expect=3", "-retry-join=127.0.0.1:1", "-retry-max=1", "-retry-interval=1s")
    done = server.cli("agent", "-config", str(server.config), *flags)
    assert done.returncode == 1
    assert "retry_join: no server could be joined in 1 attempts: 127.0.0.1:1" in done.stderr


@contextmanager
def standing_etcd(folder: Path) -> Iterator[str]:
    """An etcd that is no agent's; its endpoint."""
    client, peer = f"http://127.0.0.1:{quiet_port()}", f"http://127.0.0.1:{quiet_port()}"
    command = ["etcd", "--data-dir", str(folder), "--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster"]
    process = subprocess.Popen(
        [*command, f"default={peer}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        yield client
    finally:
        process.kill()
        process.wait()


# The tests of one shared cluster come last: it runs from the first of them to the end of the module.


def test_three_servers_form_a_cluster_and_each_takes_writes(cluster: RealCluster) -> None:
    leader = cluster.wait_leader()
    expected = {*namespaces(leader), "by-srv1", "by-srv2", "by-srv3"}
    cluster.wait_statuses(dict.fromkeys(NAMES, "alive"))
    # A new cluster on a slow machine may change its leader once more.
    wait_for("all servers to name one leader", lambda: len(named_leaders(cluster)) == 1)
    assert named_leaders(cluster) <= {each.at("rpc") for each in cluster.servers}
    for each in cluster.servers:
        assert set(cluster.statuses(each)) == set(NAMES)
        each.change("namespace", "apply", f"by-{each.name}")
        assert each.get("/v1/status/peers") == sorted(other.at("rpc") for other in cluster.servers)
        listed = each.cli("operator", "raft", "list-peers").stdout
        assert listed.count("follower") == 2 and listed.count("leader") == 1, listed
        shown = each.cli("server", "members").stdout
        assert shown.count("alive") == 3, shown
    for each in cluster.servers:
        assert namespaces(each) == expected
        wait_for(f"the namespaces on {each.name} itself", lambda s=each: namespaces(s, stale=True) == expected)

    def tolerance() -> tuple[int, int]:
        health = leader.get("/v1/operator/autopilot/health")
        return health["FailureTolerance"], len(health["Voters"])

    wait_for("the health of three servers", lambda: tolerance() == (1, 3))
    alone = leader.cli("server", "join", "127.0.0.1:1")
    assert alone.returncode == 1 and "127.0.0.1:1" in alone.stderr


def test_a_server_that_restarts_is_one_of_them_again(cluster: RealCluster) -> None:
    follower = cluster.followers()[0]
    follower.stop()
    cluster.wait_statuses({follower.full_name: "failed"})
    apply_namespace(cluster.wait_leader(), "meanwhile")
    follower.start()
    cluster.wait_statuses(dict.fromkeys(NAMES, "alive"))
    wait_for("what happened meanwhile", lambda: "meanwhile" in namespaces(follower, stale=True))
    assert voters(cluster) == set(NAMES)


def test_servers_that_are_stopped_together_end_well_and_come_back(cluster: RealCluster) -> None:
    apply_namespace(cluster.servers[1], "before-the-stop")
    cluster.stop_servers()
    cluster.start()
    cluster.wait_leader()
    for each in cluster.servers:
        wait_for("the state", lambda s=each: "before-the-stop" in namespaces(s, stale=True))


def test_all_servers_lose_power_and_come_back_with_all_that_was_acknowledged(cluster: RealCluster) -> None:
    apply_namespace(cluster.servers[0], "kept")
    cluster.power_off()
    cluster.start()
    cluster.wait_leader()
    assert "kept" in namespaces(cluster.servers[1])
    apply_namespace(cluster.servers[2], "more")


def test_a_server_whose_disk_was_replaced_joins_again_under_its_name(cluster: RealCluster) -> None:
    apply_namespace(cluster.servers[0], "kept")
    follower = cluster.followers()[0]
    before = {row["Node"]: row["ID"] for row in cluster.log_peers()}
    told = {each.name: len(each.log_text()) for each in cluster.servers}
    follower.kill()
    follower.lose_disk()
    follower.start()
    cluster.wait_log_peers(*NAMES)
    after = {row["Node"]: row["ID"] for row in cluster.log_peers()}
    assert after[follower.full_name] != before[follower.full_name]
    wait_for("the state", lambda: "kept" in namespaces(follower, stale=True))
    new = "".join(each.log_text()[told[each.name] :] for each in cluster.servers)
    assert "comes without the data of its etcd member" in new


def test_a_server_with_a_damaged_etcd_member_refuses_and_its_member_is_replaced(cluster: RealCluster) -> None:
    for number in range(WRITES_BEYOND_THE_CUT):
        apply_namespace(cluster.servers[0], f"kept-{number}")
    apply_namespace(cluster.servers[0], "kept")
    damaged = cluster.followers()[0]
    damaged.kill()
    member = damaged.folder / "data" / "server" / "etcd"
    for wal in (member / "data" / "member" / "wal").glob("*.wal"):
        os.truncate(wal, CUT)
    damaged.spawn()
    assert damaged.wait_end() == 1
    assert "etcd member has lost its end" in damaged.log_text()
    assert f"move {member} away and start the agent again" in damaged.log_text()
    apply_namespace(cluster.wait_leader(), "meanwhile")

    member.rename(member.with_name("etcd.damaged"))
    damaged.start()
    cluster.wait_log_peers(*NAMES)
    wait_for("the state", lambda: {"kept", "meanwhile"} <= namespaces(damaged, stale=True))


def test_a_peer_that_is_removed_joins_again_and_leadership_is_moved(cluster: RealCluster) -> None:
    leader, target = cluster.wait_leader(), cluster.followers()[0]
    ids = {row["Node"]: row["ID"] for row in cluster.log_peers()}
    moved = target.cli("operator", "raft", "transfer-leadership", "-peer-id", ids[target.full_name])
    assert moved.returncode == 0, moved.stderr
    assert f"{target.full_name} leads now" in moved.stdout
    assert cluster.wait_leader(other_than=leader) is target
    removed = target.cli("operator", "raft", "remove-peer", "-peer-id", ids[leader.full_name])
    assert removed.returncode == 0, removed.stderr
    wait_for("a new id", lambda: has_new_id(target, leader.full_name, ids[leader.full_name]))
    cluster.wait_log_peers(*NAMES)
    missing = target.cli("operator", "raft", "remove-peer", "-peer-id", "nobody")
    assert missing.returncode == 1 and "nobody" in missing.stderr


def has_new_id(asked: ServerAgent, name: str, old: str) -> bool:
    """Whether a server keeps the log under another id than before."""
    found = asked.try_get("/v1/operator/raft/configuration") or {"Servers": ()}
    return any(row["Node"] == name and row["ID"] != old for row in found["Servers"])


def test_a_server_that_moves_to_another_address_is_found_there(cluster: RealCluster) -> None:
    mover = cluster.followers()[0]
    mover.stop()
    old = mover.at("etcd")
    for kind in ("serf", "rpc", "etcd"):
        mover.ports[kind] = quiet_port()
    mover.write_config()
    logged = len(mover.log_text())
    mover.start()
    # One that had not finished its join is admitted at the new address.
    outcomes = (f"no longer at {old}", "admitted to the cluster")
    wait_for("its new address", lambda: any(each in mover.log_text()[logged:] for each in outcomes), START_S)
    cluster.wait_log_peers(*NAMES)
    cluster.wait_statuses(dict.fromkeys(NAMES, "alive"))
    other = next(each for each in cluster.followers() if each is not mover)
    other.kill()
    apply_namespace(cluster.wait_leader(), "with-the-mover")
    wait_for("what was written", lambda: "with-the-mover" in namespaces(mover, stale=True), START_S)
