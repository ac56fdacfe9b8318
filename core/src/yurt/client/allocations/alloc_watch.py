"""Follows the servers' list of the allocations assigned to this node.

The list is pulled by a blocking query, and the allocations whose index rose are fetched; `lifecycle.alloc_list` decides
their effect (invariant E2). The newest index and the ID of the cluster are stored on disk, so that the rules hold
across a restart too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from yurt.client.ports import ServerPort
from yurt.client.timed_waits import value_unless, wait_or_sleep
from yurt.lifecycle.alloc_list import AllocList, Changes
from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable, YurtError
from yurt.storage.client_db import CLUSTER_ID, NEW_LOG_INDEX, AllocRecord, ClientDatabase
from yurt.structs.alloc import Allocation
from yurt.structs.rpc import AllocPull

PULL_TIMEOUT_S = 60.0
PULL_RETRY_S = 30.0
NO_SERVER_RETRY_S = 1.0
STALE_RETRY_S = 1.0
FETCH_MAX = 200
OUTDATED_ROUNDS = 10
"""The number of outdated lists after which the node registers again, which tells whether the log is a new one."""
IGNORED_ROUNDS = 60
"""The number of ignored lists of a new log for which one line is logged: a node may wait for a restore for days."""

log = logging.getLogger(__name__)


class AllocWatch:
    """The loop that pulls the list and fetches changed allocations."""

    def __init__(
        self,
        server: ServerPort,
        env: Env,
        store: ClientDatabase,
        *,
        node_id: str,
        register_again: Callable[[], None] = lambda: None,
        is_dev: bool = False,
    ) -> None:
        """`register_again` has the node registered again."""
        self._server = server
        self._env = env
        self._store = store
        self._node_id = node_id
        self._retry_s = NO_SERVER_RETRY_S if is_dev else PULL_RETRY_S
        self._list = AllocList()
        self._again = asyncio.Event()
        self.fresh = asyncio.Event()
        """Set once a list is adopted that is at least as new as `look_again` required."""
        self._outdated_count = 0
        self._ignored_count = 0
        self._stored_new_log = 0
        self._register_again = register_again

    @property
    def seen_index(self) -> int:
        """The newest index of an adopted list, or that which lists must reach."""
        return self._list.seen_index

    @property
    def cluster_id(self) -> str:
        """The ID of the cluster of the adopted lists; "" before one has named it."""
        return self._list.cluster_id

    def note_registration(self, index: int, seen_before: int, cluster_id: str = "") -> None:
        """Note the index of a registration; `seen_before` is `seen_index` before it was requested."""
        self._list.note_registration(index, seen_before=seen_before, cluster_id=cluster_id)

    def restore(self, records: Iterable[AllocRecord]) -> None:
        """Add the allocations of an earlier agent, at the indexes in their records."""
        self._list.restore(
            {record.id: record.alloc.alloc_modify_index for record in records if record.alloc is not None}
        )

    def look_again(self, least_index: int) -> None:
        """Pull the list at once, and ignore lists older than `least_index`."""
        self._list.expect(least_index)
        self.fresh.clear()
        self._again.set()

    async def run(self, *, least_index: int, apply: Callable[[Changes], Awaitable[None]]) -> None:
        """Follow the list until cancelled, ignoring lists older than `least_index`, the index of the registration."""
        stored = await self._store.seen_index()
        self._list.expect(max(stored, least_index))
        self._stored_new_log = await self._store.seen_index(NEW_LOG_INDEX)
        self._list.new_log_index = self._list.new_log_index or self._stored_new_log
        self._list.cluster_id = stored_cluster = await self._store.text(CLUSTER_ID)
        min_index = 0
        while True:
            if self._again.is_set():
                self._again.clear()
                min_index = 0
            try:
                found = await value_unless(self._again, self._ask(min_index))
            except YurtError as error:
                retry_s = NO_SERVER_RETRY_S if isinstance(error, Unavailable) else self._retry_s
                log.warning("fetching allocations failed: retry_s=%g error=%s", retry_s, error)
                await wait_or_sleep(self._env, self._again, retry_s)
                continue
            if found is None:
                continue
            pull, changes = found
            if self._list.is_unusable(pull):
                await self._take_unusable(pull)
                min_index = 0
                continue
            self._outdated_count = self._ignored_count = 0
            await apply(changes)
            if self._list.take_over(pull, changes):
                self.fresh.set()
            if pull.index != stored:
                await self._store.put_seen_index(pull.index)
                stored = pull.index
            # After the list: an agent that ends in between takes it once more for the first one of another cluster.
            if self._list.cluster_id != stored_cluster:
                stored_cluster = self._list.cluster_id
                await self._store.put_text(CLUSTER_ID, stored_cluster)
            min_index = pull.index

    async def _take_unusable(self, pull: AllocPull) -> None:
        """Adopt the first usable list of a new log; ignore another list and wait."""
        seen = self._list.seen_index
        if self._list.is_of_new_log(pull):
            log.warning(
                "the servers have a new log, stopping the allocations that are missing there: missing=%d %s",
                self._list.missing_count(pull),
                self._difference(pull),
            )
            self._list.begin_anew(pull)
            await self._store_new_log()
            return
        if self._list.has_new_log or self._list.is_foreign(pull):
            await self._store_new_log()
            if self._ignored_count % IGNORED_ROUNDS == 0:
                text = "ignoring a list of a new log without the allocations of this node: %s"
                log.warning(text, self._difference(pull))
            self._ignored_count += 1
        else:
            log.warning("ignoring an outdated list of allocations: index=%d seen_index=%d", pull.index, seen)
            self._outdated_count += 1
            if self._outdated_count % OUTDATED_ROUNDS == 0:
                self._register_again()
        await self._env.sleep(STALE_RETRY_S)

    def _difference(self, pull: AllocPull) -> str:
        """The position of a list and that of the adopted one, for the log."""
        known = self._list
        indexes = f"index={pull.index} seen_index={known.seen_index}"
        return f"{indexes} cluster_id={pull.cluster_id or 'none'} previous_cluster_id={known.cluster_id or 'none'}"

    async def _store_new_log(self) -> None:
        """Store what the next agent must know about a new log: it may be longer by then than the one before."""
        if self._list.new_log_index != self._stored_new_log:
            self._stored_new_log = self._list.new_log_index
            await self._store.put_seen_index(self._stored_new_log, NEW_LOG_INDEX)

    async def _ask(self, min_index: int) -> tuple[AllocPull, Changes]:
        """Request the next list and its changes; nothing is fetched for an unusable list."""
        pull = await self._server.pull_allocs(self._node_id, min_index=min_index, timeout_s=PULL_TIMEOUT_S)
        return pull, Changes() if self._list.is_unusable(pull) else await self._changes(pull)

    async def _changes(self, pull: AllocPull) -> Changes:
        moved = self._list.moved(pull)
        fetched: list[Allocation] = []
        for start in range(0, len(moved), FETCH_MAX):
            batch = await self._server.get_allocs(self._node_id, moved[start : start + FETCH_MAX])
            fetched += batch.allocs
        return self._list.changes(pull, fetched)
