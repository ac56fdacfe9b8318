"""Chooses the storage of the command log: memory, SQLite, the servers' own etcd, or an external etcd."""

from __future__ import annotations

from yurt.agent.cluster.settings import ETCD_FOLDER, FILE, MEMORY, OWN_ETCD, STANDING_ETCD
from yurt.agent.config import AgentConfig
from yurt.agent.data_dir import AgentDataDir
from yurt.runtime.env import Env
from yurt.sdk.errors import Invalid
from yurt.storage.etcd.member import has_member_data
from yurt.storage.log import CommandLog

LOG_FILE, LOG_FOLDER = "log.db", "log"
"""Below the server's folder: the file of a single server, and the snapshots of a cluster's server."""


def log_engine(config: AgentConfig, data: AgentDataDir) -> str:
    """The engine; raises Invalid where the data directory holds the state of another one.

    A server with an etcd member of its own keeps it whatever its bootstrap_expect says by now.
    """
    engine = config.cluster.engine
    has_etcd = has_member_data(str(data.server / ETCD_FOLDER))
    if engine == FILE and has_etcd:
        return OWN_ETCD
    if engine in (OWN_ETCD, STANDING_ETCD) and (data.server / LOG_FILE).exists():
        raise Invalid(
            f"{data.server / LOG_FILE} holds the state of a single server, and the configuration asks for a cluster. "
            "Take the state along: with the old configuration `yurt operator snapshot save FILE`, then start with "
            "another data_dir and `yurt operator snapshot restore FILE`"
        )
    if engine == STANDING_ETCD and has_etcd:
        raise Invalid(
            f"{data.server / ETCD_FOLDER} holds the data of an etcd member of this server, and the configuration names "
            "an etcd that stands by itself: leave the etcd block away, or choose another data_dir"
        )
    return engine


def make_log(config: AgentConfig, data: AgentDataDir, *, engine: str, own_endpoint: str, env: Env) -> CommandLog:
    """The log; nothing is opened yet. `own_endpoint` is where an etcd member beside the server is reached."""
    if engine == MEMORY:
        from yurt.storage.memory import MemoryLog

        return MemoryLog()
    if engine == FILE:
        from yurt.storage.sqlite import SqliteLog

        return SqliteLog(data.server / LOG_FILE)
    return _etcd_log(config, data, own_endpoint, env)


def _etcd_log(config: AgentConfig, data: AgentDataDir, own_endpoint: str, env: Env) -> CommandLog:
    from yurt.storage.etcd.log import EtcdLog
    from yurt.storage.etcd.settings import EtcdSecurity

    etcd = config.cluster.etcd
    security = None
    if etcd.ca_file or etcd.cert_file:
        security = EtcdSecurity(ca_file=etcd.ca_file, cert_file=etcd.cert_file, key_file=etcd.key_file)
    return EtcdLog(
        endpoints=(own_endpoint,) if own_endpoint else etcd.endpoints,
        folder=data.server / LOG_FOLDER,
        name=f"{config.name}.{config.region}",
        region=config.region,
        env=env,
        security=security,
        own_endpoint=own_endpoint,
        patience=config.cluster.patience,
        quota_bytes=config.cluster.quota_bytes if own_endpoint else 0,
    )
