"""The access matrix: the outcome of every route for every caller, measured on a real server with access control.

Three outcomes are distinguished. *Allowed*: the request was carried out, or failed for another reason than rights.
*Hidden*: the caller may ask, and is answered as if the object did not exist (404, or a list without it). *Refused*:
everything else, by 403.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, cast

from aiohttp import WSServerHandshakeError

from yurt.access.needs import describe
from yurt.http.route_table import ROUTES
from yurt.http.routes import Route
from yurt.sdk.errors import ERROR_HEADER, Reason, reason_of
from yurt.server.ports import NodePort
from yurt.testing.access.callers import Callers, bootstrapped
from yurt.testing.access.dispatch import Answered, dispatch
from yurt.testing.access.probes import Probe, probes_of
from yurt.testing.access.world import ANY_CLAIM, CommandNode, World, make_world
from yurt.testing.http_api import NODE_ID

EMPTY: Final = frozenset(("", "[]", "null", "{}", '{"Count":0}'))
NEVER_EMPTY: Final = ("/v1/acl/policy/self",)
"""Answers that are empty also for those who may see everything."""
LONG_TEXT: Final = 1_000
UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
"""An id in a text, which differs for an object that does not exist."""
UNNAMED: Final[Mapping[str, str]] = defaultdict(str)
"""No ids: the names of rows do not depend on them."""
ALL_BUT: Final = "all but"
BOTH_WAYS: Final = ("no token", "management")
STREAMS: Final = ("/v1/event/stream", "/v1/agent/monitor", "/v1/yurt/watch")
"""Answers that do not end."""


class Outcome(StrEnum):
    """The outcome of one request for one caller: allowed, refused or hidden."""

    ALLOWED = "allowed"
    HIDDEN = "hidden"
    REFUSED = "refused"


LISTED: Final = (Outcome.ALLOWED, Outcome.HIDDEN)
"""Outcomes whose callers are named; to the rest the request is refused."""


class Matrix:
    """Sends each probe as each caller, through the application and, where that may differ, over a connection.

    Streams and websockets are asked over a connection, and for each row the callers of `BOTH_WAYS` are asked in both
    ways: where the outcomes differ the measurement fails.
    """

    def __init__(self, callers: Callers, world: World) -> None:
        self._callers = callers
        self._world = world

    async def row(self, probe: Probe) -> dict[str, list[str]]:
        """The callers for whom the request is allowed, and those for whom the object is hidden."""
        unknown = probe if probe.hidden is None else replace(probe, path=probe.hidden[0], body=probe.hidden[1])
        hidden = None if probe.hidden is None else await self._ask(unknown, "management")
        found: dict[str, list[str]] = {Outcome.ALLOWED: [], Outcome.HIDDEN: []}
        for caller in self._world.headers:
            outcome = outcome_of(probe, await self._ask(probe, caller), hidden)
            if caller in BOTH_WAYS:
                again = outcome_of(probe, await self._ask_connected(probe, caller), hidden)
                assert again is outcome, f"{probe.name} as {caller}: {outcome}, and over a connection {again}"
            if outcome is not Outcome.REFUSED:
                found[outcome].append(caller)
        return found

    async def _ask(self, probe: Probe, caller: str) -> Answered:
        if probe.is_websocket:
            return await self._open_websocket(probe, caller)
        if _is_endless(probe):
            return await self._ask_connected(probe, caller)
        app = self._callers.api.client.app
        found = await dispatch(app, probe.method, self._present(probe.path), self._headers(caller), probe.body)
        return _compared(found.status, found.text)

    def _headers(self, caller: str) -> dict[str, str]:
        return {**self._world.headers[caller], "Content-Type": "application/json"}

    async def _open_websocket(self, probe: Probe, caller: str) -> Answered:
        """The answer over a websocket: 101 with the command's output once the command has run, else the refusal."""
        client, nodes = self._callers.api.client, self._callers.api.server.clients.node_ports
        node = cast(NodePort, CommandNode())
        nodes.attach(NODE_ID, node)
        try:
            async with client.ws_connect(probe.path, headers=self._world.headers[caller]) as peer:
                if (code := peer._response.headers.get(ERROR_HEADER)) is not None:
                    last = await peer.receive()
                    return _compared((reason_of(code) or Reason.FAILED).status, str(last.extra))
                said = [message.data async for message in peer]
                assert len(said) == 1, (
                    f"{probe.name} as {caller}: the command said {said}, closed with {peer.close_code}"
                )
                return Answered(HTTPStatus.SWITCHING_PROTOCOLS, said[0])
        except WSServerHandshakeError as error:  # a session without Origin gets no websocket
            return Answered(error.status, error.message)
        finally:
            nodes.detach(NODE_ID, node)

    async def _ask_connected(self, probe: Probe, caller: str) -> Answered:
        if probe.is_websocket:
            return await self._open_websocket(probe, caller)
        client, headers = self._callers.api.client, self._headers(caller)
        async with client.request(
            probe.method, self._present(probe.path), data=probe.body, headers=headers, allow_redirects=False
        ) as answer:
            is_endless = answer.status == 200 and answer.url.path in STREAMS
            return _compared(answer.status, "" if is_endless else await answer.text(errors="replace"))

    def _present(self, path: str) -> str:
        """The path with the id of a claim that no caller has deleted yet."""
        if ANY_CLAIM not in path:
            return path
        return path.replace(ANY_CLAIM, next(iter(self._callers.api.server.state.host_volume_claims.keys())))


def _compared(status: int, text: str) -> Answered:
    """The answer with ids replaced by one text: ids in answers about a missing object differ."""
    return Answered(status, text if len(text) > LONG_TEXT else UUID.sub("an id", text))


def outcome_of(probe: Probe, answer: Answered, hidden: Answered | None) -> Outcome:
    """What an answer means; `hidden` is the answer about an object that does not exist."""
    if answer.status == 403:
        return Outcome.REFUSED
    if hidden is not None and (answer.status, answer.text) == (hidden.status, hidden.text):
        return Outcome.HIDDEN
    if answer.status == 404 and probe.marker:
        return Outcome.HIDDEN
    if answer.status == 200 and not _is_endless(probe) and not _shows(probe, answer.text):
        return Outcome.HIDDEN
    return Outcome.ALLOWED


def _is_endless(probe: Probe) -> bool:
    return probe.path.partition("?")[0] in STREAMS


def _shows(probe: Probe, text: str) -> bool:
    """Whether an answer shows the requested object."""
    if probe.marker:
        return probe.marker in text
    is_list = probe.method == "GET" and not probe.path.startswith(NEVER_EMPTY)
    return not is_list or text.strip() not in EMPTY


async def measure(routes: tuple[Route, ...] = ROUTES, *, selected: Iterable[str] | None = None) -> dict[str, Any]:
    """Measure the matrix on a new server: the callers, and one row for each probe."""
    async with bootstrapped() as callers:
        world = await make_world(callers)
        matrix = Matrix(callers, world)
        probes = probes_of(routes, world.ids)
        names = set(selected) if selected is not None else {probe.name for probe in probes}
        needed = _declared(routes)
        rows = {}
        for probe in probes:
            if probe.name in names:
                rows[probe.name] = {"needs": needed[_plain(probe.name)], **await matrix.row(probe)}
        return {"callers": list(world.headers), "rows": rows}


def outdated_rows(matrix: Mapping[str, Any], routes: tuple[Route, ...] = ROUTES) -> list[str]:
    """Rows that are missing, have no route, or were measured when the route declared another need."""
    rows, declared = matrix["rows"], _declared(routes)
    names = set(names_of_rows(routes))
    changed = {name for name in names & set(rows) if rows[name]["needs"] != declared[_plain(name)]}
    return sorted((names ^ set(rows)) | changed)


def _declared(routes: tuple[Route, ...]) -> dict[str, str]:
    """The declared needs as text, by method and path."""
    return {f"{method} {route.path}": describe(route.needs) for route in routes for method in route.methods}


def names_of_rows(routes: tuple[Route, ...] = ROUTES) -> tuple[str, ...]:
    """The names of the rows that a complete matrix has."""
    return tuple(probe.name for probe in probes_of(routes, UNNAMED))


def _plain(name: str) -> str:
    """The route of a row's name, without the variant."""
    return name.partition(" (")[0]


def text_of(matrix: Mapping[str, Any]) -> str:
    """The matrix as a file: a line for each row, sorted, so that a change is one line of a diff."""
    callers = matrix["callers"]
    lines = []
    for name, row in sorted(matrix["rows"].items()):
        short = row | {outcome: _packed(row[outcome], callers) for outcome in LISTED}
        lines.append(f"{json.dumps(name)}: {json.dumps(short)}")
    return f'{{"callers": {json.dumps(matrix["callers"])},\n"rows": {{\n' + ",\n".join(lines) + "\n}}\n"


def read_matrix(text: str) -> dict[str, Any]:
    """Read a matrix from the text of `text_of`, with every `ALL_BUT` list expanded."""
    matrix: dict[str, Any] = json.loads(text)
    callers = matrix["callers"]
    for row in matrix["rows"].values():
        for outcome in LISTED:
            first, *others = row[outcome] or [""]
            if first == ALL_BUT:
                row[outcome] = [caller for caller in callers if caller not in others]
    return matrix


def _packed(named: list[str], callers: list[str]) -> list[str]:
    """The shorter of two lists: the callers, or `ALL_BUT` and the callers that are missing."""
    if len(named) * 2 <= len(callers):
        return named
    return [ALL_BUT, *(caller for caller in callers if caller not in named)]
