"""Repeated consistent reads of a server with others: one confirmation that it leads answers many of them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from random import Random
from typing import NamedTuple

import pytest
from yurt.http.edge.protocol import HELD_MAX
from yurt.sdk.errors import PermissionDenied, Unavailable
from yurt.storage.memory import MemoryLog
from yurt.testing.access import bootstrapped
from yurt.testing.fakes import eventually
from yurt.testing.http_api import Api, serving
from yurt.testing.nightly import is_nightly

from tests.http.raw_connections import HEADERS, JOB, Served, Wire, head, served


class SharedLog(MemoryLog):
    """A log that other servers might use too."""

    @property
    def has_other_servers(self) -> bool:
        return True


class GatedLog(SharedLog):
    """Confirms that this server leads when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gated = False
        self.rounds: list[asyncio.Future[None]] = []
        """Those that have begun while it was gated."""

    async def confirm(self) -> None:
        await super().confirm()
        if self.is_gated:
            self.rounds.append(answer := asyncio.get_running_loop().create_future())
            await answer

    async def begun(self, count: int) -> None:
        await eventually(lambda: len(self.rounds) >= count)


class Shared(NamedTuple):
    """A server with others that knows the job's reads over some connections, and confirms nothing more by itself."""

    api: Api
    http: Served
    log: GatedLog
    wires: list[Wire]
    usual: int
    """Requests that had taken the usual way by then."""

    def usual_reads(self) -> int:
        """Those that took it since."""
        return self.http.usual - self.usual


@pytest.fixture
async def shared() -> AsyncIterator[Shared]:
    log = GatedLog()
    async with serving(log=log) as api, served(api.server) as http:
        assert (await api.register()).status == 200
        wires = [await http.learnt(JOB) for _ in range(5)]
        log.is_gated = True
        yield Shared(api, http, log, wires, http.usual)
        log.is_gated = False
        for each in log.rounds:
            if not each.done():
                each.set_result(None)


async def all_waiting(shared: Shared, count: int) -> None:
    """Wait until this number of reads waits for the next round."""
    await eventually(lambda: len(shared.http.fast_path.confirmed) == count)


async def test_one_confirmation_answers_every_read_that_came_before_it_began(shared: Shared) -> None:
    first, *others = shared.wires
    reading = [asyncio.create_task(first.status(head(JOB)))]
    await shared.log.begun(1)
    reading += [asyncio.create_task(wire.status(head(JOB))) for wire in others]
    await all_waiting(shared, len(others))

    shared.log.rounds[0].set_result(None)
    await shared.log.begun(2)
    await eventually(reading[0].done)
    answered = [task.done() for task in reading]
    shared.log.rounds[1].set_result(None)

    assert answered == [True] + [False] * len(others), "a round proves nothing for what came after it began"
    assert await asyncio.gather(*reading) == [200] * len(shared.wires)
    assert (len(shared.log.rounds), shared.usual_reads()) == (2, 0)


async def test_a_confirmed_read_shows_the_state_behind_its_confirmation(shared: Shared) -> None:
    reading = asyncio.create_task(shared.wires[0].json(JOB))
    await shared.log.begun(1)
    assert (await shared.api.register(Priority=77)).status == 200
    shared.log.rounds[0].set_result(None)
    assert (await reading)["Priority"] == 77


async def test_a_token_that_is_revoked_while_its_read_waits_is_refused() -> None:
    log = GatedLog()
    async with bootstrapped(log=log) as callers, served(callers.api.server) as http:
        token = (await callers.put("/v1/acl/token", {"Name": "t", "Type": "management"})).json
        headers = f"{HEADERS}X-Nomad-Token: {token['SecretID']}\r\n"
        wire = await http.learnt("/v1/jobs", headers=headers)
        log.is_gated = True
        reading = asyncio.create_task(wire.status(head("/v1/jobs", headers)))
        await log.begun(1)
        assert (await callers.call("DELETE", f"/v1/acl/token/{token['AccessorID']}")).status == 200
        log.is_gated = False
        log.rounds[0].set_result(None)
        assert await reading == 403


async def test_what_comes_behind_a_read_that_waits_is_answered_in_order(shared: Shared) -> None:
    wire = shared.wires[0]
    wire.writer.write(head(JOB))
    await shared.log.begun(1)
    for part in (
        b"PUT /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-",
        b"Length: 2\r\n\r\n{}",
        head("/v1/agent/health"),
    ):
        wire.writer.write(part)
        await asyncio.sleep(0.01)
    shared.log.is_gated = False
    shared.log.rounds[0].set_result(None)
    answers = [await wire.answer() for _ in range(3)]
    assert [answer.split()[1] for answer in answers] == [b"200", b"400", b"200"]
    assert json.loads(answers[0].partition(b"\r\n\r\n")[2])["ID"] == "web"


async def test_what_comes_behind_a_read_that_waits_is_bounded(shared: Shared) -> None:
    connection, transport = shared.http.connection()
    connection.repeats.waiting = head(JOB)
    connection.data_received(b"x" * HELD_MAX)
    assert transport.is_reading()
    connection.data_received(b"x")
    assert not transport.is_reading()
    connection.go_on(b"")
    assert transport.is_reading() and not connection.repeats.held


@pytest.mark.parametrize("error", [Unavailable("cut off"), PermissionDenied("of etcd"), OSError("a defect")])
async def test_all_that_wait_while_a_confirmation_fails_take_the_usual_way(shared: Shared, error: Exception) -> None:
    first, *others = shared.wires
    reading = [asyncio.create_task(first.status(head(JOB)))]
    await shared.log.begun(1)
    reading += [asyncio.create_task(wire.status(head(JOB))) for wire in others]
    await all_waiting(shared, len(others))
    shared.log.is_gated = False
    shared.log.rounds[0].set_exception(error)
    assert await asyncio.gather(*reading) == [200] * len(reading)
    assert shared.usual_reads() == len(reading)


async def test_a_read_that_waits_while_the_agent_ends_is_answered(shared: Shared) -> None:
    reading = asyncio.create_task(shared.wires[0].status(head(JOB)))
    await shared.log.begun(1)
    ending = asyncio.create_task(shared.http.end(10))
    await shared.log.begun(2)
    assert not reading.done(), "aiohttp waits for its answer"
    shared.log.rounds[1].set_result(None)
    assert await reading == 200
    shared.log.rounds[0].set_result(None)
    await ending


async def test_a_connection_that_closes_takes_no_request(shared: Shared) -> None:
    connections = shared.http.connections
    for each in connections:
        each.close()
    await asyncio.sleep(0)  # aiohttp's handlers end
    for each in connections:
        each.data_received(head(JOB))
    assert [each.is_at_work for each in connections] == [False] * len(shared.wires)


async def test_a_connection_whose_read_waits_is_in_use(shared: Shared) -> None:
    connection, _ = shared.http.connection()
    assert not connection.is_at_work
    connection.repeats.waiting = head(JOB)
    assert connection.is_at_work


async def test_a_connection_may_end_while_its_read_waits(shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    gone, stays = shared.wires[:2]
    gone.writer.write(head(JOB))
    await shared.log.begun(1)
    gone.writer.transport.abort()
    reading = asyncio.create_task(stays.status(head(JOB)))
    await all_waiting(shared, 1)
    shared.log.is_gated = False
    shared.log.rounds[0].set_result(None)
    assert await reading == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


class SlowLog(SharedLog):
    """Confirms that this server leads at once or after a while."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random

    async def confirm(self) -> None:
        await super().confirm()
        await asyncio.sleep(self._random.choice([0, 0, 0.001, 0.003]))


def of(line: str, headers: str = "", body: str = "") -> bytes:
    """A request with a body."""
    return f"{line} HTTP/1.1\r\n{HEADERS}{headers}\r\n{body}".encode()


ANY_REQUEST = (
    *[(head(JOB), 200, b'"ID":"web"')] * 4,
    (head(f"{JOB}/summary"), 200, b'"JobID":"web"'),
    (head("/v1/agent/health"), 200, b'"ok":true'),
    (head("/v1/job/none"), 404, b""),
    (b"\r\n" + head(JOB), 200, b'"ID":"web"'),
    (of(f"GET {JOB}", "Content-Length: 0\r\n"), 200, b'"ID":"web"'),
    (of(f"GET {JOB}", "Content-Length: 5\r\n", "GET /"), 200, b'"ID":"web"'),
    (of("PUT /v1/jobs", "Content-Length: 2\r\n", "{}"), 400, b""),
    (of("PUT /v1/jobs", "Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), 400, b""),
)


@pytest.mark.parametrize("seed", range(200 if is_nightly() else 2))
async def test_requests_in_any_pieces_are_answered_in_order(seed: int) -> None:
    random = Random(seed)
    async with serving(log=SlowLog(random)) as api, served(api.server) as http:
        await api.register()
        asked = 0
        for _ in range(15):
            wire = await http.connect()
            for _ in range(10):
                asked += await ask_some(wire, random)
            (connection,) = http.connections
            assert connection.repeats.answered == connection._request_count, "none was lost or counted twice"
            wire.writer.close()
            await eventually(lambda: not http.connections)
        assert 0 < http.usual < asked


async def ask_some(wire: Wire, random: Random) -> int:
    """Send some requests in pieces, one for each request or as it comes, and check the answers; their number."""
    requests = random.choices(ANY_REQUEST, k=random.randrange(1, 5))
    sizes = [len(request) for request, *_ in requests] if random.random() < 0.5 else random.choices(range(99), k=3)
    for piece in pieces(b"".join(request for request, *_ in requests), sizes):
        wire.writer.write(piece)
        await asyncio.sleep(random.choice([0, 0, 0.0005, 0.002]))
    for request, status, part in requests:
        answer = await wire.answer()
        assert int(answer.split()[1]) == status and part in answer, (request, answer)
    return len(requests)


def pieces(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """The data in pieces of these sizes, and the rest."""
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data
