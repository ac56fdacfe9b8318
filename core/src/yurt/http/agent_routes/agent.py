"""Routes about the agent: configuration, members, health, schedulers."""

from __future__ import annotations

import os
import platform
import threading
from contextlib import suppress
from typing import Any

from aiohttp import web

from yurt import NOMAD_VERSION
from yurt.api.encode import encode_builtins
from yurt.api.times import rfc3339
from yurt.http.call import RELOAD, Call, empty_answer, json_answer
from yurt.http.cluster import leader_address
from yurt.http.errors import Refused, failed_call
from yurt.sdk.errors import Invalid, NotFound, YurtError
from yurt.sdk.value import Value
from yurt.server.views.cluster import NodeRows
from yurt.structs import status
from yurt.structs.member import FAILED, LEFT, Member

ADDRESSES_MAX = 64
"""Addresses that one request may join."""


def member_row(member: Member) -> dict[str, Any]:
    """A server as a member of the cluster."""
    host, port = _parts(member.address)
    rpc_host, rpc_port = _parts(member.rpc_addr)
    tags = {
        "build": NOMAD_VERSION,
        "dc": member.datacenter,
        "http_addr": member.http_addr,
        "port": str(rpc_port),
        "raft_vsn": "3",
        "region": member.region,
        "role": "nomad",
        "rpc_addr": rpc_host,
        "vsn": "1",
        "yurt": member.version,
    }
    if member.rules:
        tags["rules"] = str(member.rules)
    if member.expect:
        tags["expect"] = str(member.expect)
    if member.certificate_ends:
        tags |= {"certificate_ends": str(member.certificate_ends), "authority_ends": str(member.authority_ends)}
    if member.expect == 1:
        tags["bootstrap"] = "1"
    return {
        "Addr": host,
        "DelegateCur": 4,
        "DelegateMax": 5,
        "DelegateMin": 2,
        "Name": member.name,
        "Port": port,
        "ProtocolCur": 2,
        "ProtocolMax": 5,
        "ProtocolMin": 1,
        "Status": member.status,
        "Tags": tags,
    }


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0


async def self(call: Call) -> web.Response:
    """GET /v1/agent/self."""
    answer = {
        "config": dict(call.agent.config),
        "member": member_row(_own(call)) if call.has_server else {},
        "stats": await _stats(call),
    }
    return json_answer(call, answer)


def _own(call: Call) -> Member:
    name = f"{call.agent.name}.{call.agent.region}"
    return next(each for each in call.cluster.members() if each.name == name)


async def _stats(call: Call) -> dict[str, dict[str, str]]:
    stats: dict[str, dict[str, str]] = {"nomad": {"server": str(call.has_server).lower()}}
    if call.has_server:
        server = call.server_facts
        members = call.cluster.members()
        stats["nomad"] |= {
            "leader": str(server.is_leader).lower(),
            "leader_addr": leader_address(call.cluster, call.server_facts, call.agent),
            "bootstrap": str(_own(call).expect == 1).lower(),
            "cluster_id": server.cluster_id,
            "known_regions": str(len({each.region for each in members})),
        }
        stats["raft"] = {
            "applied_index": str(server.index),
            "commit_index": str(server.index),
            "fsm_pending": "0",
            "last_contact": f"{round(server.last_contact_s * 1000)}ms",
            "last_log_index": str(server.index),
            "last_log_term": str(server.term_number),
            "num_peers": str(max(sum(each.region == call.agent.region for each in members) - 1, 0)),
            "term": str(server.term_number),
            "state": "Leader" if server.is_leader else "Follower",
        }
        stats["serf"] = {
            "failed": str(sum(each.status == FAILED for each in members)),
            "left": str(sum(each.status == LEFT for each in members)),
            "members": str(len(members)),
        }
    if call.client is not None:
        stats["client"] = call.client.facts()
    stats["runtime"] = {
        "arch": platform.machine(),
        "cpu_count": str(os.cpu_count() or 1),
        "kernel.name": platform.system().lower(),
        "max_procs": str(os.cpu_count() or 1),
        "threads": str(threading.active_count()),
        "version": f"python {platform.python_version()}",
        "yurt": call.agent.version,
    }
    return stats


async def members(call: Call) -> web.Response:
    """GET /v1/agent/members."""
    call.need_server()
    agent = call.agent
    answer = {
        "Members": [member_row(each) for each in call.cluster.shown_members()],
        "ServerDC": agent.datacenter,
        "ServerName": agent.name,
        "ServerRegion": agent.region,
    }
    return json_answer(call, answer)


async def health(call: Call) -> web.Response:
    """GET /v1/agent/health: 500 with the same JSON when a requested part is unhealthy."""
    roles = call.query.getall("type", ["client", "server"])
    answer: dict[str, Any] = {}
    if "client" in roles:
        answer["client"] = _client_health(call)
    if "server" in roles:
        answer["server"] = _server_health(call)
    if "type" not in call.query:
        answer = {
            part: part_answer for part, part_answer in answer.items() if part_answer["message"] not in _NOT_ENABLED
        }
    if all(part["ok"] for part in answer.values()):
        return json_answer(call, answer)
    return web.Response(status=500, body=encode_builtins(answer), content_type="text/plain", charset="utf-8")


_NOT_ENABLED = ("client not enabled", "server not enabled")


def _client_health(call: Call) -> dict[str, Any]:
    client = call.client
    if client is None:
        return {"message": "client not enabled", "ok": False}
    if not (_is_stored_as_ready(call, client.node_id) if call.has_server else client.is_ready):
        return {"message": "no known servers", "ok": False}
    return {"message": "ok", "ok": True}


def _is_stored_as_ready(call: Call, node_id: str) -> bool:
    """Whether the server in this agent has stored the node as ready."""
    node = call.known_view().of(NodeRows).get(node_id)
    return node is not None and node.status == status.NODE_READY


def _server_health(call: Call) -> dict[str, Any]:
    if not call.has_server:
        return {"message": "server not enabled", "ok": False}
    return {"message": "ok", "ok": True} if call.server_facts.leader_name else {"message": "no leader", "ok": False}


async def servers(call: Call) -> web.Response:
    """GET /v1/agent/servers: the servers known to this client; PUT replaces them."""
    if call.client is None:
        raise Refused(501, "Invalid method")
    if call.request.method == "GET":
        return json_answer(call, list(call.client.servers) or [call.agent.rpc_addr])
    addresses = tuple(call.query.getall("address", []))
    if not addresses:
        raise Refused(400, "missing server address")
    if call.has_server:
        raise Refused(400, "this agent's client belongs to the server in the same agent and goes to no other one")
    call.client.set_servers(addresses[:ADDRESSES_MAX])
    return web.Response()


async def join(call: Call) -> web.Response:
    """PUT /v1/agent/join: join the servers at the given addresses."""
    if not call.has_server:
        raise Refused(501, "Invalid method")
    addresses = tuple(call.query.getall("address", []))
    if not addresses:
        raise Refused(400, "missing address to join")
    joined = await call.cluster.join(addresses[:ADDRESSES_MAX])
    error = ""
    if joined.problems:
        error = "\n".join([f"{len(joined.problems)} error(s) occurred:", *(f"* {each}" for each in joined.problems)])
    return json_answer(call, {"error": error, "num_joined": joined.count, "warning": ""})


async def force_leave(call: Call) -> web.Response:
    """PUT /v1/agent/force-leave: force a server out; a live one is only shown as leaving; `prune` removes its record.

    An unknown name is not an error, as in Nomad, so that the request can be repeated.
    """
    if not call.has_server:
        raise Refused(501, "Invalid method")
    name = call.query.get("node", "")
    if not name:
        raise Refused(400, "missing node to force leave")

    async def leave() -> None:
        with suppress(NotFound):
            await call.cluster.force_leave(name, forget="prune" in call.query)

    await failed_call(leave())
    return empty_answer()


class SchedulersBody(Value, rename=None):
    """PUT /v1/agent/schedulers/config; omitted fields stay unchanged."""

    num_schedulers: int | None = None
    enabled_schedulers: tuple[str, ...] | None = None


async def schedulers(call: Call) -> web.Response:
    """GET /v1/agent/schedulers."""
    _need_scheduling(call)
    server = call.server_facts
    count, enabled = call.operations.system.workers
    busy = server.outstanding_evals
    rows = [
        {
            "enabled_schedulers": list(enabled),
            "id": f"{call.agent.name}-{number}",
            "started": rfc3339(server.started_at),
            "status": "Running" if server.is_leader else "Paused",
            "workload_status": "Scheduling" if number < busy else "WaitingToDequeue",
        }
        for number in range(count)
    ]
    return json_answer(call, {"schedulers": rows, "server_id": call.agent.name})


async def read_schedulers(call: Call) -> web.Response:
    """GET /v1/agent/schedulers/config."""
    _need_scheduling(call)
    return _scheduler_config(call)


async def change_schedulers(call: Call) -> web.Response:
    """PUT /v1/agent/schedulers/config: applies until this agent ends, as in Nomad; it is not stored.

    Clients of Nomad compare the text of a refusal, which names no reason; a header does.
    """
    _need_scheduling(call)
    body = await call.body(SchedulersBody)
    count, enabled = call.operations.system.workers
    try:
        call.operations.system.set_workers(
            count if body.num_schedulers is None else body.num_schedulers,
            enabled if body.enabled_schedulers is None else body.enabled_schedulers,
        )
    except Invalid as error:
        return web.Response(status=400, text="Invalid request", headers={"X-Yurt-Problem": str(error)})
    return _scheduler_config(call)


def _scheduler_config(call: Call) -> web.Response:
    count, enabled = call.operations.system.workers
    answer = {"enabled_schedulers": list(enabled), "num_schedulers": count, "server_id": call.agent.name}
    return json_answer(call, answer)


def _need_scheduling(call: Call) -> None:
    if not call.has_server:
        raise Refused(400, "Server only endpoint")


async def reload(call: Call) -> web.Response:
    """PUT /v1/agent/reload."""
    again = call.request.app.get(RELOAD)
    if again is None:
        raise Refused(500, "this agent was started without a configuration file, so there is nothing to read again")
    try:
        again()
    except YurtError as error:
        raise Refused(500, f"the configuration stays as it was: {error}") from None
    return empty_answer()
