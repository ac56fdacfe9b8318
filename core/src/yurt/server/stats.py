"""Figures of a server: for `/v1/agent/self` and for `/v1/metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yurt.server.server import Server


def server_stats(server: Server) -> dict[str, dict[str, str]]:
    """Figures by topic, as texts."""
    state = server.state
    term = server.term
    index = str(state.index)
    stats = {
        "nomad": {
            "server": "true",
            "leader": str(server.is_leader).lower(),
            "leader_addr": server.config.rpc_addr if server.is_leader else "",
            "bootstrap": "true",
            "known_regions": "1",
        },
        "raft": {
            "applied_index": index,
            "commit_index": index,
            "last_log_index": index,
            "num_peers": "0",
            "state": "Leader" if server.is_leader else "Follower",
        },
    }
    if term is not None:
        broker = term.queue.broker.stats()
        stats["broker"] = {name: str(count) for name, count in broker._asdict().items()}
        stats["broker"]["blocked"] = str(len(term.queue.blocked))
    return stats


def gauges(server: Server) -> dict[str, float]:
    """Figures of the moment, by Nomad's metric name without its prefix."""
    term = server.term
    found: dict[str, float] = {"state.index": float(server.state.index)}
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
