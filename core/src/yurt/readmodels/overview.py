"""The overview of a cluster: numbers by status, capacity by node pool, and problems that need attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import Any, Final, NamedTuple

from yurt.readmodels import job_status, node_facts
from yurt.readmodels.job_facts import JobFacts
from yurt.readmodels.node_facts import NodeFacts
from yurt.structs.member import FAILED, Member
from yurt.structs.status import NODE_DISCONNECTED, NODE_DOWN

ATTENTION_MAX: Final = 20
RECENT_MAX: Final = 10
ENDING_S: Final = 30 * 86_400
"""A certificate that ends within this time is a problem."""
JUDGED_EACH_S: Final = 3600
"""How often an open page judges certificates again while nothing changes."""
NAMED_NODES_MAX: Final = 3
"""Nodes of one status that are named for their certificates; of more, which often end together, one line tells."""
FULL_PERCENT: Final = 95
"""From this part of its disk on, booked, a node is called full."""
_URGENT: Final = {
    job_status.FAILED: 0, job_status.FAILING: 1, NODE_DOWN: 2, NODE_DISCONNECTED: 2, node_facts.UNHEALTHY: 3,
    job_status.DEGRADED: 4, job_status.WAITING: 5, "expired": 2, "expiring": 7,
}  # fmt: skip
_PROMOTION, _FULL, _CARDS = 6, 7, 3
_SUMS: Final = {
    "CPU": "cpu", "CPUUsed": "cpu_used", "MemoryMB": "memory_mb", "MemoryUsedMB": "memory_used_mb",
    "DiskMB": "disk_mb", "DiskUsedMB": "disk_used_mb", "Cards": "cards", "CardsUsed": "cards_used",
    "VRAMMB": "vram_mb", "VRAMUsedMB": "vram_used_mb",
}  # fmt: skip
_COUNTS: Final = {
    "Running": "running", "Starting": "starting", "Waiting": "waiting", "Failed": "failed", "Lost": "lost",
    "Unknown": "unknown",
}  # fmt: skip

_CERTIFICATES: Final = {"authority": "the authority's certificate", "nodes": "the first of the agents' certificates"}

Wire = dict[str, Any]


def jobs_part(jobs: Iterable[JobFacts]) -> Wire:
    """The overview's part on jobs."""
    listed = list(jobs)
    active = [job for job in listed if not job.is_stopped]
    return {
        "Jobs": {
            "Total": len(listed),
            "Statuses": dict(Counter(map(attrgetter("status"), listed))),
            "Types": dict(Counter(map(attrgetter("type"), listed))),
            "Namespaces": dict(Counter(map(attrgetter("namespace"), listed))),
        },
        "Allocations": {name: sum(map(attrgetter(field), active)) for name, field in _COUNTS.items()},
        "Recent": [
            {
                "Namespace": job.namespace, "ID": job.id, "Status": job.status, "Version": job.version,
                "SubmitTime": job.submit_time,
            }
            for job in nlargest(RECENT_MAX, listed, key=attrgetter("submit_time", "namespace", "id"))
        ],
    }  # fmt: skip


def nodes_part(nodes: Iterable[NodeFacts]) -> Wire:
    """The overview's part on nodes."""
    listed = list(nodes)
    pools: dict[str, list[NodeFacts]] = {}
    for node in listed:
        pools.setdefault(node.pool, []).append(node)
    return {
        "Nodes": {"Total": len(listed), "Statuses": dict(Counter(map(attrgetter("status"), listed)))},
        "Pools": [_pool(name, pools[name]) for name in sorted(pools)],
    }


def _pool(name: str, nodes: list[NodeFacts]) -> Wire:
    """The capacity of the nodes that are not down, and the amounts booked on them."""
    up = [node for node in nodes if node.node_status != NODE_DOWN]
    sums = {wire: sum(map(attrgetter(field), up)) for wire, field in _SUMS.items()}
    return {
        "Name": name, "Nodes": len(nodes), "Ready": sum(node.status == node_facts.READY for node in nodes), **sums,
    }  # fmt: skip


class Agents(NamedTuple):
    """The servers, and the time by which certificates are judged."""

    now_s: int = 0
    servers: tuple[Member, ...] = ()

    @property
    def version(self) -> tuple[object, ...]:
        """Differs when the servers' problems may have changed: no row of the state changes with them."""
        facts = attrgetter("name", "status", "certificate_ends", "authority_ends")
        return self.now_s // JUDGED_EACH_S, *map(facts, self.servers)


def attention(jobs: Iterable[JobFacts], nodes: Sequence[NodeFacts], agents: Agents) -> Wire:
    """The most urgent problems, and how many more there are."""
    found: list[tuple[int, Wire]] = []
    for job in jobs:
        if job.status in _URGENT or job.needs_promotion:
            found.append((_URGENT.get(job.status, _PROMOTION), _job_wire(job)))
    for node in nodes:
        found += [(rank, _node_wire(node, reason)) for rank, reason in _problems(node)]
    found += [(_URGENT[FAILED], _failed_server(each)) for each in agents.servers if each.status == FAILED]
    found += _ending_certificates(nodes, agents)
    first = nsmallest(ATTENTION_MAX, found, key=lambda each: (each[0], -each[1]["Since"], each[1]["ID"]))
    return {"Attention": [wire for _, wire in first], "AttentionOmitted": len(found) - len(first)}


def _job_wire(job: JobFacts) -> Wire:
    return {
        "Kind": "job", "Namespace": job.namespace, "ID": job.id, "Name": job.name, "Status": job.status,
        "Reason": job.reason, "Since": job.waiting_since or job.submit_time,
    }  # fmt: skip


def _problems(node: NodeFacts) -> Iterable[tuple[int, str]]:
    if node.status in _URGENT:
        drivers = f": {', '.join(node.unhealthy_drivers)}" if node.unhealthy_drivers else ""
        text = f"no driver is healthy{drivers}" if node.status == node_facts.UNHEALTHY else node.last_event
        yield _URGENT[node.status], text
        return
    if node.unhealthy_cards:
        yield _CARDS, f"{node.unhealthy_cards} of {node.cards} devices are unhealthy"
    if node.disk_mb and node.disk_used_mb * 100 >= node.disk_mb * FULL_PERCENT:
        yield _FULL, f"{node.disk_used_mb} of {node.disk_mb} MiB of disk are booked"


def _ending_certificates(nodes: Iterable[NodeFacts], agents: Agents) -> Iterable[tuple[int, Wire]]:
    """Certificates that end soon or have ended: of each agent, and of the authority once for all of them."""
    authorities: list[int] = []
    ending: dict[bool, list[NodeFacts]] = {}
    limit = agents.now_s + ENDING_S
    for node in nodes:
        if node.node_status == NODE_DOWN:
            continue  # Its attributes are old, and it is a problem already.
        if 0 < node.certificate_ends < limit:
            ending.setdefault(node.certificate_ends <= agents.now_s, []).append(node)
        if 0 < node.authority_ends < limit:
            authorities.append(node.authority_ends)
    for together in ending.values():
        if len(together) > NAMED_NODES_MAX:
            first_s = min(map(attrgetter("certificate_ends"), together))
            yield _certificate("nodes", "", f"of {len(together)} nodes", first_s, agents.now_s)
            continue
        for node in together:
            yield _certificate("node", node.id, node.name, node.certificate_ends, agents.now_s)
    for server in agents.servers:
        if server.status == FAILED:
            continue  # As with nodes that are down: it is a problem already.
        if 0 < server.certificate_ends < limit:
            yield _certificate("server", server.name, server.name, server.certificate_ends, agents.now_s)
        if 0 < server.authority_ends < limit:
            authorities.append(server.authority_ends)
    if authorities:
        yield _certificate("authority", "", f"of {len(authorities)} agents", min(authorities), agents.now_s)


def _failed_server(server: Member) -> Wire:
    return {
        "Kind": "server", "Namespace": "", "ID": server.name, "Name": server.name, "Status": FAILED,
        "Reason": "the other servers do not hear from it", "Since": 0,
    }  # fmt: skip


def _certificate(kind: str, id: str, name: str, ends_s: int, now_s: int) -> tuple[int, Wire]:
    status, verb = ("expired", "ended") if ends_s <= now_s else ("expiring", "ends")
    of = _CERTIFICATES.get(kind, "the agent's certificate")
    day = datetime.fromtimestamp(ends_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return _URGENT[status], {
        "Kind": kind, "Namespace": "", "ID": id, "Name": name, "Status": status, "Reason": f"{of} {verb} {day}",
        "Since": ends_s * 1_000_000_000,
    }  # fmt: skip


def _node_wire(node: NodeFacts, reason: str) -> Wire:
    return {
        "Kind": "node", "Namespace": "", "ID": node.id, "Name": node.name, "Status": node.status, "Reason": reason,
        "Since": node.status_updated_at * 1_000_000_000,
    }  # fmt: skip
