"""Decides when a server tries to lead, from observations and the time. Pure.

A server tries only when it has the whole state: all that the log held a moment ago.
- Nobody leads: at once. A named heir goes first; with members of their own, so does the server whose etcd member leads.
- Its own etcd member leads: appends are a round trip shorter there. At once when the leader has not been heard of just
  now; else only when etcd's leadership has stayed for a second, so that Yurt's does not follow every flap.
- The leader has been silent for 0.6 s, and up to half of that by chance more, so that not all try together. Such a try
  is void when a sign of life stands in etcd by then. With members of their own servers wait for 1 s and by chance more:
  when the leader's etcd died as well, etcd's own election comes first, and whoever tries before its end tries in vain.
Both times, and etcd's own, are multiplied by the operator's patience (raft_multiplier): a slow network is no failure.
A try that etcd does not answer is given up after half a second, the next ones later: etcd forgets what it was asked
while it had no leader.
A term that ends soon makes the next try of the same server wait longer, up to some seconds. Nothing here is about
safety: whoever tries, the epoch in etcd lets one of them through, and only while nobody else did.
"""

from __future__ import annotations

from typing import Final, Literal

from yurt.sdk.value import Value

SILENCE_S: Final = 0.6
OWN_SILENCE_S: Final = 1.0
SILENCE_JITTER: Final = 0.5
HEARD_S: Final = 0.3
"""A leader heard within this time counts as alive; it sends every 0.2 s."""
SETTLED_S: Final = 1.0
STEADY_TERM_S: Final = 10.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.2, 5.0
FAILURE_PAUSE_S: Final = 0.1
LIMIT_FIRST_S, LIMIT_MAX_S = 0.5, 4.0
RESIGN_PAUSE_S: Final = 3.0

Reason = Literal["", "vacant", "own member", "silence"]


class LeaderObservation(Value, rename=None):
    """The leader as a server sees it. `own_leads`: None without a local member; `silent_s` since the last heartbeat."""

    now: float
    leader: str
    heir: str
    silent_s: float
    is_caught_up: bool
    own_leads: bool | None = None


class Candidacy:
    """One server's candidacy."""

    def __init__(self, name: str, *, patience: float = 1) -> None:
        self.patience = patience
        self._name = name
        self._own_leads_since: float | None = None
        self._not_before = self._others_first_until = 0.0
        self._pause_s = PAUSE_FIRST_S
        self._jitter = 1.0
        self.limit_s = LIMIT_FIRST_S
        """How long etcd may take to answer a try."""
        self._term_began = 0.0

    def decide(self, observed: LeaderObservation) -> Reason:
        """The reason to campaign now; empty for none."""
        if not observed.own_leads:
            self._own_leads_since = None
        elif self._own_leads_since is None:
            self._own_leads_since = observed.now
        if not observed.is_caught_up or observed.now < self._not_before:
            return ""
        silence_s = self.patience * self._jitter * (SILENCE_S if observed.own_leads is None else OWN_SILENCE_S)
        is_silent = observed.silent_s > silence_s
        if observed.now < self._others_first_until:
            return "silence" if is_silent and observed.leader not in ("", self._name) else ""
        if observed.leader in ("", self._name):
            goes_first = observed.own_leads is not False if not observed.heir else observed.heir == self._name
            return "vacant" if goes_first or observed.silent_s > silence_s / 2 else ""
        if self._own_leads_since is not None:
            has_settled = observed.now - self._own_leads_since >= SETTLED_S
            return "own member" if has_settled or observed.silent_s > HEARD_S else ""
        return "silence" if is_silent else ""

    def won(self, now: float, *, chance: float) -> None:
        """The server has begun a term."""
        self._term_began = now
        self.limit_s = LIMIT_FIRST_S
        self._draw(chance)

    def beaten(self, now: float, *, chance: float) -> None:
        """Another server was faster, or the leader is still alive."""
        self.limit_s = LIMIT_FIRST_S
        self._draw(chance)

    def failed(self, now: float, *, chance: float) -> None:
        """etcd did not answer."""
        self._not_before = now + FAILURE_PAUSE_S * (1 + chance)
        self.limit_s = min(self.limit_s * 2, LIMIT_MAX_S)
        self._draw(chance)

    def lost(self, now: float, *, chance: float) -> None:
        """The term has ended."""
        if now - self._term_began >= STEADY_TERM_S:
            self._pause_s = PAUSE_FIRST_S
        self._not_before = now + self._pause_s * (1 + chance)
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)
        self._own_leads_since = None

    def resigned(self, now: float) -> None:
        """The server resigned: it yields to others for a while."""
        self._others_first_until = now + RESIGN_PAUSE_S

    def _draw(self, chance: float) -> None:
        self._jitter = 1 + SILENCE_JITTER * chance
