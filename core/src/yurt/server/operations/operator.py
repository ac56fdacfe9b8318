"""Region-wide operations of operators, outside of namespaces: the route's need is decided before."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from typing import IO, Any, Final

from yurt.sdk.value import Value
from yurt.server.clients.introduction import Introductions
from yurt.server.keys.keyring import KeyWrapping, wrappings_of
from yurt.server.keys.root_keys import RootKeys
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.replica import Replica
from yurt.server.log.restore import Restored, restore
from yurt.server.resources.system import System
from yurt.server.results import ConfigurationSet
from yurt.server.scheduling.scheduling import WorkerSettings
from yurt.state.store import Snapshot
from yurt.structs.cluster import AutopilotConfiguration, SchedulerConfiguration
from yurt.structs.variable import RootKeyMeta

HASHED_BYTES: Final = 256 * 1024
"""The number of bytes of an archive that are read at once for its digest."""


class SystemOperations:
    """Configuration and garbage collection of the region."""

    __slots__ = ("_system", "_workers")

    def __init__(self, system: System, workers: WorkerSettings) -> None:
        self._system = system
        self._workers = workers

    @property
    def workers(self) -> tuple[int, tuple[str, ...]]:
        """The number of scheduler workers of this server, and the job types that they schedule."""
        return self._workers.count, self._workers.schedulers

    def set_workers(self, count: int, schedulers: tuple[str, ...]) -> None:
        """Change the number of this server's workers and their job types until it ends; raises Invalid."""
        self._workers.change(count, schedulers)

    async def set_scheduler_config(
        self, configuration: SchedulerConfiguration, *, check_index: int | None
    ) -> ConfigurationSet:
        """Set the scheduler configuration, unless its modify index is not `check_index`."""
        return await self._system.set_scheduler_config(configuration, check_index=check_index)

    async def set_autopilot_config(
        self, configuration: AutopilotConfiguration, *, check_index: int | None
    ) -> ConfigurationSet:
        """Set the autopilot configuration, unless its modify index is not `check_index`."""
        return await self._system.set_autopilot_config(configuration, check_index=check_index)

    async def collect_garbage(self) -> int:
        """Delete everything that has ended, regardless of age; returns the index of the last deletion."""
        return await self._system.collect_garbage()


class RootKeyOperations:
    """Rotation and removal of root keys, and their public keys."""

    __slots__ = ("_root_keys",)

    def __init__(self, root_keys: RootKeys) -> None:
        self._root_keys = root_keys

    async def rotate(self, *, is_full: bool, publish_time: int) -> RootKeyMeta:
        """Create a key: active at once, or from `publish_time` (unix ns) on; raises Invalid."""
        return await self._root_keys.rotate(is_full=is_full, publish_time=publish_time)

    async def remove(self, key_id: str, *, is_forced: bool) -> int:
        """Delete a key; raises NotFound, Conflict when it is in use, Invalid when it is active."""
        return await self._root_keys.remove(key_id, is_forced=is_forced)

    def wrappings(self, key_ids: Iterable[str]) -> dict[str, KeyWrapping]:
        """How this server keeps each of these keys; may block."""
        return wrappings_of(self._root_keys.keyring, key_ids)

    async def make_first(self) -> None:
        """Make the first key, once for each start of a leader: a server without data on disk made none before."""
        await self._root_keys.first.make()

    async def jwks(self) -> dict[str, Any]:
        """The public keys of all root keys, as a JSON Web Key Set."""
        return await self._root_keys.jwks()


class IntroductionOperations:
    """Introduction of new clients."""

    __slots__ = ("_introductions",)

    def __init__(self, introductions: Introductions) -> None:
        self._introductions = introductions

    async def make_token(self, *, node_name: str, node_pool: str, ttl_s: float) -> str:
        """A token for a node (any when empty) of a pool (any when empty); raises Invalid or Unavailable."""
        return await self._introductions.make(node_name=node_name, node_pool=node_pool, ttl_s=ttl_s)


class SavedSnapshot(Value):
    """An archive of the state at an index."""

    index: int
    sha256: bytes
    size: int


class SnapshotOperations:
    """Archives of the complete state."""

    __slots__ = ("_leader", "_replica")

    def __init__(self, replica: Replica, leader: CurrentLeader) -> None:
        self._replica = replica
        self._leader = leader

    async def save(self, out: IO[bytes], *, version: str) -> SavedSnapshot:
        """Write the newest state to an empty file, rewound to its start."""
        term = self._leader.leadership.epoch
        return await asyncio.to_thread(_save, self._replica.state, out, version, term=term)

    async def restore(self, state: IO[bytes], size: int) -> Restored:
        """Replace the state by the one in a checked file; returns once the leader's duties run on it."""
        return await restore(self._replica, self._leader, state, size)


def _save(state: Snapshot, out: IO[bytes], version: str, *, term: int) -> SavedSnapshot:
    from yurt.storage.archive import write_archive

    write_archive(state, out, version=version, term=term)
    size = out.tell()
    out.seek(0)
    digest = hashlib.sha256()
    while piece := out.read(HASHED_BYTES):
        digest.update(piece)
    out.seek(0)
    return SavedSnapshot(index=state.index, sha256=digest.digest(), size=size)
