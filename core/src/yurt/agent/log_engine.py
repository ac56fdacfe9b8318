"""Chooses the storage of the command log: memory, SQLite, the servers' own etcd, an external etcd, or a package's."""

from __future__ import annotations

from yurt.agent.blocks.cluster import ETCD_FOLDER, FILE, MEMORY, OWN_ETCD, PACKAGE, STANDING_ETCD
from yurt.agent.config import AgentConfig
from yurt.agent.data_dir import AgentDataDir
from yurt.runtime.env import Env
from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.storage.etcd.settings import has_member_data
from yurt.storage.log import CommandLog

LOG_FILE, LOG_FOLDER, ENGINES_FOLDER = "log.db", "log", "engines"
"""Below the server's folder: the file of a single server, the snapshots of a cluster's server, packages' engines."""


def log_engine(config: AgentConfig, data: AgentDataDir) -> str:
    """The engine; raises Invalid when the data directory has the state of another engine.

    A server with an etcd member of its own keeps it whatever its bootstrap_expect says by now.
    """
    engine = config.cluster.engine
    _check_package_engine(config.cluster.log_engine, data)
    has_etcd = has_member_data(str(data.server / ETCD_FOLDER))
    if not has_etcd and engine != OWN_ETCD:
        _check_no_member_begun(data)
    if engine == FILE and has_etcd:
        return OWN_ETCD
    if engine in (OWN_ETCD, STANDING_ETCD, PACKAGE) and (data.server / LOG_FILE).exists():
        asked = "another log engine" if engine == PACKAGE else "a cluster"
        raise Invalid(
            f"{data.server / LOG_FILE} holds the state of a single server, and the configuration asks for {asked}. "
            "Take the state along: with the old configuration `yurt operator snapshot save FILE`, then start with "
            "another data_dir and `yurt operator snapshot restore FILE`"
        )
    if engine == PACKAGE and has_etcd:
        raise Invalid(
            f"{data.server / ETCD_FOLDER} holds the state of an etcd member of this server, and the configuration asks "
            "for the log engine of a package. Take the state along: with the old configuration `yurt operator snapshot "
            "save FILE`, then start with another data_dir and `yurt operator snapshot restore FILE`"
        )
    if engine == STANDING_ETCD and has_etcd:
        raise Invalid(
            f"{data.server / ETCD_FOLDER} holds the data of an etcd member of this server, and the configuration names "
            "an etcd that stands by itself: leave the etcd block away, or choose another data_dir"
        )
    return engine


def _check_no_member_begun(data: AgentDataDir) -> None:
    """Raises Invalid when an etcd member has begun here and its data is gone: the server would start empty."""
    from yurt.agent.cluster.cluster_files import CLUSTER_FILE, Founding, load

    if load(data.server / CLUSTER_FILE, Founding).has_begun:
        raise Invalid(
            f"the state of this server is in its etcd member, and the member's raft log below "
            f"{data.server / ETCD_FOLDER} is gone: the server would start empty. Restore the data_dir from a copy. Or, "
            f"while other servers of the cluster run, move {data.server / ETCD_FOLDER} away and set "
            "bootstrap_expect to the number of servers: it joins them as a new member. Or start with an empty data_dir "
            "and `yurt operator snapshot restore FILE`"
        )


def _check_package_engine(name: str, data: AgentDataDir) -> None:
    """Raises Invalid when the state belongs to the engine of another package."""
    folder = data.server / ENGINES_FOLDER
    others = [each.name for each in folder.iterdir() if each.name != name] if folder.is_dir() else []
    if others:
        raise Invalid(
            f'{folder / others[0]} holds the state of a server with the log engine "{others[0]}"; write '
            f'server {{ raft_logstore {{ backend = "{others[0]}" }} }}, or take the state along: with the old '
            "configuration `yurt operator snapshot save FILE`, then start with another data_dir and "
            "`yurt operator snapshot restore FILE`"
        )


def make_log(config: AgentConfig, data: AgentDataDir, *, engine: str, own_endpoint: str, env: Env) -> CommandLog:
    """The log, not opened yet. `own_endpoint` is the address of this agent's etcd member."""
    if engine == MEMORY:
        from yurt.storage.memory import MemoryLog

        return MemoryLog()
    if engine == FILE:
        from yurt.storage.sqlite import SqliteLog

        return SqliteLog(data.server / LOG_FILE)
    if engine == PACKAGE:
        return _package_log(config, data, env)
    return _etcd_log(config, data, own_endpoint, env)


def _package_log(config: AgentConfig, data: AgentDataDir, env: Env) -> CommandLog:
    from yurt.agent.plugin_context import plugin_context
    from yurt.plugins.manager import make_log_engine
    from yurt.storage.package_log import PackageLog

    name = config.cluster.log_engine
    context = replace(plugin_context(config, data, name, {}), config=config.plugins.get(name, {}))
    return PackageLog(make_log_engine(name, context), data.server / ENGINES_FOLDER / name, env=env)


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
        time_factor=config.cluster.time_factor,
        quota_bytes=config.cluster.quota_bytes if own_endpoint else 0,
    )
