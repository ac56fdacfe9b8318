"""Gossips each etcd member's database size, so that every server enforces the smallest remaining quota.

When the quota of one member is used up, the whole etcd cluster refuses writes; a server sees only the size of its own
member.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from yurt.sdk.errors import YurtError
from yurt.server.peers import Peers
from yurt.storage.log import CommandLog

log = logging.getLogger(__name__)

ANSWER_S: Final = 1.0
"""The time limit of an answer, in seconds; a silent server is queried again the next time."""


async def gossip_sizes(command_log: CommandLog, peers: Peers) -> None:
    """Query the other servers' sizes whenever the log requests it, and pass on each answer; until cancelled."""
    while True:
        await command_log.wait_sizes_due()
        async with asyncio.TaskGroup() as group:
            for name in peers.names:
                group.create_task(_query_size(command_log, peers, name))


async def _query_size(command_log: CommandLog, peers: Peers, name: str) -> None:
    try:
        async with asyncio.timeout(ANSWER_S):
            size = (await peers.peer(name).status()).room
    except (YurtError, TimeoutError) as error:
        log.debug("database size unknown: server=%s error=%s", name, error)
    else:
        if size is not None:
            command_log.record_size(name, size)
