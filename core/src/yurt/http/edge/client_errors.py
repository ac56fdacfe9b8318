"""Metrics and bounded log lines about malformed requests and refused connections, never with a traceback."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from yurt.rpc.listener import ConnectionCounters, NoConnectionCounters
from yurt.runtime.peer_lines import PeerLines

log = logging.getLogger(__name__)


class ClientErrorReporter:
    """Counts each case, and writes at most one line per peer and minute."""

    def __init__(self, metrics: ConnectionCounters | None = None) -> None:
        self.metrics = metrics or NoConnectionCounters()
        self._lines = PeerLines(log)

    def refuse_page(self, peer: str, why: str) -> None:
        """Count a refused request of a foreign site or for a foreign host name."""
        self.metrics.count("http.refuse_browser")
        self._report(peer, f"a request is refused: {why}")

    def refuse_request(self, peer: str, why: str) -> None:
        """Count a request that is not HTTP or whose body cannot be read."""
        self.metrics.count("http.bad_request")
        self._report(peer, f"a request is refused: {why}")

    def time_out(self, peer: str, why: str) -> None:
        """Count a request that was not sent to its end in time."""
        self.metrics.count("http.time_out")
        self._report(peer, f"a connection is closed: {why}")

    def evict(self, peer: str) -> None:
        """Count an idle connection that was closed in favour of another one from its address."""
        self.metrics.count("http.evict_conn")
        self._report(peer, "an unused connection gives its place to another one (limits.http_max_conns_per_client)")

    def refuse_connection(self, peer: str) -> None:
        """Count a connection that was refused because its address has too many."""
        self.metrics.count("http.refuse_conn")
        self.metrics.count("agent.http.exceeded")
        self._report(peer, "a connection is refused: too many of one address (limits.http_max_conns_per_client)")

    def _report(self, peer: str, text: str) -> None:
        self._lines.report(peer, text, now_s=asyncio.get_running_loop().time())


STRANGERS: web.AppKey[ClientErrorReporter] = web.AppKey("yurt_strangers", ClientErrorReporter)
