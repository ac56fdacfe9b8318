"""What is counted and logged of requests and connections that strangers send: bounded, and never with a traceback."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from yurt.rpc.listener import Counts, NoCounts
from yurt.runtime.peer_lines import PeerLines

log = logging.getLogger(__name__)


class Strangers:
    """Counts each case, and writes at most one line per peer and minute."""

    def __init__(self, metrics: Counts | None = None) -> None:
        self.metrics = metrics or NoCounts()
        self._lines = PeerLines(log)

    def refuse_page(self, peer: str, why: str) -> None:
        """A page of another site asked, or one under another name."""
        self.metrics.count("http.refuse_browser")
        self._tell(peer, f"a request is refused: {why}")

    def refuse_request(self, peer: str, why: str) -> None:
        """What came is not HTTP, or has a body that cannot be read."""
        self.metrics.count("http.bad_request")
        self._tell(peer, f"a request is refused: {why}")

    def _tell(self, peer: str, text: str) -> None:
        self._lines.tell(peer, text, now_s=asyncio.get_running_loop().time())


STRANGERS: web.AppKey[Strangers] = web.AppKey("yurt_strangers", Strangers)
