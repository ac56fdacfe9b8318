"""TLS is turned on for servers that have formed a cluster without it, by any order of restarts, and stays on."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from yurt.sdk.errors import Unavailable
from yurt.storage.checksummed_file import unchecked
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.membership import list_members
from yurt.testing.agent import raw_exec_job, register, wait_for, yurt
from yurt.testing.real_cluster import RealCluster, ServerAgent, real_cluster

LIMIT_S = 120.0
WAITS = "waiting for srv2.global, srv3.global: restart with `tls { rpc = true }`"
WAITS_FOR_ONE = "waiting for srv3.global: restart with `tls { rpc = true }`"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates of a server and of a client."""
    return made_keys(tmp_path_factory.mktemp("keys"))


def made_keys(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for words in (["ca", "create"], ["cert", "create", "-server"], ["cert", "create", "-client"]):
        yurt("tls", *words, cwd=folder).check_returncode()
    return folder


def tls_block(keys: Path, role: str = "server", **more: Any) -> dict[str, Any]:
    """The `tls` block of an agent."""
    return {
        "rpc": True,
        "ca_file": f"{keys}/nomad-agent-ca.pem",
        "cert_file": f"{keys}/global-{role}-nomad.pem",
        "key_file": f"{keys}/global-{role}-nomad-key.pem",
        **more,
    }


def set_tls(agent: Any, block: dict[str, Any]) -> None:
    agent.settings["tls"] = block
    agent.write_config()


def peer_urls(server: ServerAgent) -> set[str]:
    """Where etcd's data say that the members are reached; none while its own etcd does not answer."""
    address = server.folder / "data" / "server" / "etcd" / "socket" / "etcd:0"
    try:
        return asyncio.run(members_at(f"unix://{address}"))
    except Unavailable:
        return set()


async def members_at(endpoint: str) -> set[str]:
    client = EtcdClient((endpoint,))
    try:
        return {url for member in await list_members(client) for url in member.peer_urls}
    finally:
        await client.close()


def wait_all_by_tls(cluster: RealCluster) -> None:
    """Wait until etcd's members reach each other by TLS only."""
    expected = {f"https://{each.at('etcd')}" for each in cluster.servers}
    wait_for("peer URLs by TLS", lambda: peer_urls(cluster.servers[0]) == expected, LIMIT_S)
    for each in cluster.servers:
        # The last member's address is told before its etcd starts anew with TLS.
        wait_for(f"{each.name} refuses plain text", partial(refuses_plain_text, each), LIMIT_S)


def refuses_plain_text(server: ServerAgent) -> bool:
    """Whether etcd's port accepts connections, and ends those that do not begin with TLS."""
    try:
        urlopen(f"http://{server.at('etcd')}/members", timeout=5)
    except HTTPError as error:
        return error.code == 400
    except URLError as error:
        return not isinstance(error.reason, ConnectionRefusedError)
    except ConnectionError:
        return True
    return False


def check_it_works(cluster: RealCluster, name: str) -> None:
    """A change is made and reaches every server."""
    cluster.wait_leader(limit_s=LIMIT_S)
    cluster.servers[0].change("namespace", "apply", name)
    for each in cluster.servers:
        wait_for(f"{name} at {each.name}", lambda e=each: has_namespace(e, name), LIMIT_S)
    cluster.wait_statuses(dict.fromkeys((each.full_name for each in cluster.servers), "alive"), LIMIT_S)


def has_namespace(agent: ServerAgent, name: str) -> bool:
    return name in {row["Name"] for row in agent.try_get("/v1/namespaces?stale") or ()}


def is_told(agent: ServerAgent, text: str) -> bool:
    return text in agent.log_text()


def forget_what_was_recorded(server: ServerAgent) -> None:
    """Leave the server's memory as an earlier version wrote it."""
    file = server.folder / "data" / "server" / "cluster.json"
    known: dict[str, Any] = json.loads(unchecked(file.read_bytes()))
    new = ("HasPeerTLS", "EtcdPort")
    assert set(new) <= known.keys()
    file.write_text(json.dumps({name: value for name, value in known.items() if name not in new}))


def test_all_servers_are_restarted_together_with_tls(tmp_path: Path, keys: Path) -> None:
    with real_cluster(tmp_path) as cluster:
        cluster.servers[0].change("namespace", "apply", "before")
        for each in cluster.servers:
            each.stop()
        for each in cluster.servers:
            forget_what_was_recorded(each)
            set_tls(each, tls_block(keys))
        cluster.start()
        check_it_works(cluster, "with-tls")
        assert has_namespace(cluster.servers[0], "before")
        wait_all_by_tls(cluster)
        cluster.power_off()
        cluster.start()
        check_it_works(cluster, "once-more")
        check_the_way_back(cluster.servers[2])


def test_the_power_fails_at_each_step_of_turning_to_tls(tmp_path: Path, keys: Path) -> None:
    """Each time the cluster forms again and goes on, until its members reach each other by TLS only."""
    with real_cluster(tmp_path) as cluster:
        first, second, third = cluster.servers
        cluster.power_off()
        for each in cluster.servers:
            set_tls(each, tls_block(keys))
        for server, step in (
            (first, f"is reached at {first.at('etcd')} in plain text or by TLS now"),
            (first, "the etcd member turns to TLS"),
            (second, "etcd is started again with other settings"),
            (third, f"is reached at {third.at('etcd')} by TLS now"),
        ):
            for each in cluster.servers:
                each.spawn()
            wait_for(f"{server.name}: {step}", partial(is_told, server, step), LIMIT_S)
            cluster.power_off()
        cluster.start()
        check_it_works(cluster, "with-tls")
        wait_all_by_tls(cluster)


def check_the_way_back(server: ServerAgent) -> None:
    """Without the block the server says what is missing, and does not start."""
    server.stop()
    kept = server.settings.pop("tls")
    server.write_config()
    server.spawn()
    assert server.wait_end() == 1
    assert "the etcd members of this cluster reach each other by TLS" in server.log_text()
    set_tls(server, kept)
    server.start()


def test_servers_are_restarted_one_by_one_with_tls_while_all_of_them_work(tmp_path: Path, keys: Path) -> None:
    with real_cluster(tmp_path) as cluster:
        for number, each in enumerate(cluster.servers):
            each.stop()
            set_tls(each, tls_block(keys, rpc_upgrade_mode=True))
            each.start()
            check_it_works(cluster, f"step-{number}")
            if number == 0:
                wait_for("what it waits for", partial(is_told, each, WAITS), LIMIT_S)
        wait_all_by_tls(cluster)
        check_a_new_server_joins(cluster, keys)


def test_servers_are_restarted_one_by_one_without_the_upgrade_mode(tmp_path: Path, keys: Path) -> None:
    """Those with and without TLS share the log alone; the cluster goes on once the last one speaks TLS."""
    with real_cluster(tmp_path) as cluster:
        first, second, third = cluster.servers
        for each, waits in ((first, WAITS), (second, WAITS_FOR_ONE)):
            each.stop()
            set_tls(each, tls_block(keys))
            each.spawn()
            wait_for("what it waits for", partial(is_told, each, waits), LIMIT_S)
        third.stop()
        set_tls(third, tls_block(keys))
        third.start()
        check_it_works(cluster, "with-tls")
        wait_all_by_tls(cluster)
        assert "it speaks TLS, and `tls { rpc = true }` is not set here" in third.log_text()


def check_a_new_server_joins(cluster: RealCluster, keys: Path) -> None:
    """A server with TLS is taken in and reached by TLS from the start."""
    (fourth,) = cluster.add_servers(1, bootstrap_expect=0)
    set_tls(fourth, tls_block(keys))
    fourth.start()
    check_it_works(cluster, "with-four")
    wait_all_by_tls(cluster)


def test_a_certificate_of_another_authority_keeps_the_members_in_plain_text_until_it_is_corrected(
    tmp_path: Path, keys: Path
) -> None:
    refused = "is not signed by an authority in this server's ca_file"
    other_keys = made_keys(tmp_path / "other-keys")
    with real_cluster(tmp_path) as cluster:
        first, second, third = cluster.servers
        for each, own_keys in ((first, keys), (third, keys), (second, other_keys)):
            each.stop()
            set_tls(each, tls_block(own_keys, rpc_upgrade_mode=True))
            each.spawn()
            if each is not second:
                wait_for(f"{each.name} to be ready", each.is_ready, LIMIT_S)
        for each, other in (
            (first, f"server {second.full_name}"),
            (third, f"server {second.full_name}"),
            (second, f"the server at {first.at('serf')}"),
        ):
            told = f"the certificate of {other} {refused}"
            wait_for(f"{each.name}: {told}", partial(is_told, each, told), LIMIT_S)
        first.change("namespace", "apply", "while-it-waits")
        for each in cluster.servers:
            wait_for(f"the change at {each.name}", partial(has_namespace, each, "while-it-waits"), LIMIT_S)
        assert not any(is_told(each, "the etcd member turns to TLS") for each in cluster.servers)
        second.stop()
        set_tls(second, tls_block(keys, rpc_upgrade_mode=True))
        second.start()
        check_it_works(cluster, "corrected")
        wait_all_by_tls(cluster)


def test_tasks_run_on_while_tls_is_turned_on_in_upgrade_mode(tmp_path: Path, keys: Path) -> None:
    with real_cluster(tmp_path, clients=1) as cluster:
        register(cluster.wait_leader(), raw_exec_job("web", "/bin/sleep", "3000"))
        (before,) = cluster.wait_leader().running("web", 1)
        for role, agents in (("server", cluster.servers), ("client", cluster.clients)):
            for each in agents:
                each.stop()
                set_tls(each, tls_block(keys, role, rpc_upgrade_mode=True))
                each.start()
        for role, agents in (("client", cluster.clients), ("server", cluster.servers)):
            for each in agents:
                each.stop()
                set_tls(each, tls_block(keys, role))
                each.start()
        wait_all_by_tls(cluster)
        (after,) = cluster.wait_leader().running("web", 1)
        assert after["ID"] == before["ID"]
        assert after["TaskStates"]["main"]["Restarts"] == 0


def test_servers_of_one_address_differ_in_three_ports_only(tmp_path: Path) -> None:
    def leave_etcd_out(cluster: RealCluster) -> None:
        for each in cluster.servers:
            each.settings["ports"] = {kind: port for kind, port in each.ports.items() if kind != "etcd"}
            each.ports["etcd"] = each.ports["serf"] + 1
            each.write_config()

    with real_cluster(tmp_path, prepare=leave_etcd_out) as cluster:
        assert peer_urls(cluster.servers[0]) == {f"http://{each.at('etcd')}" for each in cluster.servers}
