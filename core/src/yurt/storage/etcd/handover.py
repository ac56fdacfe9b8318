"""Transfers leadership to another server, and etcd's own leadership to its member.

Both go together: a server whose etcd member leads is preferred as leader, so keeping one would
bring back the other.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Final

from yurt.sdk.errors import Invalid, YurtError
from yurt.storage.etcd.appending import Appender
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.leading import Leading
from yurt.storage.etcd.membership import list_members, member_status, move_leader
from yurt.storage.etcd.snapshot_reports import SnapshotReports

log = logging.getLogger(__name__)

MOVE_TRIES_MAX: Final = 2
"""The number of attempts, at different members if possible: an election in progress refuses the first."""


class Handover:
    """Gives up the leadership of one server."""

    def __init__(self, client: EtcdClient, *, leading: Leading, appender: Appender, reports: SnapshotReports) -> None:
        self._client = client
        self._leading = leading
        self._appender = appender
        self._reports = reports

    async def resign(self, to: str = "") -> None:
        """Transfer leadership to another server, or to the named one; no effect without another server.

        Raises Invalid when no server has that name, Unavailable when etcd does not answer.
        """
        term, name = self._leading.term, self._leading.name
        if term is None:
            return
        others = [server for server in await self._reports.servers() if server not in ("", name)]
        if to and to not in (*others, name):
            raise Invalid(f'server "{to}" does not exist; the other servers are: {", ".join(others) or "no others"}')
        if not others or to == name:
            return
        async with self._appender.lock:  # an append that is cut off has an unknown outcome
            is_transferred = await self._leading.vacate(term, to)
        if is_transferred and self._leading.own_endpoint:
            await self._move_etcd([to] if to else others)

    async def _move_etcd(self, names: Sequence[str]) -> None:
        """Move etcd's leadership to the member of another server, so that this server is not preferred."""
        try:
            if not (await member_status(self._client, self._leading.own_endpoint)).is_leader:
                return
            peers = {peer.name: peer.id for peer in await list_members(self._client) if peer.name in names}
        except YurtError as error:
            log.debug("etcd's own leadership stays: %s", error)
            return
        for name, peer_id in islice(cycle(peers.items()), MOVE_TRIES_MAX):
            try:
                await move_leader(self._client, peer_id)
            except YurtError as error:
                log.debug("etcd's own leadership does not go to %s: %s", name, error)
            else:
                return
