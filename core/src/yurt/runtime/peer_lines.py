"""Log lines about what strangers send: at most one per peer and minute, whatever they do and however many they are."""

from __future__ import annotations

import ipaddress
import logging
from collections import Counter

LINE_INTERVAL_S = 60.0
"""A peer gets one line in this time; what else it does is counted and told in its next line."""
PEERS_MAX = 100
"""Peers with a line in that time; further ones get none, so that many addresses cannot fill the log either."""
TEXT_MAX = 300
IPV6_SITE_BITS = 64
"""Who has one address of IPv6 has all of its subnet."""


class PeerLines:
    """Decides which lines are written."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._reported_s: dict[str, float] = {}
        """By peer, oldest first: when its last line was written."""
        self._suppressed: Counter[str] = Counter()
        """By peer: the number of lines suppressed since."""

    def report(self, address: str, text: str, *, now_s: float) -> None:
        """Write a line, or count it. `text` may hold what the peer sent."""
        peer = peer_of(address)
        if now_s - self._reported_s.get(peer, -LINE_INTERVAL_S) < LINE_INTERVAL_S:
            self._suppressed[peer] += 1
            return
        self._reported_s.pop(peer, None)
        while len(self._reported_s) >= PEERS_MAX:
            oldest = next(iter(self._reported_s))
            if now_s - self._reported_s[oldest] < LINE_INTERVAL_S:
                return
            del self._reported_s[oldest]
            self._suppressed.pop(oldest, None)
        self._reported_s[peer] = now_s
        self._log.warning(
            "connection problem: peer=%s suppressed=%d problem=%s", peer, self._suppressed.pop(peer, 0), one_line(text)
        )


def peer_of(address: str) -> str:
    """What counts as one peer: an address of IPv4, a subnet of IPv6, or the text itself."""
    host = address.rpartition(":")[0] if address.count(":") == 1 or "]" in address else address
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return one_line(address)
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.ip_network((found, IPV6_SITE_BITS), strict=False))


def one_line(text: str) -> str:
    """A text of a stranger for the log or an answer: on one line, printable, and not long."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[:TEXT_MAX])
    return shown if len(text) <= TEXT_MAX else f"{shown}..."
