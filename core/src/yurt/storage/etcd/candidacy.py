"""Decides when a server tries to lead, from observations and the time. Pure.

A server tries only when it has applied every entry that the log held at its last read.
- Nobody leads: it tries immediately. If a successor was named, that server tries first; otherwise, where servers have
  etcd members of their own, the server whose member leads etcd.
- Its own etcd member leads, where appends are a round trip shorter: it tries immediately if no heartbeat of the leader
  came in the last 0.3 s; otherwise after its member has led etcd for 1 s, so that Yurt's leadership does not follow
  every flap of etcd's.
- The leader has been silent for 0.6 s plus a random part of up to half of that, so that not all servers try together.
  The try is abandoned if etcd holds a newer heartbeat of the leader. Where servers have etcd members of their own they
  wait 1 s plus the random part: when the leader's etcd died as well, etcd's own election comes first, and a try before
  its end fails.

Both times, and etcd's own, are multiplied by `time_factor` (the operator's raft_multiplier) for slow networks.
A try that etcd does not answer is given up after 0.5 s, the next ones later until a leader is heard, because etcd drops
requests that arrive while it has no leader. A short term makes the next try of the same server wait longer, up to 5 s.

Safety does not depend on this: of all servers that try, the epoch in etcd admits one, and only if no other was
admitted.
"""

from __future__ import annotations

from typing import Final, Literal

from yurt.sdk.value import Value

SILENCE_S: Final = 0.6
OWN_SILENCE_S: Final = 1.0
SILENCE_JITTER: Final = 0.5
HEARD_S: Final = 0.3
"""The seconds since its last heartbeat within which a leader counts as alive; it sends one every 0.2 s."""
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
    successor: str
    silent_s: float
    is_caught_up: bool
    own_leads: bool | None = None


class LeaderContact:
    """The times of the newest sign of life and of the last read of `lead/`."""

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.looked_at = float("-inf")
        self._revision = 0
        """The newest revision that was read or watched, of the keys below `lead/` and of the entries."""

    def hear(self, revision: int, now: float) -> bool:
        """Record a key or an entry with its revision; returns whether it is a sign of life.

        It is none if a newer one came before: the log's past, or the log's end when its last entry was read.
        """
        if revision <= self._revision:
            return False
        self._revision, self.heard_at = revision, now
        return True


class Candidacy:
    """The rules by which one server decides when to campaign."""

    def __init__(self, name: str, *, time_factor: float = 1) -> None:
        self.time_factor = time_factor
        self._name = name
        self._own_leads_since: float | None = None
        self._not_before = self._others_first_until = 0.0
        self._pause_s = PAUSE_FIRST_S
        self._jitter = 1.0
        self.limit_s = LIMIT_FIRST_S
        """The time limit for etcd's answer to a try, in seconds."""
        self._term_began = 0.0

    def decide(self, observed: LeaderObservation) -> Reason:
        """The reason to campaign now; "" for none."""
        if not observed.own_leads:
            self._own_leads_since = None
        elif self._own_leads_since is None:
            self._own_leads_since = observed.now
        if observed.silent_s <= HEARD_S:
            self.limit_s = LIMIT_FIRST_S
        if not observed.is_caught_up or observed.now < self._not_before:
            return ""
        silence_s = self.time_factor * self._jitter * (SILENCE_S if observed.own_leads is None else OWN_SILENCE_S)
        is_silent = observed.silent_s > silence_s
        if observed.now < self._others_first_until:
            return "silence" if is_silent and observed.leader not in ("", self._name) else ""
        if observed.leader in ("", self._name):
            goes_first = observed.own_leads is not False if not observed.successor else observed.successor == self._name
            return "vacant" if goes_first or observed.silent_s > silence_s / 2 else ""
        if self._own_leads_since is not None:
            has_settled = observed.now - self._own_leads_since >= SETTLED_S
            return "own member" if has_settled or observed.silent_s > HEARD_S else ""
        return "silence" if is_silent else ""

    def won(self, now: float, *, chance: float) -> None:
        """Record that the server has begun a term."""
        self._term_began = now
        self.limit_s = LIMIT_FIRST_S
        self._draw_jitter(chance)

    def beaten(self, now: float, *, chance: float) -> None:
        """Record that another server was faster, or that the leader is alive."""
        self.limit_s = LIMIT_FIRST_S
        self._draw_jitter(chance)

    def failed(self, now: float, *, chance: float) -> None:
        """Record that etcd did not answer."""
        self._not_before = now + FAILURE_PAUSE_S * (1 + chance)
        self.limit_s = min(self.limit_s * 2, LIMIT_MAX_S)
        self._draw_jitter(chance)

    def lost(self, now: float, *, chance: float) -> None:
        """Record that the term has ended."""
        if now - self._term_began >= STEADY_TERM_S:
            self._pause_s = PAUSE_FIRST_S
        self._not_before = now + self._pause_s * (1 + chance)
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)
        self._own_leads_since = None

    def resigned(self, now: float) -> None:
        """Record that the server resigned: it lets others campaign first for some seconds."""
        self._others_first_until = now + RESIGN_PAUSE_S

    def _draw_jitter(self, chance: float) -> None:
        self._jitter = 1 + SILENCE_JITTER * chance
