"""Status of a server: the leader as far as known, the state's index, and metrics.

It holds no row of the state: rows are seen through a view that is bound to the caller (`yurt.server.views`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from yurt.server.leadership.roles import Roles
from yurt.server.leadership.term import Term
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.replica import Replica
from yurt.server.log.state_loader import StateLoader
from yurt.server.metrics import Metrics, Timing

if TYPE_CHECKING:
    from yurt.queue.accuracy import Forecast, Summary


class ServerFacts:
    """The status of one server, computed on demand."""

    __slots__ = ("_leader", "_loader", "_metrics", "_replica", "_roles", "_started_at")

    def __init__(
        self, replica: Replica, leader: CurrentLeader, *, roles: Roles, loader: StateLoader, metrics: Metrics
    ) -> None:
        self._replica = replica
        self._leader = leader
        self._roles = roles
        self._loader = loader
        self._metrics = metrics
        self._started_at = replica.env.now()

    @property
    def is_leader(self) -> bool:
        """Whether this server leads and its duties run."""
        return self._leader.is_local

    @property
    def leader_name(self) -> str:
        """The leader's name as far as known; "" for none."""
        return self._leader.name

    @property
    def last_contact_s(self) -> float:
        """How long ago the leader was heard of; 0 on the leader."""
        return self._leader.last_contact_s

    @property
    def term_number(self) -> int:
        """The number of the leader's term as far as known; 0: none yet."""
        return self._leader.known.epoch

    @property
    def index(self) -> int:
        """The index of the newest state."""
        return self._replica.state.index

    @property
    def is_restored(self) -> bool:
        """Whether the state was restored from the log."""
        return self._loader.is_restored

    @property
    def started_at(self) -> int:
        """The start time of this server, unix ns."""
        return self._started_at

    @property
    def outstanding_evals(self) -> int:
        """Evaluations dequeued from this server's broker and not acknowledged; 0 for a follower."""
        term = self._roles.term
        return 0 if term is None else term.queue.broker.stats().outstanding

    def queue_accuracy(self, pool: str) -> Summary | None:
        """How good the forecasts of a pool's queue were; None for a follower, and before the first start."""
        forecasts = None if self._roles.term is None else self._roles.term.queue.pools.forecasts
        return None if forecasts is None else forecasts.summary(pool)

    def corrected(self, pool: str, forecast: Forecast) -> Forecast:
        """A forecast, corrected by what became of earlier ones; as it is for a follower."""
        forecasts = None if self._roles.term is None else self._roles.term.queue.pools.forecasts
        return forecast if forecasts is None else forecasts.corrected(pool, forecast)

    def gauges(self) -> dict[str, float]:
        """Present gauges, by Nomad's metric name without its prefix."""
        found: dict[str, float] = {
            "state.index": float(self.index),
            "server.is_leader": float(self.is_leader),
            "server.last_contact_ms": round(self._leader.last_contact_s * 1000.0, 1),
        }
        return found if self._roles.term is None else found | _term_gauges(self._roles.term)

    def counters(self) -> tuple[tuple[str, int], ...]:
        """Counters since the start, by name."""
        return tuple(sorted(self._metrics.counters.items()))

    def timings(self) -> tuple[tuple[str, Timing], ...]:
        """Copies of the timings since the start, by name."""
        found = sorted(self._metrics.timings.items())
        return tuple((name, dataclasses.replace(timing)) for name, timing in found)


def _term_gauges(term: Term) -> dict[str, float]:
    """Metrics of the leader's parts."""
    broker, blocked = term.queue.broker.stats(), term.queue.blocked
    return {
        "broker.total_ready": float(broker.ready),
        "broker.total_unacked": float(broker.outstanding),
        "broker.total_pending": float(broker.pending),
        "broker.total_waiting": float(broker.delayed),
        "broker.total_cancelable": float(broker.cancelable),
        "blocked_evals.total_blocked": float(len(blocked)),
        "blocked_evals.total_escaped": float(blocked.escaped),
        "plan.queue_depth": float(len(term.applier)),
        "queue.waiting": float(0 if term.queue.pools.gate is None else len(term.queue.pools.gate)),
        "queue.in_flight": float(0 if term.queue.pools.gate is None else term.queue.pools.gate.in_flight),
        "heartbeat.active": float(len(term.heartbeats)),
    }
