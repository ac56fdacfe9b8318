"""The target of plain reads: what follows from their request line."""

from __future__ import annotations

import msgspec
from aiohttp import web
from yarl import URL

from yurt.http.dispatcher import Read


class Target(msgspec.Struct, frozen=True):
    """The request line of a plain read, and what follows from it."""

    path: str
    """With the query, as it was sent."""
    url: URL
    match: web.UrlMappingMatchInfo
    """The route of aiohttp's router and the parameters in the path."""
    read: Read
    needs_leader: bool
    shown: tuple[str, ...] | None
    """The tables from which its answer follows (`yurt.http.call.shows_only`); None: it follows from more."""
