"""Confirms that this server still leads, as Raft's ReadIndex does: one read of the epoch serves all waiting callers.

A confirmation holds only from the call on that asked for it, so callers that come during a read wait for the next one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from yurt.sdk.errors import Conflict, Unavailable, YurtError
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.interruptible_waits import Interrupted
from yurt.storage.etcd.key_layout import KeyLayout
from yurt.storage.etcd.leading import CLOSED, NO_LEADER, Leading

CONFIRM_LIMIT_S: Final = 2.0


class Confirmation:
    """Batches the confirmations of one server."""

    def __init__(self, client: EtcdClient, keys: KeyLayout, *, leading: Leading) -> None:
        self._client = client
        self._keys = keys
        self._leading = leading
        self._waiting: list[asyncio.Future[None]] = []
        self._requested = asyncio.Event()

    async def confirm(self) -> None:
        """Return once it is certain that this server still led after the call; raises Unavailable."""
        if self._leading.term is None:
            raise Unavailable(NO_LEADER)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._requested.set()
        await answer

    async def answer_confirms(self) -> None:
        """Serve all waiting callers with one read at a time, until cancelled."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            waiting, self._waiting = self._waiting, []
            outcome: YurtError | None = Unavailable(CLOSED)
            try:
                await self._read()
                outcome = None
            except YurtError as error:
                outcome = error
            finally:
                _answer(waiting, outcome)

    def close(self) -> None:
        """Fail all waiting callers."""
        _answer(self._waiting, Unavailable(CLOSED))

    async def _read(self) -> None:
        term = self._leading.term
        if term is None:
            raise Unavailable(NO_LEADER)
        try:
            found = await term.end.guard(self._client.range(self._keys.epoch, timeout_s=CONFIRM_LIMIT_S))
        except Interrupted:
            raise Unavailable(CLOSED if self._leading.levels.is_closed else NO_LEADER) from None
        except Conflict as error:
            raise Unavailable(str(error)) from error
        self._leading.learn(found.kvs)
        if self._leading.term is not term or not found.kvs or found.kvs[0].mod_revision != term.revision:
            raise Unavailable(NO_LEADER)


def _answer(waiting: list[asyncio.Future[None]], error: YurtError | None) -> None:
    for answer in waiting:
        if answer.done():
            continue
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)
