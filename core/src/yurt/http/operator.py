"""What operators change and run: scheduler configuration, raft view, garbage collection, signing keys."""

from __future__ import annotations

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.api.times import rfc3339
from yurt.http.call import Call, changed_state, empty_answer, json_answer, read_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.query import number
from yurt.http.routing import route
from yurt.sdk.errors import Conflict
from yurt.sdk.value import replace
from yurt.structs.cluster import SchedulerConfiguration

ALGORITHMS = ("binpack", "spread")


async def read_scheduler(call: Call) -> web.Response:
    """GET /v1/operator/scheduler/configuration."""
    state, index = await changed_state(
        call, [("scheduler_config",)], lambda s: max(s.scheduler_config.modify_index, s.table("scheduler_config").index)
    )
    answer = {"Index": index, "SchedulerConfig": to_wire(state.scheduler_config)}
    return read_answer(call, answer | {"KnownLeader": True, "LastContact": 0, "NextToken": ""}, index)


async def set_scheduler(call: Call) -> web.Response:
    """PUT /v1/operator/scheduler/configuration."""
    configuration = await call.body(SchedulerConfiguration)
    if configuration.scheduler_algorithm not in ALGORITHMS:
        raise Refused(
            400, f'invalid scheduler algorithm "{configuration.scheduler_algorithm[:64]}": use binpack or spread'
        )
    check_index = number(call.query, "cas")
    clean = replace(configuration, create_index=0, modify_index=0)
    try:
        index = await call.server.system.set_scheduler_config(clean, check_index=check_index)
    except Conflict:
        index = call.server.state.index
        return json_answer(call, {"Index": index, "Updated": False}, index=index)
    return json_answer(call, {"Index": index, "Updated": True}, index=index)


async def raft_configuration(call: Call) -> web.Response:
    """GET /v1/operator/raft/configuration: the one server there is."""
    agent = call.agent
    server = {
        "Address": agent.rpc_addr,
        "ID": agent.name,
        "Leader": call.server.is_leader,
        "Node": f"{agent.name}.{agent.region}",
        "RaftProtocol": "3",
        "Voter": True,
    }
    return json_answer(call, {"Index": 0, "Servers": [server]})


async def autopilot_configuration(call: Call) -> web.Response:
    """GET /v1/operator/autopilot/configuration: Nomad's defaults; with one server there is nothing to mind."""
    answer = {
        "CleanupDeadServers": True,
        "CreateIndex": 0,
        "DisableUpgradeMigration": False,
        "EnableCustomUpgrades": False,
        "EnableRedundancyZones": False,
        "LastContactThreshold": "200ms",
        "MaxTrailingLogs": 250,
        "MinQuorum": 0,
        "ModifyIndex": 0,
        "ServerStabilizationTime": "10s",
    }
    return json_answer(call, answer)


async def autopilot_health(call: Call) -> web.Response:
    """GET /v1/operator/autopilot/health: of the one server; 429 when it does not lead."""
    agent, server = call.agent, call.server
    index = server.state.index
    row = {
        "Address": agent.rpc_addr,
        "Healthy": server.is_leader,
        "ID": agent.name,
        "LastContact": "0s",
        "LastIndex": index,
        "LastTerm": 1,
        "Leader": server.is_leader,
        "Name": f"{agent.name}.{agent.region}",
        "SerfStatus": "alive",
        "StableSince": rfc3339(server.leader_since),
        "Version": agent.version,
        "Voter": True,
    }
    answer = {
        "FailureTolerance": 0,
        "Healthy": server.is_leader,
        "Leader": agent.name if server.is_leader else "",
        "OptimisticFailureTolerance": 0,
        "ReadReplicas": None,
        "RedundancyZones": None,
        "Servers": [row],
        "Upgrade": None,
        "Voters": [agent.name],
    }
    return json_answer(call, answer, status=200 if server.is_leader else 429)


async def collect(call: Call) -> web.Response:
    """PUT /v1/system/gc."""
    await failed_call(call.server.system.collect_garbage())
    return empty_answer(index=call.server.state.index)


async def reconcile(call: Call) -> web.Response:
    """PUT /v1/system/reconcile/summaries: summaries are kept exact with every change, so nothing is left to do."""
    return empty_answer(index=call.read_state().index)


ROUTES = (
    route("/v1/operator/scheduler/configuration", get=read_scheduler, write=set_scheduler),
    route("/v1/operator/raft/configuration", get=raft_configuration),
    route("/v1/operator/autopilot/configuration", get=autopilot_configuration),
    route("/v1/operator/autopilot/health", get=autopilot_health),
    route("/v1/system/gc", put=collect),
    route("/v1/system/reconcile/summaries", put=reconcile),
)
