"""What a server remembers of its cluster from one start to the next: two small files in its data directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value, no_entries
from yurt.server.ports import Directory
from yurt.storage.data_dir import write_durably
from yurt.structs.member import LEFT

CLUSTER_FILE, SERVERS_FILE = "cluster.json", "servers.json"


class Founding(Value):
    """What became of this server's etcd member so far."""

    founding: Mapping[str, str] = no_entries()
    """The servers that this one began a cluster with, itself included, and their etcd addresses."""
    awaited: tuple[str, ...] = ()
    """Those of them that had not begun yet."""
    met: tuple[str, ...] = ()
    """Servers that might have begun a cluster with this one, as long as it is part of none."""
    is_joining: bool = False
    """It has been admitted, and its etcd member has never run."""
    has_begun: bool = False
    """Its own etcd member has run: should its data be gone, this server is a new one."""


class KnownServers(Value):
    """Where other servers were at last, those of other regions included."""

    addresses: tuple[str, ...] = ()


T = TypeVar("T", Founding, KnownServers)


def load(path: Path, kind: type[T]) -> T:
    """What was remembered, nothing at the first start; raises Invalid for a file that is broken."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return kind()
    except (OSError, msgspec.DecodeError) as error:
        raise Invalid(
            f"{path} cannot be read: {error}; move it away, and the server joins again as a new one"
        ) from None


def save(path: Path, remembered: Founding | KnownServers) -> None:
    """Keep it, durably."""
    write_durably(path, msgspec.json.encode(remembered))


class ServerMemory:
    """Writes down where other servers are, whenever that changes."""

    def __init__(self, folder: Path, directory: Directory, own_name: str) -> None:
        self._path = folder / SERVERS_FILE
        self._directory: Directory | None = directory
        self._own_name = own_name
        self._known = load(self._path, KnownServers)
        directory.subscribe(self._follow)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where other servers were at last, before this start too."""
        return self._known.addresses

    def forget(self) -> None:
        """This server has left: it goes back to nobody by itself."""
        self._directory = None
        save(self._path, KnownServers())

    def _follow(self) -> None:
        if self._directory is None:
            return
        there = [each for each in self._directory.members() if each.status != LEFT and each.name != self._own_name]
        known = KnownServers(addresses=tuple(each.address for each in there))
        if known != self._known and known.addresses:
            self._known = known
            save(self._path, known)
