"""What the configuration says of servers: where the log is kept, whom to join, what is told at the start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from yurt.agent.banner import configuration_lines
from yurt.agent.blocks.cluster import FILE, MEMORY, OWN_ETCD, STANDING_ETCD
from yurt.agent.cluster.cluster import ServerCluster
from yurt.agent.cluster.cluster_files import CLUSTER_FILE, Founding, etcd_port, save
from yurt.agent.cluster.dead_servers import DeadServerCleanup
from yurt.agent.cluster.exchange import Exchange
from yurt.agent.cluster.local_server import LocalServer
from yurt.agent.cluster.log_peers import LogPeers
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.own_etcd import OwnEtcd
from yurt.agent.cluster.security import ServerSecurity
from yurt.agent.cluster.voters import EtcdAdmin, Voter
from yurt.agent.component_configs import server_config
from yurt.agent.config import AgentConfig, make_config
from yurt.agent.config_check import check
from yurt.agent.config_keys import ROOT
from yurt.agent.data_dir import open_data_dir
from yurt.agent.log_engine import log_engine
from yurt.agent.tls import TlsSettings
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Conflict, Invalid, NotFound
from yurt.storage.etcd.settings import etcd_arguments
from yurt.structs.cluster import AutopilotConfiguration
from yurt.testing.fake_cluster import member


def config_of(server: dict[str, Any], *, is_dev: bool = False, data_dir: str = "/tmp/x", **more: Any) -> AgentConfig:
    given = {"server": {"enabled": True, **server}, "data_dir": data_dir, "bind_addr": "10.0.0.1", "name": "a", **more}
    shaped, problems = check(given, ROOT)
    assert problems == []
    return make_config(shaped, {}, is_dev=is_dev)


@pytest.mark.parametrize(
    ("server", "more", "engine", "expect"),
    [
        ({}, {}, FILE, 1),
        ({"bootstrap_expect": 1, "retry_join": ["b"]}, {}, FILE, 1),
        ({"bootstrap_expect": 3}, {}, OWN_ETCD, 3),
        ({"retry_join": ["b"]}, {}, OWN_ETCD, 0),
        ({"server_join": {"start_join": ["b"]}}, {}, OWN_ETCD, 0),
        ({"bootstrap_expect": 3}, {"etcd": {"endpoints": ["http://e:2379"]}}, STANDING_ETCD, 0),
    ],
)
def test_where_the_log_is_kept(server: dict[str, Any], more: dict[str, Any], engine: str, expect: int) -> None:
    settings = config_of(server, **more).cluster
    assert (settings.engine, settings.expect) == (engine, expect)


def test_a_dev_agent_stands_alone() -> None:
    assert config_of({}, is_dev=True).cluster.engine == MEMORY
    for given in ({"retry_join": ["b"]}, {"bootstrap_expect": 3}):
        with pytest.raises(Invalid, match="A dev agent keeps its state in memory and stands alone"):
            config_of(given, is_dev=True)


def test_patience_and_quota_are_etcds_within_bounds(tmp_path: Path) -> None:
    config = config_of({"bootstrap_expect": 3, "raft_multiplier": 4}, etcd={"quota_bytes": 1 << 30})
    membership = Membership(member("a", has_data=False), env=RealEnv())
    exchange = Exchange(membership, security=ServerSecurity(TlsSettings()), env=RealEnv())
    etcd = OwnEtcd(config, tmp_path, membership=membership, exchange=exchange, env=RealEnv(), tls=TlsSettings())
    options = etcd_arguments(etcd.settings)
    assert {"--heartbeat-interval=200", "--election-timeout=2000", f"--quota-backend-bytes={1 << 30}"} <= {*options}
    assert config_of({"raft_multiplier": 0}).cluster.time_factor == 1
    for server, block, told in (
        ({"raft_multiplier": 11}, {}, "raft_multiplier must be 1 to 10"),
        ({}, {"quota_bytes": 1}, "quota_bytes must be 16777216 to 8589934592"),
        ({}, {"quota_bytes": 1 << 30, "endpoints": ["http://e:1"]}, "is for the servers' own etcd"),
    ):
        with pytest.raises(Invalid, match=told):
            config_of(server, etcd=block)


def test_addresses_to_join_have_the_port_of_servers() -> None:
    join = {"retry_join": ["b", "10.0.0.2:5000", "b"], "retry_max": 3, "retry_interval": "5s"}
    settings = config_of({"start_join": ["[::1]"], "server_join": join}).cluster
    assert settings.start_join == ("[::1]:4648",)
    assert settings.retry_join == ("b:4648", "10.0.0.2:5000")
    assert (settings.retry_max, settings.retry_interval_s, settings.etcd_port) == (3, 5.0, 4649)


def test_etcd_has_the_port_beside_that_of_the_servers() -> None:
    assert config_of({"bootstrap_expect": 3}, ports={"serf": 7000}).cluster.etcd_port == 7001
    assert config_of({"bootstrap_expect": 3}, ports={"serf": 7000, "etcd": 9}).cluster.etcd_port == 9


def test_a_member_that_others_know_keeps_its_port(tmp_path: Path) -> None:
    default = config_of({"bootstrap_expect": 3}, ports={"serf": 7000}).cluster
    assert etcd_port(default, tmp_path) == 7001
    wal = tmp_path / "etcd" / "data" / "member" / "wal"
    wal.mkdir(parents=True)
    (wal / "0-0.wal").touch()
    assert etcd_port(default, tmp_path) == 4649, "an earlier version, which wrote no port down, had no other"
    save(tmp_path / CLUSTER_FILE, Founding(has_begun=True, etcd_port=8000))
    assert etcd_port(default, tmp_path) == 8000
    assert etcd_port(config_of({"bootstrap_expect": 3}, ports={"etcd": 9}).cluster, tmp_path) == 9


def test_the_first_screen_tells_the_ports_of_servers() -> None:
    config = config_of({"bootstrap_expect": 3}, ports={"serf": 7000, "etcd": 7001}, advertise={"serf": "10.9.9.9"})
    text = "\n".join(configuration_lines(config, version="1", data_dir="/d", node_id=""))
    assert "Serf: 10.9.9.9:7000; etcd: 10.9.9.9:7001" in text
    assert "Serf: 10.0.0.1:7000; etcd: 10.0.0.1:7001" in text


def test_the_state_of_another_engine_stops_the_start(tmp_path: Path) -> None:
    data = open_data_dir(str(tmp_path))
    (tmp_path / "server" / "log.db").touch()
    with pytest.raises(Invalid, match="holds the state of a single server"):
        log_engine(config_of({"bootstrap_expect": 3}), data)
    (tmp_path / "server" / "log.db").unlink()
    wal = tmp_path / "server" / "etcd" / "data" / "member" / "wal"
    wal.mkdir(parents=True)
    (wal / "0-0.wal").touch()
    assert log_engine(config_of({"bootstrap_expect": 1}), data) == OWN_ETCD, "a member stays one"
    with pytest.raises(Invalid, match="holds the data of an etcd member"):
        log_engine(config_of({}, etcd={"endpoints": ["http://e:1"]}), data)
    with pytest.raises(Invalid, match="holds the state of an etcd member"):
        log_engine(config_of({"raft_logstore": {"backend": "journal"}}), data)
    data.close()


def test_a_server_whose_etcd_member_lost_its_data_does_not_start_empty_by_itself(tmp_path: Path) -> None:
    data = open_data_dir(str(tmp_path))
    save(tmp_path / "server" / CLUSTER_FILE, Founding(has_begun=True, etcd_port=8000))
    with pytest.raises(Invalid, match=r"raft log below .*etcd is gone: the server would start empty.*as a new member"):
        log_engine(config_of({"bootstrap_expect": 1}), data)
    assert log_engine(config_of({"bootstrap_expect": 3}), data) == OWN_ETCD, "the others have the state"
    data.close()


def test_autopilot_begins_as_the_file_says(tmp_path: Path) -> None:
    data = open_data_dir(str(tmp_path))
    given = {"cleanup_dead_servers": False, "server_stabilization_time": "1m", "min_quorum": 3}
    made = server_config(config_of({}, autopilot=given), data).autopilot_config
    assert (made.cleanup_dead_servers, made.server_stabilization_time, made.min_quorum) == (False, 60_000_000_000, 3)
    data.close()


async def test_two_servers_that_each_keep_the_state_of_a_region_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of({"bootstrap_expect": 1})
    local = cast("LocalServer", SimpleNamespace(index=0))
    cluster = ServerCluster(config, tmp_path, engine=FILE, env=RealEnv(), tls=TlsSettings(), local=local)
    twin = Membership(member("b", etcd_addr="", has_data=True), env=RealEnv())
    far = Membership(member("b", "mars", has_data=True), env=RealEnv())
    cluster._membership.merge_update(far.update())
    assert "keeps a state of its own" not in caplog.text
    cluster._membership.merge_update(twin.update())
    assert "(bootstrap_expect = 3): servers=b.global region=global" in caplog.text


async def test_an_unknown_peer_is_named_where_no_peer_can_be_removed(tmp_path: Path) -> None:
    local = cast("LocalServer", SimpleNamespace(index=0))
    config = config_of({"bootstrap_expect": 1})
    cluster = ServerCluster(config, tmp_path, engine=FILE, env=RealEnv(), tls=TlsSettings(), local=local)
    with pytest.raises(NotFound, match='no server "nope" is part of the cluster'):
        await cluster.remove_log_peer("nope")
    (own,) = await cluster.log_peers()
    with pytest.raises(Invalid, match="a single server keeps its log in a file"):
        await cluster.remove_log_peer(own.name)


class Joining:
    """One voter and one learner."""

    async def voters(self) -> tuple[Voter, ...]:
        joining = Voter(id="2", name="", address="b:4649", is_learner=True)
        return (Voter(id="1", name="a.global", address="a:4649"), joining)


async def test_a_server_that_still_joins_is_shown_as_no_voter_and_cannot_lead() -> None:
    membership = Membership(member("a", has_data=True), env=RealEnv())
    membership.merge_update(Membership(member("b"), env=RealEnv()).update())
    local = cast("LocalServer", SimpleNamespace(leader_name="a.global"))
    peers = LogPeers(membership, admin=cast("EtcdAdmin", Joining()), env=RealEnv(), local=local)
    assert [(each.name, each.is_voter) for each in await peers.all()] == [("a.global", True), ("b.global", False)]
    with pytest.raises(Conflict, match=r"server b\.global is still joining the cluster"):
        await peers.transfer("b.global")


class Etcd:
    """One member."""

    async def voters(self) -> tuple[Voter, ...]:
        return (Voter(id="1", name="a.global", address="a:4649"),)


async def test_a_server_with_the_data_of_another_cluster_is_told(caplog: pytest.LogCaptureFixture) -> None:
    membership = Membership(member("a", has_data=True), env=RealEnv())
    membership.merge_update(Membership(member("b", has_data=True), env=RealEnv()).update())
    minder = DeadServerCleanup(
        membership=membership,
        etcd=Etcd(),  # type: ignore[arg-type]
        env=RealEnv(),
        leads=lambda: True,
        config=AutopilotConfiguration,
    )
    await minder._look()
    await minder._look()
    assert caplog.text.count("give it another region: servers=b.global") == 1
