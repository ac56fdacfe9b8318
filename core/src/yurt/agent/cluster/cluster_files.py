"""The persistent record of the cluster: two small files in the server's data directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from yurt.agent.blocks.cluster import ETCD_FOLDER, ETCD_PORT, ClusterSettings
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value, no_entries
from yurt.storage.checksummed_file import read_checked, write_checked
from yurt.storage.etcd.settings import has_member_data

CLUSTER_FILE, SERVERS_FILE = "cluster.json", "servers.json"


class Founding(Value):
    """The progress of this server's etcd member: its founders, and the servers that it has met."""

    founding: Mapping[str, str] = no_entries()
    """The servers that this one began a cluster with, itself included, and their etcd addresses."""
    awaited: tuple[str, ...] = ()
    """Those of them that had not begun yet."""
    met: tuple[str, ...] = ()
    """Servers that might have founded a cluster with this one, while it belongs to none."""
    is_joining: bool = False
    """It has been admitted, and its etcd member does not know yet that it is one."""
    joining: Mapping[str, str] = no_entries()
    """The URLs of the members by name with which it was admitted; none where a version wrote that kept none."""
    learner_id: str = ""
    """The id of its etcd member while it joins as a learner, which has the others promote it; "" for a voter."""
    has_begun: bool = False
    """Whether its own etcd member has run: if its data is lost, this server counts as a new one."""
    etcd_port: int = 0
    """The port of its etcd member; 0 where a version wrote that knew only 4649."""
    has_peer_tls: bool | None = None
    """Whether other etcd members reach it by TLS; None: unknown, to be read from etcd's data."""


class KnownServers(Value):
    """The last recorded addresses and rules of the other servers."""

    addresses: tuple[str, ...] = ()
    """Where they answer, those of other regions included."""
    rules: Mapping[str, int] = no_entries()
    """The newest rules of those of this region, by name."""
    has_rules: bool = False
    """False: written by a version that recorded no rules."""


T = TypeVar("T", Founding, KnownServers)


def load(path: Path, kind: type[T]) -> T:
    """The recorded servers; none at the first start. Raises Invalid for a damaged file."""
    try:
        return msgspec.json.decode(read_checked(path), type=kind)
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise Invalid(
            f"{path} is damaged: {error}. Restore it from a copy. Or, while the other servers of the cluster run, "
            "empty the data_dir of this one: it joins again as a new server and gets its state from them"
        ) from None


def save(path: Path, record: Founding | KnownServers) -> None:
    """Write the record durably."""
    write_checked(path, msgspec.json.encode(record))


def etcd_port(settings: ClusterSettings, folder: Path) -> int:
    """The port of this server's etcd member: the configured one, else the recorded one.

    `folder` is the server's. An existing member keeps its port when the default changes.
    """
    record = load(folder / CLUSTER_FILE, Founding)
    has_member = bool(record.founding) or has_member_data(str(folder / ETCD_FOLDER))
    if settings.has_etcd_port or not has_member:
        return settings.etcd_port
    return record.etcd_port or ETCD_PORT
