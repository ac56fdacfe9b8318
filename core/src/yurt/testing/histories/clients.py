"""Concurrent clients over HTTP: each lane drives one object after another with bursts of random requests.

A lane takes a new object, sends bursts of prepared requests to it, and at the end reads the whole object. Requests of a
burst go out on connections of their own, to agents chosen at random; the next burst waits for them, but not long: what
a frozen agent holds overlaps with what comes next. What a request asks depends on the seed and on the answers so far.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import aiohttp

from yurt.sdk.errors import ERROR_HEADER, Reason, reason_of, reason_of_status
from yurt.testing.histories.history import History, Operation, Request
from yurt.testing.histories.kinds import Kind, answered

TOKEN_HEADER: Final = "X-Nomad-Token"
UNREAD: Final = 408
"""The status of a request whose head came too late for the agent, so it was never read."""
NO_EFFECT: Final = (Reason.NO_LEADER, Reason.OVERLOADED)
"""Reasons that promise that the request was not carried out."""
MAYBE: Final = (Reason.OUTCOME_UNKNOWN, Reason.SHUTTING_DOWN, Reason.CONNECTION_LOST, Reason.NO_ANSWER)
"""Reasons that leave the outcome open."""
REQUEST_LIMIT_S: Final = 15.0
BURST_LIMIT_S: Final = 1.0
"""The next burst does not wait longer for the one before."""
AGAIN_S: Final = 0.05
"""After a request that was not carried out."""
SECRETS: Final = 1_000
"""The number of distinct clients."""


class LoadShape(NamedTuple):
    """The size of the load: concurrent lanes, requests in a burst, bursts on one object."""

    lanes: int = 6
    width: int = 6
    bursts: int = 10


class Recorded(NamedTuple):
    """The operations on one object."""

    kind: Kind
    key: str
    operations: History


class Senders(NamedTuple):
    """The HTTP connections, and the task group of the requests."""

    session: aiohttp.ClientSession
    group: asyncio.TaskGroup


DEFAULT_SHAPE = LoadShape()


class Clients:
    """Sends requests until enough operations are answered."""

    def __init__(
        self,
        addresses: Sequence[str],
        kinds: Sequence[Kind],
        *,
        seed: int,
        shape: LoadShape = DEFAULT_SHAPE,
        token: str = "",
    ) -> None:
        """`token` is the secret sent with every request."""
        self._addresses = list(addresses)
        self._kinds = list(kinds)
        self._seed = seed
        self._shape = shape
        self._token = token
        self._numbers = itertools.count()
        self._objects = itertools.count()
        self.recorded: list[Recorded] = []
        self.outcomes: Counter[str] = Counter()
        """Answers by kind of object, request and status."""
        self.count = 0
        """Operations whose outcome is known or open; requests that were not carried out are none."""

    async def run(self, operations: int, *, until: Callable[[], bool] = lambda: True) -> None:
        """Record at least `operations` operations, and go on `until` it is true; lanes finish the object that they
        have begun."""
        async with new_session(token=self._token) as session, asyncio.TaskGroup() as group:
            for _ in range(self._shape.lanes):
                group.create_task(self._lane(Senders(session, group), lambda: self.count >= operations and until()))

    async def read_everywhere(self) -> None:
        """Read each object from every agent with stale reads; all agents must have caught up."""
        async with new_session(token=self._token) as session, asyncio.TaskGroup() as group:
            for at, done in enumerate(self.recorded):
                drive = ObjectLoad(self, Senders(session, group), done.kind, done.key, random.Random(at))
                for client in range(len(self._addresses)):
                    await drive.burst(done.kind.last_reads(), client=client, is_stale=True)
                self.recorded[at] = done._replace(operations=(*done.operations, *drive.past))

    async def _lane(self, senders: Senders, is_over: Callable[[], bool]) -> None:
        while not is_over():
            number = next(self._objects)
            kind = self._kinds[number % len(self._kinds)]
            rng = random.Random(f"{self._seed}/{number}")
            drive = ObjectLoad(self, senders, kind, kind.key(number), rng)
            self.recorded.append(Recorded(kind, drive.key, await drive.run(self._shape)))

    async def send(
        self, session: aiohttp.ClientSession, kind: Kind, plan: Operation, *, is_stale: bool = False
    ) -> Operation | None:
        """Send one request; None when the answer promises that it had no effect."""
        prepared = kind.prepare(plan.key, plan.request)
        address = self._addresses[plan.client % len(self._addresses)]
        path = prepared.path + ("&" if "?" in prepared.path else "?") + "stale" if is_stale else prepared.path
        plan = plan._replace(invoked=time.monotonic_ns())
        shown = {TOKEN_HEADER: prepared.token} if prepared.token else None
        try:
            async with session.request(prepared.method, address + path, data=prepared.body, headers=shown) as response:
                text = await response.text(errors="replace")
        except aiohttp.ClientConnectorError:
            await self._not_carried_out(plan, kind)
            return None
        except (aiohttp.ClientError, TimeoutError):
            return self._counted(plan, kind, "unknown")
        returned = time.monotonic_ns()
        reason = reason_of(response.headers.get(ERROR_HEADER, "")) or reason_of_status(response.status)
        if response.status == UNREAD or (response.status >= 429 and reason in NO_EFFECT):
            await self._not_carried_out(plan, kind)
            return None
        if response.status >= 500 and reason in MAYBE:
            return self._counted(plan, kind, "unknown")
        answer = answered(response.status, response.headers.get("X-Nomad-Index", ""), text, kind, plan.request)
        return self._counted(plan._replace(returned=returned, answer=answer), kind, str(response.status))

    def _counted(self, operation: Operation, kind: Kind, outcome: str) -> Operation:
        self.count += 1
        self.outcomes[f"{kind.name} {type(operation.request).__name__} {outcome}"] += 1
        return operation

    async def _not_carried_out(self, plan: Operation, kind: Kind) -> None:
        self.outcomes[f"{kind.name} {type(plan.request).__name__} not carried out"] += 1
        await asyncio.sleep(AGAIN_S)

    def plan(self, key: str, request: Request, client: int) -> Operation:
        """An operation that has not been sent yet."""
        return Operation(next(self._numbers), client, key, request, invoked=0)


def new_session(*traces: aiohttp.TraceConfig, token: str = "") -> aiohttp.ClientSession:
    """An HTTP session without a limit of connections and without retries; every request carries the token."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
    limit = aiohttp.ClientTimeout(total=REQUEST_LIMIT_S)
    headers = {TOKEN_HEADER: token} if token else None
    session = aiohttp.ClientSession(connector=connector, timeout=limit, trace_configs=list(traces), headers=headers)
    session._retry_connection = False  # it would send a PUT again whose connection was lost
    return session


class ObjectLoad:
    """The requests of one lane on one object."""

    def __init__(self, clients: Clients, senders: Senders, kind: Kind, key: str, rng: random.Random) -> None:
        self._clients = clients
        self._senders = senders
        self._kind = kind
        self.key = key
        self._rng = rng
        self.past: list[Operation] = []
        """The operations so far, in the order of the answers."""
        self._open: set[asyncio.Task[None]] = set()

    async def run(self, shape: LoadShape) -> History:
        """Bursts of requests, then reads of the whole object; all operations."""
        for number in range(shape.bursts):
            size = self._rng.randint(1, shape.width)
            await self.burst(
                [self._kind.choose(self._rng, self.past, f"{number}.{at}") for at in range(size)],
                limit_s=BURST_LIMIT_S,
            )
        if self._open:
            await asyncio.wait(self._open)
        await self.burst(list(self._kind.last_reads()))
        return tuple(self.past)

    async def burst(
        self,
        requests: Sequence[Request],
        *,
        client: int | None = None,
        is_stale: bool = False,
        limit_s: float | None = None,
    ) -> None:
        """Send requests at the same time and wait for all answers."""
        if not requests:
            return
        sent = set()
        for request in requests:
            plan = self._clients.plan(self.key, request, self._rng.randrange(SECRETS) if client is None else client)
            sent.add(self._senders.group.create_task(self._send(plan, is_stale=is_stale)))
        self._open |= sent
        done, _ = await asyncio.wait(sent, timeout=limit_s)
        for task in done:
            await task
        self._open = {task for task in self._open if not task.done()}

    async def _send(self, plan: Operation, *, is_stale: bool) -> None:
        found = await self._clients.send(self._senders.session, self._kind, plan, is_stale=is_stale)
        if found is not None:
            self.past.append(found)
