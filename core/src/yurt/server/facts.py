"""What a server tells callers of itself: who leads as far as it knows, how far its state is, and its figures.

It holds no row of the state: rows are seen through a view that is bound to the caller (`yurt.server.views`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from yurt.server.metrics import Timing
from yurt.server.stats import gauges

if TYPE_CHECKING:
    from yurt.server.server import Server


class ServerFacts:
    """Facts of one server, each read when it is asked for."""

    __slots__ = ("_server",)

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def is_leader(self) -> bool:
        """This server leads, and its duties run."""
        return self._server.is_leader

    @property
    def leader_name(self) -> str:
        """The name of the server that leads, as far as this one knows; "" for none."""
        return self._server.leader_name

    @property
    def term_number(self) -> int:
        """The number of the leader's term, as far as this server knows; 0: none yet."""
        return self._server.roles.epoch

    @property
    def index(self) -> int:
        """The index of the newest state."""
        return self._server.state.index

    @property
    def is_restored(self) -> bool:
        """The state is what the log says, and no longer empty because nothing was read yet."""
        return self._server.is_restored

    @property
    def started_at(self) -> int:
        """When this server was made, unix ns."""
        return self._server.started_at

    @property
    def outstanding_evals(self) -> int:
        """Evaluations that workers have taken from this server's broker and not answered; 0 while it follows."""
        term = self._server.term
        return 0 if term is None else term.queue.broker.stats().outstanding

    def gauges(self) -> dict[str, float]:
        """Figures of the moment, by Nomad's metric name without its prefix."""
        return gauges(self._server)

    def counters(self) -> tuple[tuple[str, int], ...]:
        """What was counted since the start, by name."""
        return tuple(sorted(self._server.metrics.counters.items()))

    def timings(self) -> tuple[tuple[str, Timing], ...]:
        """Copies of the times that were taken since the start, by name."""
        found = sorted(self._server.metrics.timings.items())
        return tuple((name, dataclasses.replace(timing)) for name, timing in found)
