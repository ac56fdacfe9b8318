"""Cluster settings from the agent's configuration, and the checks that refuse impossible ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from yurt.agent.addresses import with_port
from yurt.sdk.log_engines import OWN_ENGINES
from yurt.sdk.value import NANOSECONDS, Value, parse_duration

SERF_PORT, ETCD_PORT = 4648, 4649
"""The etcd port is the serf port plus one unless `ports { etcd }` says otherwise; 4649 is that of older versions."""
RETRY_INTERVAL_S = 30.0
TIME_FACTOR_MAX = 10
QUOTA_BYTES, QUOTA_BYTES_MIN, QUOTA_BYTES_MAX = 4 * 1024**3, 16 * 1024**2, 8 * 1024**3
"""The default, and what etcd bears; below the least of them it would be full at once."""
MEMORY, FILE, OWN_ETCD, STANDING_ETCD, PACKAGE = "memory", "file", "own etcd", "standing etcd", "package"
"""Where a server keeps the command log; PACKAGE: with the log engine of a package."""
ALONE = (FILE, PACKAGE)
"""The value for a server that is not part of a cluster."""
ETCD_FOLDER = "etcd"
"""The folder of the own etcd member, below the server's folder."""
_NAME = re.compile(r"[^\s,=/]+")


class StandingEtcd(Value):
    """An etcd cluster that is operated separately."""

    endpoints: tuple[str, ...] = ()
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class ClusterSettings(Value):
    """The configured cluster; `expect` is 0 for a server that only joins one."""

    expect: int = 1
    start_join: tuple[str, ...] = ()
    retry_join: tuple[str, ...] = ()
    retry_max: int = 0
    retry_interval_s: float = RETRY_INTERVAL_S
    rejoins: bool = False
    """Whether a server that left rejoins the servers that it knew."""
    time_factor: int = 1
    """raft_multiplier: the factor on time-outs of etcd and of the membership."""
    etcd_port: int = ETCD_PORT
    has_etcd_port: bool = False
    """The configuration names the port itself."""
    quota_bytes: int = QUOTA_BYTES
    """How large the data of the servers' own etcd members may grow."""
    etcd: StandingEtcd = StandingEtcd()
    engine: str = FILE
    log_engine: str = ""
    """The package's log engine; "" for Yurt's own storage."""


def cluster_settings(raw: Mapping[str, Any], *, is_dev: bool) -> ClusterSettings:
    """The settings in an agent's checked configuration."""
    server, etcd = raw.get("server", {}), raw.get("etcd", {})
    joined = server.get("server_join", {})
    start = (*server.get("start_join", ()), *joined.get("start_join", ()))
    retry = (*server.get("retry_join", ()), *joined.get("retry_join", ()))
    expect = server.get("bootstrap_expect", 0 if start or retry else 1)
    log_engine = server.get("raft_logstore", {}).get("backend", "")
    log_engine = "" if log_engine in OWN_ENGINES else log_engine
    interval = joined.get("retry_interval", server.get("retry_interval"))
    standing = StandingEtcd(
        endpoints=tuple(etcd.get("endpoints", ())),
        **{name: etcd[name] for name in ("ca_file", "cert_file", "key_file") if name in etcd},
    )
    return ClusterSettings(
        expect=0 if standing.endpoints else expect,
        start_join=_with_ports(start),
        retry_join=_with_ports(retry),
        retry_max=joined.get("retry_max", server.get("retry_max", 0)),
        retry_interval_s=RETRY_INTERVAL_S if interval is None else parse_duration(interval) / NANOSECONDS,
        rejoins=bool(server.get("rejoin_after_leave")),
        time_factor=server.get("raft_multiplier", 0) or 1,
        etcd_port=_etcd_port(raw.get("ports", {})),
        has_etcd_port="etcd" in raw.get("ports", {}),
        quota_bytes=etcd.get("quota_bytes", QUOTA_BYTES),
        etcd=standing,
        engine=_engine(expect, standing, log_engine, is_dev=is_dev),
        log_engine=log_engine,
    )


def cluster_problems(raw: Mapping[str, Any], name: str, *, is_dev: bool) -> Iterator[str]:
    """The configuration errors that prevent a server from starting."""
    settings = cluster_settings(raw, is_dev=is_dev)
    joins = (*settings.start_join, *settings.retry_join)
    if settings.expect < 0:
        yield "server.bootstrap_expect must be 1 or more."
    if is_dev and (joins or settings.expect > 1 or settings.etcd.endpoints):
        yield (
            "A dev agent keeps its state in memory and stands alone: several servers need a data_dir each "
            "(leave -dev away)."
        )
    if settings.log_engine and (is_dev or joins or settings.expect != 1 or settings.etcd.endpoints):
        yield (
            f'server.raft_logstore.backend = "{settings.log_engine}": the log engine of a package keeps the state of '
            "one server with a data_dir; remove -dev, the etcd block, bootstrap_expect and other servers' addresses."
        )
    yield from (
        f'server: "{address}" is not a server address; finding servers by a cloud provider is not available in '
        "this version."
        for address in joins
        if "=" in address or " " in address
    )
    if settings.engine == OWN_ETCD and not _NAME.fullmatch(name):
        yield f'name "{name}" cannot be the name of a server: leave out spaces, commas, slashes and equals signs.'
    if settings.retry_max < 0:
        yield "server_join.retry_max must be 0 (no limit) or more."
    if not 1 <= settings.time_factor <= TIME_FACTOR_MAX:
        yield f"server.raft_multiplier must be 1 to {TIME_FACTOR_MAX} (0: the default)."
    if not QUOTA_BYTES_MIN <= settings.quota_bytes <= QUOTA_BYTES_MAX:
        yield f"etcd.quota_bytes must be {QUOTA_BYTES_MIN} to {QUOTA_BYTES_MAX}."
    if settings.etcd.endpoints and "quota_bytes" in raw.get("etcd", {}):
        yield "etcd.quota_bytes is for the servers' own etcd: one that stands by itself has its own setting."
    yield from _etcd_problems(settings.etcd)


def _etcd_problems(etcd: StandingEtcd) -> Iterator[str]:
    for endpoint in etcd.endpoints:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            yield f'etcd.endpoints: "{endpoint}" must be a URL such as http://10.0.0.1:2379.'
    if bool(etcd.cert_file) != bool(etcd.key_file):
        yield "etcd needs cert_file and key_file together."
    if (etcd.ca_file or etcd.cert_file or etcd.key_file) and not etcd.endpoints:
        yield (
            "etcd.endpoints is missing: the files of the etcd block are for an etcd that stands by itself. "
            "The servers' own etcd takes those of the tls block."
        )


def _engine(expect: int, standing: StandingEtcd, log_engine: str, *, is_dev: bool) -> str:
    if is_dev:
        return MEMORY
    if log_engine:
        return PACKAGE
    if standing.endpoints:
        return STANDING_ETCD
    return FILE if expect == 1 else OWN_ETCD


def _etcd_port(ports: Mapping[str, int]) -> int:
    """The port after the serf port, so that servers of one address with different `ports { serf }` also differ here."""
    return ports.get("etcd", (ports.get("serf") or SERF_PORT) + 1)


def _with_ports(addresses: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(with_port(address, SERF_PORT) for address in addresses))
