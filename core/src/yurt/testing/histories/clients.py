"""Concurrent clients: lanes that each drive one object after another with bursts of random requests over HTTP.

A lane takes a new object, sends bursts of prepared requests to it, each burst when the one before is answered, and at
the end reads the whole object. Requests of a burst go out on connections of their own to agents chosen at random. What
a request asks depends on the seed and on the answers so far.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import aiohttp

from yurt.testing.histories.history import History, Operation, Request
from yurt.testing.histories.kinds import Kind, answered

NO_EFFECT: Final = ("No cluster leader", "Too many requests")
"""Beginnings of answers that promise that the request was not carried out."""
MAYBE: Final = ("may or may not", "shutting down")
"""Parts of answers that leave the outcome open."""
REQUEST_LIMIT_S: Final = 15.0


class Shape(NamedTuple):
    """How much is sent: lanes at once, requests of a burst, bursts on one object."""

    lanes: int = 6
    width: int = 6
    bursts: int = 8


class Recorded(NamedTuple):
    """The operations on one object."""

    kind: Kind
    key: str
    operations: History


class Clients:
    """Sends requests until enough operations are answered."""

    def __init__(self, addresses: Sequence[str], kinds: Sequence[Kind], *, seed: int, shape: Shape) -> None:
        self._addresses = list(addresses)
        self._kinds = list(kinds)
        self._seed = seed
        self._shape = shape
        self._numbers = itertools.count()
        self._objects = itertools.count()
        self.recorded: list[Recorded] = []
        self.outcomes: Counter[str] = Counter()
        """Answers by kind of object, request and status."""
        self.asked = 0

    async def run(self, operations: int, *, on_object: Callable[[Recorded], None] | None = None) -> None:
        """Send at least that many requests; an object that was begun is finished."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        limit = aiohttp.ClientTimeout(total=REQUEST_LIMIT_S)
        async with aiohttp.ClientSession(connector=connector, timeout=limit) as session, asyncio.TaskGroup() as group:
            session._retry_connection = False  # it would send a PUT again whose connection was lost
            for lane in range(self._shape.lanes):
                group.create_task(self._lane(session, lane, operations, on_object))

    async def _lane(
        self,
        session: aiohttp.ClientSession,
        lane: int,
        operations: int,
        on_object: Callable[[Recorded], None] | None,
    ) -> None:
        while self.asked < operations:
            number = next(self._objects)
            rng = random.Random(f"{self._seed}/{number}")
            kind = self._kinds[number % len(self._kinds)]
            drive = _Object(self, session, kind, kind.key(number), rng)
            done = Recorded(kind, drive.key, await drive.run(self._shape, lane))
            self.recorded.append(done)
            if on_object is not None:
                on_object(done)

    async def send(self, session: aiohttp.ClientSession, kind: Kind, plan: Operation) -> Operation | None:
        """Send one request; None when the answer promises that it had no effect."""
        self.asked += 1
        prepared = kind.prepare(plan.key, plan.request)
        address = self._addresses[plan.client % len(self._addresses)]
        name = f"{kind.name} {type(plan.request).__name__}"
        invoked = time.monotonic_ns()
        try:
            async with session.request(prepared.method, address + prepared.path, data=prepared.body) as response:
                text = await response.text(errors="replace")
        except aiohttp.ClientConnectorError:
            self.outcomes[f"{name} not connected"] += 1
            return None
        except (aiohttp.ClientError, TimeoutError):
            self.outcomes[f"{name} unknown"] += 1
            return plan._replace(invoked=invoked)
        returned = time.monotonic_ns()
        if response.status >= 429 and text.startswith(NO_EFFECT):
            self.outcomes[f"{name} not carried out"] += 1
            return None
        if response.status >= 500 and any(words in text for words in MAYBE):
            self.outcomes[f"{name} unknown"] += 1
            return plan._replace(invoked=invoked)
        self.outcomes[f"{name} {response.status}"] += 1
        answer = answered(response.status, response.headers.get("X-Nomad-Index", ""), text, kind, plan.request)
        return plan._replace(invoked=invoked, returned=returned, answer=answer)

    def plan(self, key: str, request: Request, client: int) -> Operation:
        """An operation that is still to be sent."""
        return Operation(next(self._numbers), client, key, request, invoked=0)


class _Object:
    """One object under the requests of a lane."""

    def __init__(
        self, clients: Clients, session: aiohttp.ClientSession, kind: Kind, key: str, rng: random.Random
    ) -> None:
        self._clients = clients
        self._session = session
        self._kind = kind
        self.key = key
        self._rng = rng
        self._past: list[Operation] = []

    async def run(self, shape: Shape, lane: int) -> History:
        """Bursts of requests, then reads of the whole object; all operations."""
        first = lane * shape.width
        for _ in range(shape.bursts):
            requests = [
                self._kind.choose(self._rng, self._past, f"{self.key}-{len(self._past)}-{at}")
                for at in range(self._rng.randint(1, shape.width))
            ]
            await self._burst(requests, first)
        await self._burst(list(self._kind.last_reads()), first)
        return tuple(self._past)

    async def _burst(self, requests: Sequence[Request], first: int) -> None:
        shift = self._rng.randrange(97)
        plans = [
            self._clients.plan(self.key, request, first + (at + shift) % 97) for at, request in enumerate(requests)
        ]
        sends: list[Awaitable[Operation | None]] = [
            self._clients.send(self._session, self._kind, plan) for plan in plans
        ]
        found = await asyncio.gather(*sends)
        self._past += [each for each in found if each is not None]
