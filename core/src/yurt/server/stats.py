"""Figures of a server, for `/v1/metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yurt.server.server import Server


def gauges(server: Server) -> dict[str, float]:
    """Figures of the moment, by Nomad's metric name without its prefix."""
    term = server.term
    found: dict[str, float] = {
        "state.index": float(server.state.index),
        "server.is_leader": float(server.is_leader),
        "server.last_contact_ms": round(server.roles.last_contact_s * 1000.0, 1),
    }
    if term is None:
        return found
    broker = term.queue.broker.stats()
    found |= {
        "broker.total_ready": float(broker.ready),
        "broker.total_unacked": float(broker.outstanding),
        "broker.total_pending": float(broker.pending),
        "broker.total_waiting": float(broker.delayed),
        "broker.total_cancelable": float(broker.cancelable),
        "blocked_evals.total_blocked": float(len(term.queue.blocked)),
        "blocked_evals.total_escaped": float(term.queue.blocked.escaped),
        "plan.queue_depth": float(len(term.applier)),
        "heartbeat.active": float(len(term.heartbeats)),
    }
    return found
