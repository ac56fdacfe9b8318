"""Settings of an etcd member and its clients: addresses, certificates, its data, and the resulting command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value

HEARTBEAT_MS, ELECTION_MS = 50, 500
QUOTA_BYTES: Final = 4 * 1024**3
SNAPSHOT_COUNT: Final = 2_000
"""The number of raft entries between two snapshots of etcd, which keeps them, and 5,000 before them, in memory."""
REQUEST_BYTES_MAX: Final = 1_572_864
"""The largest request that etcd accepts, its default; an entry of the log is smaller (A9)."""
SOCKET_NAME: Final = "etcd:0"
"""The name of etcd's socket, `<host>:<port>` in its working directory."""
SOCKET_PATH_MAX: Final = 107
"""The longest path of a Unix socket that the system permits, in bytes."""


def has_member_data(data_dir: str) -> bool:
    """Whether a member has run in this folder: then it must never take part in forming another cluster."""
    return any((Path(data_dir) / "data" / "member" / "wal").glob("*.wal"))


def peer_url(address: str, *, is_tls: bool) -> str:
    """The URL at which other members reach the one at `host:port`."""
    return f"{'https' if is_tls else 'http'}://{address}"


class EtcdSecurity(Value, rename=None):
    """PEM files: the authority that signs the other side's certificate, and this side's own key pair."""

    ca_file: str
    cert_file: str = ""
    key_file: str = ""


class EtcdMemberConfig(Value, rename=None):
    """One member. URLs are `http(s)://host:port`; `initial_cluster` maps every member to its peer URL, or to several,
    separated by commas.

    An empty `client_url` means a socket below `data_dir` that other users cannot reach; a loopback port is open to all
    that runs on the machine. With `peer_security` peers that are reached at `https` show certificates to each other,
    and only those that are made out for `peer_name` (when it is given) are members. The address that a peer calls from
    is not compared with its certificate: a machine may have several. `is_alone` forgets the other members that the data
    names; for a copy of a stopped member.
    """

    name: str
    data_dir: str
    peer_url: str
    initial_cluster: Mapping[str, str]
    token: str
    is_new_cluster: bool
    advertise_peer_url: str = ""
    client_url: str = ""
    peer_security: EtcdSecurity | None = None
    peer_name: str = ""
    heartbeat_ms: int = HEARTBEAT_MS
    election_ms: int = ELECTION_MS
    quota_bytes: int = QUOTA_BYTES
    snapshot_count: int = SNAPSHOT_COUNT
    is_alone: bool = False
    binary: str = "etcd"

    @property
    def etcd_folder(self) -> Path:
        """etcd's data folder."""
        return Path(self.data_dir).absolute() / "data"

    @property
    def socket_folder(self) -> Path:
        """The folder of the socket, and etcd's working directory."""
        return Path(self.data_dir).absolute() / "socket"

    @property
    def socket(self) -> Path:
        """The path of the socket, when `client_url` is empty."""
        return self.socket_folder / SOCKET_NAME

    @property
    def client_endpoint(self) -> str:
        """The member's client endpoint in the form that `EtcdClient` and `EtcdLog` take."""
        return self.client_url or f"unix://{self.socket}"


def etcd_arguments(config: EtcdMemberConfig) -> list[str]:
    """The command-line options of etcd; raises Invalid for an invalid configuration."""
    _check(config)
    client_url = config.client_url or f"unix://{SOCKET_NAME}"
    options = {
        "name": config.name,
        "data-dir": str(config.etcd_folder),
        "listen-client-urls": client_url,
        "advertise-client-urls": client_url,
        "listen-peer-urls": config.peer_url,
        "initial-advertise-peer-urls": config.advertise_peer_url or config.peer_url,
        "initial-cluster": ",".join(
            f"{name}={url}" for name, urls in sorted(config.initial_cluster.items()) for url in urls.split(",")
        ),
        "initial-cluster-token": config.token,
        "initial-cluster-state": "new" if config.is_new_cluster else "existing",
        "heartbeat-interval": config.heartbeat_ms,
        "election-timeout": config.election_ms,
        "snapshot-count": config.snapshot_count,
        "quota-backend-bytes": config.quota_bytes,
        "max-request-bytes": REQUEST_BYTES_MAX,
        "pre-vote": "true",
        "logger": "zap",
        "log-outputs": "stderr",
        **_peer_security(config),
        **({"force-new-cluster": "true"} if config.is_alone else {}),
    }
    return [f"--{name}={value}" for name, value in options.items()]


def _peer_security(config: EtcdMemberConfig) -> dict[str, str]:
    security = config.peer_security
    if security is None:
        return {}
    return {
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": security.ca_file,
        "peer-cert-file": security.cert_file,
        "peer-key-file": security.key_file,
        "experimental-peer-skip-client-san-verification": "true",
        **({"peer-cert-allowed-hostname": config.peer_name} if config.peer_name else {}),
    }


def _check(config: EtcdMemberConfig) -> None:
    if config.name not in config.initial_cluster:
        raise Invalid(f'the etcd member "{config.name}" is not in its initial cluster: {dict(config.initial_cluster)}')
    if not config.client_url and len(os.fsencode(config.socket)) > SOCKET_PATH_MAX:
        raise Invalid(
            f"data_dir is too long for etcd's socket {config.socket}: the system takes {SOCKET_PATH_MAX} "
            "bytes; choose a shorter data_dir"
        )
