"""What clients take an answer for: known, of unknown outcome, or none at all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yurt.sdk.errors import ERROR_HEADER, Reason
from yurt.testing.histories.clients import Clients, LoadShape, new_session
from yurt.testing.histories.history import Operation, Reply, Request
from yurt.testing.histories.variables import Delete, VariableKind
from yurt.testing.unique_ports import quiet_port

KIND = VariableKind()
BURSTS = 3
ANSWERS = {
    "conflict": (409, '{"ModifyIndex": 5, "CreateIndex": 5, "Items": {"mark": "a"}}'),
    "refused": (500, "a reason"),
    "leaderless": (500, "No cluster leader"),
    "unread": (408, ""),
    "busy": (429, "Too many requests wait for the leader already"),
    "crowded": (429, "too many connections from one address (limits.http_max_conns_per_client); close some"),
    "open": (500, "the change may or may not be stored: timed out"),
    "ending": (500, "the server is shutting down"),
}
REASONS = {"leaderless": Reason.NO_LEADER, "open": Reason.OUTCOME_UNKNOWN, "ending": Reason.SHUTTING_DOWN}
"""What the header of an answer gives as its reason; the text alone says nothing."""


async def _answer(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name == "lost":
        assert request.transport is not None
        request.transport.close()
    status, text = ANSWERS.get(name, (200, ""))
    reason = {ERROR_HEADER: REASONS[name].value} if name in REASONS else {}
    return web.Response(status=status, text=text, headers={"X-Nomad-Index": "9", **reason})


@pytest.fixture(name="address")
async def running_address() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/v1/var/{name}", _answer)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def sent(address: str, name: str) -> Operation | None:
    clients = Clients([address], [KIND], seed=1)
    async with new_session() as session:
        return await clients.send(session, KIND, clients.plan(name, Delete(), client=0))


@pytest.mark.parametrize(("name", "expected"), [("fine", (200, 9)), ("conflict", (409, 9)), ("refused", (500, 9))])
async def test_an_answer_is_known(address: str, name: str, expected: tuple[int, int]) -> None:
    found = await sent(address, name)

    assert found is not None
    assert found.answer is not None
    assert (found.answer.status, found.answer.index) == expected
    assert found.returned is not None
    assert found.invoked < found.returned


async def test_a_refusal_with_a_body_shows_the_object(address: str) -> None:
    found = await sent(address, "conflict")

    assert found is not None
    assert isinstance(found.answer, Reply)
    assert found.answer.body.mark == "a"


@pytest.mark.parametrize("name", ["open", "ending", "lost"])
async def test_the_outcome_is_unknown(address: str, name: str) -> None:
    found = await sent(address, name)

    assert found is not None
    assert (found.answer, found.returned) == (None, None)


@pytest.mark.parametrize("name", ["leaderless", "busy", "crowded", "unread"])
async def test_what_was_not_carried_out_is_no_operation(address: str, name: str) -> None:
    assert await sent(address, name) is None


async def test_a_request_that_reached_nobody_is_no_operation() -> None:
    assert await sent(f"http://127.0.0.1:{quiet_port()}", "fine") is None


async def test_a_request_is_sent_once_though_its_connection_is_lost(address: str) -> None:
    counts: dict[str, Any] = {"asked": 0}
    traces = aiohttp.TraceConfig()

    async def count(*_: Any) -> None:
        counts["asked"] += 1

    traces.on_request_headers_sent.append(count)
    traces.freeze()
    clients = Clients([address], [KIND], seed=1)
    async with new_session(traces) as session:
        for name in ("fine", "lost"):
            await clients.send(session, KIND, clients.plan(name, Delete(), client=0))

    assert counts["asked"] == 2


class Marked(VariableKind):
    """Remembers the marks that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[str] = []
        self.chosen = asyncio.Event()

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        self.marks.append(mark)
        if len(self.marks) == BURSTS:
            self.chosen.set()
        return Delete()


async def test_marks_differ_though_nothing_is_answered_between_two_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.testing.histories.clients.BURST_LIMIT_S", 0.01)
    kind = Marked()

    async def answer_late(_: web.Request) -> web.Response:
        await kind.chosen.wait()
        return web.Response(status=404, text="variable not found")

    app = web.Application()
    app.router.add_route("*", "/v1/var/{name:.*}", answer_late)
    async with TestServer(app) as server:
        clients = Clients([str(server.make_url("")).rstrip("/")], [kind], seed=1, shape=LoadShape(1, 1, BURSTS))
        await clients.run(1)

    assert len(set(kind.marks)) == len(kind.marks) == BURSTS


@pytest.mark.parametrize(("awaited", "expected"), [(0, 1), (4, 4)])
async def test_lanes_go_on_until_what_is_awaited_has_happened(awaited: int, expected: int) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=404, text="variable not found")

    app = web.Application()
    app.router.add_route("*", "/v1/var/{name:.*}", answer)
    async with TestServer(app) as server:
        clients = Clients([str(server.make_url("")).rstrip("/")], [KIND], seed=1, shape=LoadShape(1, 1, 1))
        await clients.run(1, until=lambda: len(clients.recorded) >= awaited)

    assert len(clients.recorded) == expected
