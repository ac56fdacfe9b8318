"""Whole answers of plain reads, sent again until a table that they show has changed.

A handler declares that its answer follows from the request, the caller's rights and the rows of some tables
(`yurt.http.call.shows_only`). For an equal request by a caller with the same rights the bytes are then the same, but
for `Date`, as long as the tables are the same objects; an answer refers to them weakly, so it keeps no old state alive.

What can change otherwise is looked at for each request: whether this server leads, which the headers tell, and with
access control the decision about the caller. That one must be of this connection, its secret, the route and the
namespace, and still hold (`dispatcher.recalled_decision`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from aiohttp import hdrs
from aiohttp.helpers import rfc822_formatted_time

from yurt.access.authority import ALLOW_ALL
from yurt.http.answer_cache import AnswerCache, AnswerKey
from yurt.http.call import Context
from yurt.http.dispatcher import recalled_decision
from yurt.http.edge.protocol import ApiProtocol
from yurt.http.plain_reads.target import Target
from yurt.server.backends import HttpBackend

KEPT_BYTES_MAX: Final = 4 * 1024 * 1024
EVERYBODY: Final = "everybody"
"""The rights of every caller where access control is off."""
DATE: Final = f"\r\n{hdrs.DATE}: ".encode()


class KeptAnswers:
    """The kept answers of an application; the least recently used ones are dropped beyond a number of bytes."""

    def __init__(self, context: Context, server: HttpBackend) -> None:
        self._context = context
        self._is_open = server.authority is ALLOW_ALL
        self._leader = server.leader
        self._contents = server.contents
        self._answers = AnswerCache(KEPT_BYTES_MAX)

    def find(self, connection: ApiProtocol, secret: str, target: Target, *, accepts_gzip: bool) -> bytes:
        """The whole answer to a request; b"" where it has to be made. `secret` is what the request shows."""
        if target.shown is None or not self._leader.is_local:
            return b""
        rights = self._rights(connection, secret, target)
        if rights is None:
            return b""
        found = self._answers.find(_key(target, rights, accepts_gzip=accepts_gzip), self._contents(target.shown))
        if found is None:
            return b""
        before, behind = found.pieces
        return b"%b%b%b" % (before, rfc822_formatted_time().encode(), behind)

    def keep(
        self, connection: ApiProtocol, secret: str, target: Target, head: bytes, body: bytes, *, accepts_gzip: bool
    ) -> None:
        """Keep the answer that was made for such a request in this turn of the event loop."""
        if target.shown is None or not self._leader.is_local:
            return
        rights = self._rights(connection, secret, target)
        before, sep, behind = head.partition(DATE)
        date = rfc822_formatted_time().encode()
        # An operator's own header may stand in the place of the date, or the second may have passed meanwhile.
        if rights is None or not behind.startswith(date):
            return
        pieces = (before + sep, behind.removeprefix(date) + body)
        key = _key(target, rights, accepts_gzip=accepts_gzip)
        self._answers.keep(key, self._contents(target.shown), pieces, 0, "")

    def __len__(self) -> int:
        return len(self._answers)

    def _rights(self, connection: ApiProtocol, secret: str, target: Target) -> Hashable | None:
        """What the caller may see, as a key; None where that has to be found out."""
        if self._is_open:
            return EVERYBODY
        last = connection.last_secret
        if last is None:
            return None
        route, options = target.read
        decision = recalled_decision(route, last, secret, self._context, options.namespace)
        return None if decision is None else decision.standing


def _key(target: Target, rights: Hashable, *, accepts_gzip: bool) -> AnswerKey:
    return AnswerKey(target.path, (accepts_gzip, rights))
