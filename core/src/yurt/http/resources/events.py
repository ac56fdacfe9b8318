"""The event stream: one JSON line per command that changed something the reader subscribed to and may see.

The type of an event comes from the command, its topic from the declaration of the table that changed. A line `{}`
comes first and every 30 s. A stream that this server closes, because events are missing or the reader may no longer
read them, ends with a line `{"Error": "subscription closed by server, client should resubscribe: ..."}`, and without
the last chunk of the answer. When the agent stops, it ends with the last chunk, as a Nomad agent's does.

A stream begins at the asked index, or as in Nomad at the oldest event that this server has where that is later. The
header `X-Yurt-Oldest-Index` says where that is, so that a reader that resumes knows of the events that it has missed.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from aiohttp import web

from yurt.api.encode import encode_builtins, to_wire
from yurt.api.stubs import allocation_wire, node_wire, pool_wire
from yurt.http.call import Call, need_recent_state
from yurt.http.edge.followed import EVENTS, FOLLOWED
from yurt.http.errors import Refused
from yurt.http.leases import Lease
from yurt.sdk.errors import YurtError
from yurt.server.log.event_buffer import Event
from yurt.server.resources.variables import metadata_of
from yurt.server.views.events import ALL, NEEDS, EventFilter, EventRow, Subscription
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import NodePool
from yurt.structs.node import Node
from yurt.structs.variable import EncryptedVariable

HEARTBEAT_S = 30.0
LAST_LINE_S = 2.0
TOPICS_MAX = 64
OLDEST = "X-Yurt-Oldest-Index"
RESUBSCRIBE = "subscription closed by server, client should resubscribe"


def parse_topics(texts: list[str]) -> tuple[tuple[str, str], ...]:
    """`Topic:Key` texts as pairs; raises Refused (400), as Nomad does for a key with a colon."""
    if len(texts) > TOPICS_MAX:
        raise Refused(400, f"Invalid topic query: at most {TOPICS_MAX} topics may be asked for")
    pairs = []
    for text in texts or [f"{ALL}:{ALL}"]:
        topic, _, key = text.partition(":")
        if ":" in key:
            raise Refused(400, f"Invalid topic query: Invalid key value pair for topic, topic: {text[:64]}")
        if topic not in NEEDS:
            names = ", ".join(sorted(NEEDS))
            raise Refused(400, f'Invalid topic query: unknown topic "{topic[:64]}"; the topics are {names}')
        pairs.append((topic, key or ALL))
    return tuple(pairs)


def event_wire(event: Event, row_event: EventRow) -> dict[str, Any]:
    """An event as the API writes it; the topic determines the form of the row (`yurt.state.tables`)."""
    topic, row = row_event.topic, row_event.row
    deleted = {"Deleted": row_event.is_deleted} if topic.has_deletion_flag else {}
    return {
        "FilterKeys": [key for key in topic.filter_keys(row) if key],
        "Index": event.index,
        "Key": topic.key(row),
        "Namespace": row_event.namespace,
        "Payload": {**deleted, topic.payload or topic.name: _written(topic.shown(row))},
        "Topic": topic.name,
        "Type": row_event.type,
    }


def _written(shown: object) -> Any:
    """What everybody may see of a row, as the API writes it; nodes and variables have a form of their own there."""
    if isinstance(shown, Node):
        return node_wire(shown)
    if isinstance(shown, Allocation):
        return allocation_wire(shown)
    if isinstance(shown, NodePool):
        return pool_wire(shown)
    if isinstance(shown, EncryptedVariable):
        return to_wire(metadata_of(shown))
    return to_wire(shown)


async def stream(call: Call) -> web.StreamResponse:
    """GET /v1/event/stream."""
    event_filter = EventFilter(parse_topics(call.query.getall("topic", [])), call.options.namespace)
    subscription = call.subscription(event_filter)
    oldest = subscription.oldest_index
    response = web.StreamResponse(headers={"Content-Type": "application/json", OLDEST: str(oldest), FOLLOWED: EVENTS})
    await response.prepare(call.request)
    await response.write(b"{}\n")
    call.lease.also(subscription.check)
    call.lease.also(partial(need_recent_state, call))
    closed: YurtError | None = None
    try:
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(_beat(call, response), name="event stream heartbeat")
            work = [
                group.create_task(_send(call, response, subscription, from_index=max(call.options.index, oldest))),
                group.create_task(_without_rights(call.lease), name="rights of an event stream"),
            ]
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in (beat, *work):
                task.cancel()
            closed = done.pop().result()
    except* ConnectionError:
        pass
    if closed is not None:
        await _send_end(call, response, closed)
        raise closed
    return response


async def _beat(call: Call, response: web.StreamResponse) -> None:
    while True:
        await call.context.env.sleep(HEARTBEAT_S)
        await response.write(b"{}\n")


async def _send(call: Call, response: web.StreamResponse, subscription: Subscription, *, from_index: int) -> YurtError:
    """Send events until the reader leaves or this server closes the subscription; why it does."""
    try:
        async with aclosing(subscription.rows(from_index, call.turns, event_wire)) as groups:
            async for index, events in groups:
                await response.write(encode_builtins({"Events": events, "Index": index}) + b"\n")
    except YurtError as error:
        return error
    raise AssertionError("a subscription ends with an error only")


async def _without_rights(lease: Lease) -> YurtError:
    """Wait until the reader's rights end, even while nothing happens; returns why they ended."""
    try:
        await lease.lost()
    except YurtError as error:
        return error


async def _send_end(call: Call, response: web.StreamResponse, error: YurtError) -> None:
    """Send the last line; a reader that does not read cannot keep the stream open."""
    with suppress(TimeoutError, ConnectionError):
        async with call.context.env.timeout(LAST_LINE_S):
            await response.write(encode_builtins({"Error": f"{RESUBSCRIBE}: {error}"}) + b"\n")
