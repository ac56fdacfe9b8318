"""Rate-limits log lines about foreign peers: one line a minute for each peer, and a bounded number of peers."""

from __future__ import annotations

import ipaddress
import logging
from collections import Counter

LINE_INTERVAL_S = 60.0
"""The time in which a peer gets one line; its suppressed lines are counted, and the next line gives their number."""
PEERS_MAX = 100
"""The largest number of peers with a line in that time, so that many addresses cannot fill the log either."""
TEXT_MAX = 300
IPV6_SITE_BITS = 64
"""The prefix length of the IPv6 subnet that counts as one peer: a host can use every address of its subnet."""


class PeerLines:
    """Writes the first line of a peer in each interval and counts the others."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._reported_s: dict[str, float] = {}
        """The time of each peer's last line in seconds, oldest first."""
        self._suppressed: Counter[str] = Counter()
        """The number of lines of each peer that were suppressed since."""

    def report(self, address: str, text: str, *, now_s: float) -> None:
        """Write a line, or count it. `text` may hold text that the peer sent."""
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
    """The peer of an address: an IPv4 address, an IPv6 subnet, or the text itself for any other."""
    host = address.rpartition(":")[0] if address.count(":") == 1 or "]" in address else address
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return one_line(address)
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.ip_network((found, IPV6_SITE_BITS), strict=False))


def one_line(text: str) -> str:
    """Untrusted text for the log or an answer: on one line, printable, and cut at `TEXT_MAX` characters."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[:TEXT_MAX])
    return shown if len(text) <= TEXT_MAX else f"{shown}..."
