"""Nodes: lists, one of them, evaluate, drain, eligibility, purge."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from yurt.access import Scope
from yurt.api.row_texts import row_form
from yurt.api.stubs import AllocWriter, node_stub, node_wire
from yurt.http.answers import Whole, list_rows, one_row
from yurt.http.call import AUTHORITY, Call, json_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.lists import check_prefix, check_uuid
from yurt.http.query import flag
from yurt.sdk.value import Value, seconds
from yurt.server.results import NodeUpdated
from yurt.server.views import Listing, View
from yurt.server.views.cluster import NodeRows
from yurt.server.views.scheduling import AllocationRows
from yurt.structs.alloc import Allocation
from yurt.structs.node import DrainSpec, Node


class NodeDrainBody(Value):
    """PUT /v1/node/:id/drain."""

    node_id: str = ""
    drain_spec: DrainSpec | None = None
    mark_eligible: bool = False
    meta: dict[str, str] | None = None


class NodeEligibilityBody(Value):
    """PUT /v1/node/:id/eligibility."""

    node_id: str = ""
    eligibility: str = ""


class DeviceEligibilityBody(Value):
    """PUT /v1/yurt/node/:id/device: `device` is its `vendor/type/name/id`, or its id where that is unique.

    `mark_index` makes the change only while the device's mark (`DeviceMarks` of the node) has this index; 0: no mark.
    """

    device: str = ""
    eligibility: str = ""
    reason: str = ""
    mark_index: int | None = None


async def list_nodes(call: Call) -> web.Response:
    """GET /v1/nodes."""
    prefix = check_prefix(call.options.prefix, "node")
    return await list_some(call, lambda row: row.id.startswith(prefix))


async def list_some(call: Call, predicate: Callable[[Node], bool]) -> web.Response:
    """The nodes for which `predicate` returns true."""
    resources, os = flag(call.query, "resources"), flag(call.query, "os")

    return await list_rows(
        call, (NodeRows,), lambda view: view.of(NodeRows).all().where(predicate),
        render=row_form(node_stub, resources, os),
    )  # fmt: skip


async def read(call: Call) -> web.Response:
    """GET /v1/node/:id."""
    node_id = check_uuid(call.part("id"), "node")
    return await one_row(call, NodeRows, node_id, render=row_form(node_wire), missing="node not found")


async def allocations(call: Call) -> web.Response:
    """GET /v1/node/:id/allocations: whole allocations; none for a node that does not exist."""
    node_id, options = call.part("id"), call.options
    is_narrowed = "namespace" in call.query

    def listing(view: View) -> Listing[Allocation]:
        rows = view.of(AllocationRows).each_where("node", node_id)
        return rows.where((lambda row: options.sees(row.namespace)) if is_narrowed else None)

    return await list_rows(call, (AllocationRows,), listing, render=Whole(lambda _: AllocWriter()))


async def evaluate(call: Call) -> web.Response:
    """PUT /v1/node/:id/evaluate."""
    return _updated(call, await failed_call(call.operations.nodes.evaluate(_required_node(call))))


async def purge(call: Call) -> web.Response:
    """PUT /v1/node/:id/purge."""
    return _updated(call, await failed_call(call.operations.nodes.purge(_required_node(call))))


async def set_eligibility(call: Call) -> web.Response:
    """PUT /v1/node/:id/eligibility."""
    body = await call.body(NodeEligibilityBody)
    node_id = _required_node(call)
    _check_node_id(call, body.node_id)
    if body.eligibility not in ("eligible", "ineligible"):
        raise Refused(500, f'invalid scheduling eligibility "{body.eligibility[:64]}"')
    return _updated(call, await failed_call(call.operations.nodes.set_eligibility(node_id, body.eligibility)))


async def set_device_eligibility(call: Call) -> web.Response:
    """PUT /v1/yurt/node/:id/device."""
    body = await call.body(DeviceEligibilityBody)
    node_id = _required_node(call)
    if not body.device:
        raise Refused(400, "Device is missing: give its id, or vendor/type/name/id")
    if body.eligibility not in ("eligible", "ineligible"):
        raise Refused(400, f'Eligibility must be "eligible" or "ineligible", got "{body.eligibility[:64]}"')
    done = await call.operations.nodes.set_device_eligibility(
        node_id,
        body.device,
        is_eligible=body.eligibility == "eligible",
        reason=body.reason,
        mark_index=body.mark_index,
    )
    return _updated(call, done)


async def drain(call: Call) -> web.Response:
    """PUT /v1/node/:id/drain; the `enable` parameter is the oldest form of the request."""
    node_id = _required_node(call)
    call.access.require(Scope(node=node_id))
    if "enable" in call.query and not (await call.request.read()).strip():
        body = NodeDrainBody(drain_spec=DrainSpec() if flag(call.query, "enable") else None)
    else:
        body = await call.body(NodeDrainBody)
        _check_node_id(call, body.node_id)
    done = await failed_call(
        call.operations.nodes.drain(
            node_id,
            body.drain_spec,
            mark_eligible=body.mark_eligible,
            meta=body.meta,
            accessor_id=call.request.app[AUTHORITY].identify(call.actor).accessor_id,
        )
    )
    return _updated(call, done)


def _required_node(call: Call) -> str:
    node_id = check_uuid(call.part("id"), "node")
    if node_id not in call.view().of(NodeRows):
        raise Refused(500, "node not found")
    return node_id


def _check_node_id(call: Call, node_id: str) -> None:
    if node_id and node_id != call.part("id"):
        raise Refused(400, "Node ID does not match")


def _updated(call: Call, done: NodeUpdated) -> web.Response:
    """The servers' answer to a change of a node."""
    answer = {
        "EvalCreateIndex": done.eval_create_index,
        "EvalIDs": list(done.eval_ids) or None,
        "HeartbeatTTL": seconds(done.heartbeat_ttl_s),
        "Index": done.index,
        "NodeModifyIndex": done.node_modify_index or done.index,
    }
    return json_answer(call, answer, index=done.index)
