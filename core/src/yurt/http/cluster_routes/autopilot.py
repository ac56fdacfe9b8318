"""Autopilot: its configuration, and the health of the servers."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from yurt import NOMAD_VERSION
from yurt.api.decode import decode_value
from yurt.api.encode import to_wire
from yurt.api.times import rfc3339
from yurt.http.call import Call, json_answer
from yurt.http.cluster import ServerView
from yurt.http.cluster_routes.raft import is_leader
from yurt.http.errors import Refused
from yurt.http.query import number
from yurt.sdk.errors import ERROR_HEADER, Reason, Unavailable
from yurt.sdk.value import NANOSECONDS, duration_text, replace
from yurt.server.views.operator import AutopilotConfigurationRows
from yurt.structs.cluster import AutopilotConfiguration
from yurt.structs.member import ALIVE

DURATIONS = ("LastContactThreshold", "ServerStabilizationTime")
ENTERPRISE = ("enable_redundancy_zones", "enable_custom_upgrades")


async def read_configuration(call: Call) -> web.Response:
    """GET /v1/operator/autopilot/configuration; durations are texts, as nowhere else."""
    config = to_wire(call.view().of(AutopilotConfigurationRows).current)
    return json_answer(call, config | {name: duration_text(config[name]) for name in DURATIONS})


async def set_configuration(call: Call) -> web.Response:
    """PUT /v1/operator/autopilot/configuration; with `cas`, false when it changed meanwhile."""
    # `call.body` would read null as the defaults, and these would replace the configuration.
    requested, _ = decode_value(await call.document(), AutopilotConfiguration, name="AutopilotConfiguration")
    _check(requested)
    config = replace(requested, create_index=0, modify_index=0)
    check_index = number(call.query, "cas")
    done = await call.operations.system.set_autopilot_config(config, check_index=check_index)
    return json_answer(call, done.is_updated, index=done.index)


def _check(config: AutopilotConfiguration) -> None:
    if any(getattr(config, name) for name in ENTERPRISE):
        raise Refused(400, "redundancy zones and custom upgrades are features of Nomad Enterprise")
    if min(config.max_trailing_logs, config.min_quorum, *_times(config)) < 0:
        raise Refused(400, "numbers and durations of the autopilot configuration must not be negative")


def _times(config: AutopilotConfiguration) -> tuple[int, int]:
    return config.last_contact_threshold, config.server_stabilization_time


async def health(call: Call) -> web.Response:
    """GET /v1/operator/autopilot/health: of all servers of the region; 429 when one is not well."""
    try:
        peers = {peer.name: peer for peer in await call.cluster.log_peers()}
    except Unavailable:
        peers = {}
    config, rows = call.known_view().of(AutopilotConfigurationRows).current, []
    for view in call.cluster.views():
        peer = peers.get(view.member.name)
        is_voter = peer is not None and peer.is_voter
        row = _row(call, view, config) | {"ID": peer.id if peer else view.member.name, "Voter": is_voter}
        rows.append(row | {"Leader": peer is not None and is_leader(call, peer)})
    voters = [row for row in rows if row["Voter"]]
    healthy = sum(row["Healthy"] for row in voters)
    needed = sum(peer.is_voter for peer in peers.values())
    is_healthy = bool(voters) and healthy == len(voters) == needed and bool(call.server_facts.leader_name)
    answer = {
        "FailureTolerance": max(0, healthy - needed // 2 - 1),
        "Healthy": is_healthy,
        "Leader": next((row["ID"] for row in rows if row["Leader"]), ""),
        "OptimisticFailureTolerance": 0,
        "ReadReplicas": None,
        "RedundancyZones": None,
        "Servers": rows,
        "Upgrade": None,
        "Voters": [row["ID"] for row in voters],
    }
    response = json_answer(call, answer, status=200 if is_healthy else Reason.UNHEALTHY.status)
    if not is_healthy:
        response.headers[ERROR_HEADER] = Reason.UNHEALTHY
    return response


def _row(call: Call, view: ServerView, config: AutopilotConfiguration) -> dict[str, Any]:
    member, server = view.member, call.server_facts
    is_own = member.rpc_addr == call.agent.rpc_addr
    overdue_ns = round(view.overdue_s * NANOSECONDS)
    is_well = (
        member.status == ALIVE
        and overdue_ns <= config.last_contact_threshold
        and view.trailing <= config.max_trailing_logs
    )
    return {
        "Address": member.rpc_addr,
        "Healthy": server.leader_name != "" and server.is_restored if is_own else is_well,
        "LastContact": duration_text(overdue_ns),
        "LastIndex": server.index if is_own else view.index,
        "LastTerm": server.term_number,
        "Name": member.name,
        "SerfStatus": member.status,
        "StableSince": rfc3339(call.context.env.now() - round(view.stable_s * NANOSECONDS)),
        "Version": NOMAD_VERSION,
    }
