"""One append: a transaction that compares the epoch, which a new leader raises, and the log's end.

It stores the commands at their first index together with the new end. When etcd does not answer it in time nobody knows
whether it is stored: the term ends, and the next one begins with reading the log's end. It is never sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from yurt.sdk.errors import Conflict, Unavailable, YurtError
from yurt.storage.etcd.client import EtcdClient, NoSpace
from yurt.storage.etcd.keys import Keys, encode_entry, encode_head, get, is_value, put
from yurt.storage.etcd.leading import Leading, Term
from yurt.storage.etcd.waits import Interrupted
from yurt.structs.commands import AnyCommand

APPEND_LIMIT_S: Final = 5.0
UNKNOWN: Final = "it may or may not be stored"


async def append(
    term: Term,
    first_index: int,
    commands: Sequence[AnyCommand | msgspec.Raw],
    *,
    client: EtcdClient,
    keys: Keys,
    leading: Leading,
) -> None:
    """Store the commands in a term of this server.

    Raises Conflict when the term has ended, Invalid when they are too large, LogFull when etcd has no room for them:
    nothing was stored. Raises Unavailable when the outcome is unknown; the term has ended then.
    """
    value, head = encode_entry(first_index, commands, term.head.digest)
    leading.check_room(len(value))
    store = [put(keys.entry(first_index), value), put(keys.head, encode_head(head))]
    compare = [leading.fence(term), is_value(keys.head, encode_head(term.head))]
    look = get(keys.lead, keys.lead_end)
    try:
        answer = await term.end.guard(client.txn(compare, store, [look], timeout_s=APPEND_LIMIT_S))
    except asyncio.CancelledError:
        leading.lose(term, f"an append was cancelled, {UNKNOWN}")
        raise
    except Interrupted:
        raise Unavailable(f"the term ended during an append, {UNKNOWN}") from None
    except YurtError as error:
        if isinstance(error, NoSpace):
            leading.on_no_space()
        leading.lose(term, f"an append failed, {UNKNOWN}: {error}")
        raise Unavailable(f"an append failed, {UNKNOWN}: {error}") from error
    if not answer.succeeded:
        leading.lose(term, "another one has begun")
        leading.learn(answer.responses[0].response_range.kvs)
        raise Conflict("another server leads by now, nothing was stored")
    term.head = head
    leading.on_stored(answer.header.revision, len(value))
    leading.answered()
