"""Records of allocations' networks in /run, which a reboot clears together with the namespaces.

    /run/yurt/networks/<alloc id>/{record.json, hosts, resolv.conf}

A record is written before anything is made and removed after everything is gone, so that whatever an agent left, a
later one finds: its own, by the state directory, and those of agents that will never come back, because their state
directory is gone or, for dev agents, their process. These it takes away only from within the same network namespace:
elsewhere the plugins would find none of the interfaces and rules, which would stay for good. Blocking; call in a
thread.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from yurt.client.files.alloc_dir import component
from yurt.client.networks.cni import Attachment, NetworkConfig
from yurt.client.networks.namespaces import identity
from yurt.executor.process_identity import is_alive, start_time
from yurt.sdk.value import Value
from yurt.structs.alloc import AllocNetworkStatus

RUN_FOLDER = Path("/run/yurt/networks")
NAME = "record.json"
PRIVATE, PUBLIC = 0o600, 0o644


class Owner(Value):
    """The agent that a network belongs to; the process is set only for dev agents.

    `network` identifies the network namespace in which it runs; 0 means unknown, in records of earlier versions.
    """

    state_dir: str
    pid: int = 0
    start_time: int = 0
    network: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether the agent will never return: a dev agent that has ended, or an agent without its state. Blocking."""
        return not (is_alive(self.pid, self.start_time) if self.pid else os.path.isdir(self.state_dir))

    def leaves_to(self, other: Owner) -> bool:
        """Whether another agent must remove its networks; blocking."""
        return self.network in (0, other.network) and self.has_ended


class NetworkRecord(Value):
    """A network of an allocation: a plan while `identity` is 0, else complete. `maker` is the driver that made it.

    Without a namespace there are only files, of an allocation in the host's network.
    """

    alloc_id: str
    owner: Owner
    namespace: str = ""
    maker: str = ""
    config: NetworkConfig | None = None
    attachment: Attachment | None = None
    identity: int = 0
    result: Mapping[str, Any] | None = None
    status: AllocNetworkStatus | None = None


def owner_of(state_dir: str, *, is_dev: bool) -> Owner:
    """This agent."""
    pid = os.getpid() if is_dev else 0
    network = identity("/proc/self/ns/net")
    return Owner(state_dir=state_dir, pid=pid, start_time=start_time(pid) if pid else 0, network=network)


class RecordFolder:
    """The records of one machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_machine(cls, state_dir: str) -> RecordFolder:
        """The records in the machine's folder; without root, which namespaces need, in the agent's state directory."""
        return cls(RUN_FOLDER if os.geteuid() == 0 else Path(state_dir) / "networks")

    def path(self, alloc_id: str, name: str) -> Path:
        """A file of an allocation."""
        return self.folder / component(alloc_id) / name

    def write(self, record: NetworkRecord) -> None:
        """Write a record atomically."""
        self.write_file(record.alloc_id, NAME, msgspec.json.encode(record), PRIVATE)

    def write_file(self, alloc_id: str, name: str, data: bytes, mode: int = PUBLIC, *, may_grow: bool = False) -> Path:
        """Write a file of an allocation and return its path; a file with this content is left as it is.

        To one that may grow, drivers have added what tasks ask for, which stays.
        """
        path = self.path(alloc_id, name)
        with contextlib.suppress(FileNotFoundError):
            current = path.read_bytes()
            if current == data or (may_grow and current.startswith(data)):
                return path
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
        os.replace(fresh, path)
        return path

    def read(self, alloc_id: str) -> NetworkRecord | None:
        """The record of an allocation; None when it is missing or unreadable."""
        try:
            return msgspec.json.decode(self.path(alloc_id, NAME).read_bytes(), type=NetworkRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def all(self) -> tuple[NetworkRecord, ...]:
        """All records of the machine."""
        try:
            names = sorted(os.listdir(self.folder))
        except OSError:
            return ()
        found = (self.read(name) for name in names)
        return tuple(record for record in found if record is not None)

    def owned_by(self, owner: Owner) -> tuple[NetworkRecord, ...]:
        """The records of an agent's own networks, and of agents that will never return."""
        return tuple(
            record
            for record in self.all()
            if record.owner.state_dir == owner.state_dir or record.owner.leaves_to(owner)
        )

    def remove(self, alloc_id: str) -> None:
        """Remove the files of an allocation."""
        shutil.rmtree(self.folder / component(alloc_id), ignore_errors=True)
