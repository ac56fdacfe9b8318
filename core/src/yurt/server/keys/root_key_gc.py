"""Garbage collection of unused, inactive root keys.

A key is needed while a variable or the secret of a login method is encrypted with it, while an allocation lives that
was there before the key became inactive (what signs its tokens is not known, and some never expire), and, unless
garbage collection is forced, while a node's identity may be valid that it signed. The leader counts from when it first
saw a key inactive, so another leader starts counting again: that keeps a key longer, never shorter.
"""

from __future__ import annotations

import logging
from typing import Final

from yurt.sdk.errors import Conflict, NotFound
from yurt.sdk.value import Duration, UnixNano, seconds
from yurt.server.config import GcThresholds
from yurt.server.keys.root_keys import RootKeys
from yurt.server.keys.tokens import NODE_IDENTITY_TTL_S
from yurt.server.log.replica import Replica
from yurt.structs.predicates import is_client_terminal
from yurt.structs.variable import KEY_INACTIVE, RootKeyMeta

log = logging.getLogger(__name__)

ALLOCS_A_SLICE: Final = 2_000
FORCED: Final = Duration(0)
"""The age that collects everything expired."""


class RootKeyCollector:
    """Removes root keys that have been unused for long enough."""

    def __init__(self, replica: Replica, thresholds: GcThresholds, root_keys: RootKeys) -> None:
        self._replica = replica
        self._thresholds = thresholds
        self._root_keys = root_keys
        self._since: dict[str, UnixNano] = {}
        """The time at which each inactive key was first seen."""

    async def run(self) -> None:
        """Collect at each interval, until cancelled."""
        while True:
            await self._replica.env.sleep(self._thresholds.root_key_interval_s)
            await self.collect(self.age())

    def age(self) -> Duration:
        """The time for which a key must have been inactive, so that no identity signed by it is still valid."""
        ttls = [pool.node_identity_ttl for pool in self._replica.state.node_pools.values()]
        return max(seconds(self._thresholds.root_key_s), seconds(NODE_IDENTITY_TTL_S), *ttls)

    async def collect(self, age: Duration = FORCED) -> int:
        """Remove keys that have been inactive and unused for this time; returns the index of the last removal, or 0."""
        now = self._replica.env.now()
        inactive = [key for key in self._root_keys.listed() if key.state == KEY_INACTIVE]
        self._since = {key.key_id: self._since.get(key.key_id, now) for key in inactive}
        due = [key for key in inactive if self._since[key.key_id] + age <= now and not self._is_sealing(key)]
        oldest = await self._oldest_alive() if due else 0
        unused = [key.key_id for key in due if key.modify_index < oldest]
        return max([await self._remove(key_id) for key_id in unused], default=0)

    def _is_sealing(self, key: RootKeyMeta) -> bool:
        state = self._replica.state
        return any(table.count_where("root_key", key.key_id) for table in (state.variables, state.acl_auth_methods))

    async def _oldest_alive(self) -> int:
        """The create index of the oldest allocation that its client has not ended; without one, the next index."""
        state = self._replica.state
        oldest = state.index + 1
        async for part in self._replica.turns.slices(state.allocs.values(), ALLOCS_A_SLICE):
            oldest = min([oldest, *(alloc.create_index for alloc in part if not is_client_terminal(alloc))])
        return oldest

    async def _remove(self, key_id: str) -> int:
        """Remove a key; returns the index of its removal, or 0 for a key still in use."""
        try:
            index = await self._root_keys.remove(key_id, is_forced=False)
        except (Conflict, NotFound) as error:
            log.info("root key not removed: key=%s error=%s", key_id, error)
            return 0
        log.info("root key removed, for nothing needs it any more: key=%s", key_id)
        return index
