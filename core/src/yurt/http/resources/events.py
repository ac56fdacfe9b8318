"""The event stream: one JSON line for each command that changed something the reader asked for.

The type of an event comes from the command, its topic from the declaration of the table that changed. A line `{}`
comes first and every 30 s. A reader that falls behind the buffer goes on with what is still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from aiohttp import web

from yurt.access import needs
from yurt.access.needs import Capability, VariableCapability
from yurt.api.encode import encode_builtins, to_wire
from yurt.api.stubs import node_wire
from yurt.http import routes
from yurt.http.call import Call
from yurt.http.errors import Refused
from yurt.http.routes import ROW
from yurt.server.resources.variables import metadata_of
from yurt.state import TABLES, Change
from yurt.structs.node import Node
from yurt.structs.variable import EncryptedVariable

HEARTBEAT_S = 30.0
TOPICS_MAX = 64
CHANGES_A_SLICE = 50
"""Rows that are made into events before others get the loop: a few milliseconds."""
_OF_NOMAD = (
    "Deployment", "Evaluation", "Allocation", "Job", "Node", "NodePool", "ACLPolicy", "ACLToken", "ACLRole",
    "ACLAuthMethod", "ACLBindingRule", "Service", "HostVolume", "CSIVolume", "CSIPlugin", "Operator", "Variable",
)  # fmt: skip
TOPICS = frozenset({"*", *_OF_NOMAD, *(table.topic.name for table in TABLES.values() if table.topic is not None)})
"""What readers may subscribe to: Nomad's topics, of which some have no events, and those of all tables."""
TYPE_OF_COMMAND = {
    "AddNodeEvents": "NodeStreamEvent",
    "ApplyPlan": "PlanResult",
    "BootstrapACL": "ACLTokenUpserted",
    "CollectACL": "ACLTokenDeleted",
    "CreateACLBindingRule": "ACLBindingRuleUpserted",
    "CreateACLRole": "ACLRoleUpserted",
    "CreateACLToken": "ACLTokenUpserted",
    "DeleteACLAuthMethods": "ACLAuthMethodDeleted",
    "DeleteACLBindingRules": "ACLBindingRuleDeleted",
    "DeleteACLPolicies": "ACLPolicyDeleted",
    "DeleteACLRoles": "ACLRoleDeleted",
    "DeleteACLTokens": "ACLTokenDeleted",
    "DeleteHostVolume": "HostVolumeDeleted",
    "DeleteJobs": "JobBatchDeregistered",
    "DeleteNodePools": "NodePoolDeleted",
    "DeleteNodes": "NodeDeregistration",
    "DeleteVariable": "VariableUpdated",
    "DeleteVolumes": "CSIVolumeDeregistered",
    "DeregisterServices": "ServiceDeregistration",
    "DeregisterJob": "JobDeregistered",
    "DispatchJob": "JobRegistered",
    "EvaluateJob": "EvaluationUpdated",
    "EvaluateNode": "EvaluationUpdated",
    "LaunchPeriodicJob": "JobRegistered",
    "LockVariable": "VariableUpdated",
    "PromoteDeployment": "DeploymentPromotion",
    "PutVariable": "VariableUpdated",
    "PutHostVolume": "HostVolumeRegistered",
    "RegisterJob": "JobRegistered",
    "RegisterNode": "NodeRegistration",
    "RegisterServices": "ServiceRegistration",
    "ReleaseVariableLock": "VariableUpdated",
    "ScaleJob": "JobRegistered",
    "SetDeploymentAllocHealth": "DeploymentAllocHealth",
    "SetDeploymentStatus": "DeploymentStatusUpdate",
    "SetDesiredTransitions": "AllocationUpdateDesiredStatus",
    "SetNodeDrain": "NodeDrain",
    "SetNodeEligibility": "NodeEligibility",
    "SetNodeStatus": "NodeStreamEvent",
    "UpdateACLBindingRule": "ACLBindingRuleUpserted",
    "UpdateACLRole": "ACLRoleUpserted",
    "UpdateACLToken": "ACLTokenUpserted",
    "UpdateAllocsFromClient": "AllocationUpdated",
    "UpsertACLAuthMethod": "ACLAuthMethodUpserted",
    "UpsertACLPolicies": "ACLPolicyUpserted",
    "UpsertEvaluations": "EvaluationUpdated",
    "UpsertNodePools": "NodePoolUpserted",
    "UpsertVolumes": "CSIVolumeRegistered",
}
_TELLS_DELETION = frozenset(
    {
        "ACLAuthMethodDeleted",
        "ACLBindingRuleDeleted",
        "ACLPolicyDeleted",
        "ACLRoleDeleted",
        "ACLTokenDeleted",
        "CSIVolumeDeregistered",
        "HostVolumeDeleted",
        "JobDeregistered",
        "JobBatchDeregistered",
        "NodeDeregistration",
        "NodePoolDeleted",
        "ServiceDeregistration",
        "VariableUpdated",
    }
)


class Wanted(NamedTuple):
    """What a reader asked for: (topic, key) pairs, and a namespace."""

    topics: tuple[tuple[str, str], ...]
    namespace: str

    def takes(self, event: dict[str, Any]) -> bool:
        """The reader asked for this event."""
        if self.namespace != "*" and event["Namespace"] not in ("", self.namespace):
            return False
        keys = ("*", event["Key"], *event["FilterKeys"])
        return any(topic in ("*", event["Topic"]) and key in keys for topic, key in self.topics)


def parse_topics(texts: list[str]) -> tuple[tuple[str, str], ...]:
    """`Topic:Key` texts as pairs; raises Refused (400)."""
    if len(texts) > TOPICS_MAX:
        raise Refused(400, f"Invalid topic query: at most {TOPICS_MAX} topics may be asked for")
    pairs = []
    for text in texts or ["*:*"]:
        topic, _, key = text.partition(":")
        if topic not in TOPICS:
            raise Refused(400, f"Invalid topic query: Invalid key value pair for topic, topic: {text[:64]}")
        pairs.append((topic, key or "*"))
    return tuple(pairs)


def events_of(index: int, changes: tuple[Change, ...], command: str) -> Iterator[dict[str, Any]]:
    """The events of one command: how the rows of a table are told says its topic (`yurt.state.tables`)."""
    kind = TYPE_OF_COMMAND.get(command)
    if kind is None:
        return
    for change in changes:
        table = TABLES[change.table]
        topic = table.topic
        if topic is None or (change.after is None and kind not in _TELLS_DELETION):
            continue
        row = change.after if change.after is not None else change.before
        yield {
            "FilterKeys": [key for key in topic.filter_keys(row) if key],
            "Index": index,
            "Key": topic.key(row),
            "Namespace": "" if table.namespace_of is None else table.namespace_of(change.key, row),
            "Payload": {
                **({"Deleted": change.after is None} if topic.has_deletion_flag else {}),
                topic.payload or topic.name: _written(topic.shown(row)),
            },
            "Topic": topic.name,
            "Type": kind,
        }


def _written(shown: object) -> Any:
    """What everybody may see of a row, as the API writes it; nodes and variables have a form of their own there."""
    if isinstance(shown, Node):
        return node_wire(shown)
    if isinstance(shown, EncryptedVariable):
        return to_wire(metadata_of(shown))
    return to_wire(shown)


async def stream(call: Call) -> web.StreamResponse:
    """GET /v1/event/stream."""
    wanted = Wanted(parse_topics(call.query.getall("topic", [])), call.options.namespace)
    call.read_state()
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(call.request)
    await response.write(b"{}\n")
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_beat(call, response), name="event stream heartbeat")
            await _send(call, response, wanted)
    except* ConnectionError:
        pass
    return response


async def _beat(call: Call, response: web.StreamResponse) -> None:
    while True:
        await call.context.env.sleep(HEARTBEAT_S)
        await response.write(b"{}\n")


async def _send(call: Call, response: web.StreamResponse, wanted: Wanted) -> None:
    looked_at = 0
    async for index, changes, command in call.server.events.subscribe(call.options.index):
        found: list[dict[str, Any]] = []
        for change in changes:
            if looked_at >= CHANGES_A_SLICE:
                await call.server.writer.turns.next()
                looked_at = 0
            looked_at += 1
            found.extend(event for event in events_of(index, (change,), command) if wanted.takes(event))
        if found:
            await response.write(encode_builtins({"Events": found, "Index": index}) + b"\n")


STREAM = needs.each_row(
    needs.any_of(
        needs.namespace(Capability.READ_JOB, Capability.HOST_VOLUME_READ, Capability.CSI_READ_VOLUME),
        needs.variable(VariableCapability.LIST),
        needs.NODE_READ,
        needs.OPERATOR_READ,
        needs.MANAGEMENT,
    )
)

BAD_INDEX = "Unable to parse index: it must be a number, 0 or more"

ROUTES = (routes.get("/v1/event/stream", stream, needs=STREAM, scope=ROW, from_nodes=True, index_error=BAD_INDEX),)
