"""Exclusive turns between servers for work on their etcd members, such as defragmentation.

A member that rewrites its file answers nothing; were two of three to do so at once, nothing could be stored meanwhile.
The server whose turn it is has written the key, and deletes it afterwards. A server that died in its turn keeps the
others waiting for as long as a turn may take. No harm is done when two have it after all.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from yurt.runtime.env import Env
from yurt.sdk.errors import YurtError
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.key_layout import is_at, put, remove

GIVE_BACK_LIMIT_S: Final = 2.0


class MaintenanceLock:
    """The turns of one server at a key; `limit_s` is the longest duration of a turn."""

    def __init__(self, client: EtcdClient, key: bytes, *, name: str, limit_s: float, env: Env) -> None:
        self.limit_s = limit_s
        self._client = client
        self._key = key
        self._name = name.encode()
        self._env = env
        self._seen, self._seen_at = 0, 0.0
        """The revision of another server's key, and the time at which this server first saw it."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[bool]:
        """Whether this server has the turn; the turn ends with the block; raises Unavailable."""
        revision = await self._take()
        if not revision:
            yield False
            return
        try:
            yield True
        finally:
            await self._give_back(revision)

    async def _take(self) -> int:
        """The revision at which this server has written the key; 0 while another server has the turn."""
        found = (await self._client.range(self._key)).kvs
        before = found[0].mod_revision if found else 0
        if found and found[0].value != self._name and not self._is_stale(before):
            return 0
        answer = await self._client.txn([is_at(self._key, before)], [put(self._key, self._name)])
        return int(answer.header.revision) if answer.succeeded else 0

    def _is_stale(self, revision: int) -> bool:
        now = self._env.monotonic()
        if revision != self._seen:
            self._seen, self._seen_at = revision, now
        return now - self._seen_at > self.limit_s

    async def _give_back(self, revision: int) -> None:
        with contextlib.suppress(YurtError):
            await self._client.txn([is_at(self._key, revision)], [remove(self._key, b"")], timeout_s=GIVE_BACK_LIMIT_S)
