"""Decides whether this server or the leader answers a request.

A route declares who answers it (`routes.AnsweredBy`). A request about this agent, or about a client's node, is answered
where it arrives, and so is a read that may be stale.
Streams (events, the watch, logs of a job) are answered by any server, once its state is as new as the leader's.
Everything else is the leader's: there a read waits until the log has confirmed that the server leads still, and so does
the refusal of a write. While nobody leads, a request is held for a moment; then it fails with Nomad's words. A request
that was passed on by a server is answered or refused, never passed on again: two servers that believe each other to
lead cannot toss it about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from aiohttp import web

from yurt.http.dispatcher import endpoint_of
from yurt.http.errors import NotLed, Refused
from yurt.http.forwarding_headers import BY_SERVER, FORWARDED
from yurt.http.query import is_stale
from yurt.http.routes import BY_STATE, AnsweredBy
from yurt.rpc.peer import ConnectionLost
from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied, Reason, Unavailable, YurtError
from yurt.server.failures import NO_LEADER, LeaderMoved, is_no_leader, log_broken, no_leader

if TYPE_CHECKING:
    from yurt.http.api_port import ApiPort
    from yurt.server.backends import HttpBackend

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]

HOLD_S: Final = 5.0
"""How long a request waits for a leader."""
LOOK_S: Final = 0.1
"""The interval after which a leader that refused is tried again."""
LAST_WORD_S: Final = 1.0
"""How long a deposed leader may take to report the outcome of a change."""
MAYBE: Final = "the server that led does not answer any more: the change may or may not have been made"
PASSED_ON_MAX: Final = 1_000
"""Requests that may be on their way to the leader at once; calls of clients share the connection."""
READS: Final = ("GET", "HEAD")
REFUSALS: Final = (Refused, NotFound, Conflict, Invalid, PermissionDenied)
"""The errors of a write that was not carried out."""


class ServerApis(Protocol):
    """The HTTP APIs of the other servers."""

    def api(self, name: str) -> ApiPort:
        """That of one server; raises ConnectionLost while it cannot be reached."""
        ...


class LeaderForwarding:
    """Finds the place where a request is answered, on an agent with a server."""

    def __init__(self, server: HttpBackend, others: ServerApis | None) -> None:
        self._server = server
        self._others = others
        self._slots = asyncio.Semaphore(PASSED_ON_MAX)

    async def answer(self, request: web.Request, handle: Handle, begun: Callable[[], bool]) -> web.StreamResponse:
        """Answer here, or as the leader does; `begun` says whether an answer is already on its way to the caller."""
        if is_answered_here(request):
            return await handle(request)
        leader, loop = self._server.leader, asyncio.get_running_loop()
        end_s = loop.time() + HOLD_S
        while True:
            seen = leader.report_count
            try:
                return await self._try(request, handle, begun)
            except NotLed:
                left_s = end_s - loop.time()
                if begun() or left_s <= 0 or is_from_server(request):
                    raise
            await leader.wait_change(seen, min(left_s, LOOK_S) if leader.name else left_s)

    async def _has_newest_state(self, request: web.Request) -> bool:
        """Whether this server follows and may answer the request: its state is as new as the leader's was just now.

        A stream that began so goes on when another server leads. False where the leader does not tell its index.

        Raises NotLed while no server is confirmed to lead.
        """
        endpoint = endpoint_of(request)
        if endpoint is None or endpoint.answered_by is not AnsweredBy.SERVER:
            return False
        leader, slot = self._server.leader, self._free_slot()
        try:
            async with leader.while_led_by(leader.name), self._server.replica.env.timeout(HOLD_S), slot:
                index = await leader.peer().confirmed_index()
        except (Unavailable, LeaderMoved):
            raise NotLed(NO_LEADER) from None
        except (YurtError, TimeoutError):
            return False
        return await self._server.replica.waiter.wait_index(index, timeout_s=HOLD_S)

    async def _try(self, request: web.Request, handle: Handle, begun: Callable[[], bool]) -> web.StreamResponse:
        if self._server.leader.is_local:
            return await (self._read(request, handle) if request.method in READS else self._write(request, handle))
        if broken := self._server.replica.writer.broken:
            raise log_broken(broken)
        if await self._has_newest_state(request):
            return await handle(request)
        name = self._server.leader.name
        if not name or name == self._server.config.name or self._others is None or is_from_server(request):
            raise NotLed(NO_LEADER)
        is_read = request.method in READS
        grace_s = 0.0 if is_read else LAST_WORD_S
        try:
            async with self._server.leader.while_led_by(name, lambda: not begun(), grace_s=grace_s):
                return await self.pass_on(request, name)
        except LeaderMoved:
            raise (NotLed(NO_LEADER) if is_read else Unavailable(MAYBE, reason=Reason.OUTCOME_UNKNOWN)) from None

    async def _read(self, request: web.Request, handle: Handle) -> web.StreamResponse:
        try:
            await self._server.leader.confirm()
            return await handle(request)
        except Unavailable as error:
            if is_no_leader(error):
                raise NotLed(NO_LEADER) from None
            raise

    async def _write(self, request: web.Request, handle: Handle) -> web.StreamResponse:
        """Carry out a write; only a server that certainly leads reports a refusal.

        What refuses may have read the state before `apply` would, and a server that was cut off or frozen may hold an
        old one. It led all the time when the log confirms the term in which it read: then that state was the newest.
        """
        terms = self._server.leader.terms
        try:
            response = await handle(request)
        except REFUSALS:
            await self._confirm_refusal(request, terms)
            raise
        if response.status >= 400:
            await self._confirm_refusal(request, terms)
        return response

    async def _confirm_refusal(self, request: web.Request, terms: int) -> None:
        """Raises NotLed where the present leader can carry the request out again, else Unavailable."""
        from yurt.http.forwarding.forward import is_kept

        try:
            await self._server.leader.confirm()
        except Unavailable:
            confirmed = False
        else:
            confirmed = self._server.leader.terms == terms
        if not confirmed:
            raise (NotLed(NO_LEADER) if is_kept(request) else no_leader())

    def other(self, request: web.Request, requested: str) -> str:
        """The server that a `server_id` names: by its name, with the region or without, or `leader`.

        "" for this one; raises Refused (500) for one that is not known.
        """
        own = self._server.config.name
        if not requested or is_from_server(request):
            return ""
        if requested == "leader":
            name = self._server.leader.name
            if not name:
                raise no_leader()
        else:
            known = (own, *self._server.leader.peers.names)
            name = next((each for each in known if requested in (each, each.rpartition(".")[0])), "")
            if not name:
                raise Refused(500, f"unknown Nomad server {requested[:128]}")
        return "" if name == own else name

    def _free_slot(self) -> asyncio.Semaphore:
        """The slot of one more request on its way to the leader; raises Refused (429) when all are taken."""
        if self._slots.locked():
            raise Refused(429, "Too many requests wait for the leader already: try again later, or ask it directly")
        return self._slots

    async def pass_on(self, request: web.Request, name: str) -> web.StreamResponse:
        """Answer as another server does; raises Unavailable."""
        from yurt.http.forwarding.forward import forward, is_kept

        if self._others is None:
            raise Unavailable(f"No path to server {name}")
        slot = self._free_slot()
        try:
            api = self._others.api(name)
        except ConnectionLost:
            raise NotLed(NO_LEADER) from None
        async with slot:
            try:
                return await forward(request, api, by=BY_SERVER)
            except NotLed:
                raise (NotLed(NO_LEADER) if is_kept(request) else no_leader()) from None
            except ConnectionLost:
                if request.method in READS:
                    raise NotLed(NO_LEADER) from None
                raise Unavailable(MAYBE, reason=Reason.OUTCOME_UNKNOWN) from None


def is_answered_here(request: web.Request) -> bool:
    """Whether the server that received the request answers it, regardless of the leader."""
    endpoint = endpoint_of(request)
    if endpoint is None or endpoint.answered_by not in BY_STATE:
        return True
    return request.method in READS and is_stale(request.query)


def is_from_server(request: web.Request) -> bool:
    """A server that does not lead has passed the request on."""
    return request.headers.get(FORWARDED) == BY_SERVER


LEADER_FORWARDING: web.AppKey[LeaderForwarding] = web.AppKey("yurt_places", LeaderForwarding)
