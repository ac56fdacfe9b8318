"""Finds the job in a request's path, and the client node that answers the request.

The node is the one of an allocation, the one named by `node_id`, or the agent's own. `server_id` names a server
instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from yurt.access import Scope
from yurt.http.call import Call, loaded_view
from yurt.http.errors import Refused
from yurt.http.forwarding.at_leader import LEADER_FORWARDING
from yurt.http.lists import check_uuid
from yurt.sdk.errors import NotFound, Reason, Unavailable
from yurt.server.views.cluster import NodeRows
from yurt.server.views.scheduling import AllocationRows

if TYPE_CHECKING:
    from yurt.server.ports import NodePort


def job_key(call: Call) -> tuple[str, str]:
    """(namespace, id) of the job in the path."""
    return (call.options.namespace, call.part("job_id"))


class AllocTarget(msgspec.Struct, frozen=True):
    """An allocation and the node that runs it."""

    alloc_id: str
    node: NodePort
    scope: Scope
    """The namespace and pool of the allocation."""


def node_of_alloc(call: Call, alloc_id: str) -> tuple[str, NodePort]:
    """The allocation's id and the node that runs it; raises as `find_alloc` does."""
    found = find_alloc(call, alloc_id)
    return found.alloc_id, found.node


def find_alloc(call: Call, alloc_id: str) -> AllocTarget:
    """An allocation that the caller may do this with, for as long as that is so.

    Raises Refused (404) when it is unknown or its node is not connected, and NoServer on an agent without a server
    that cannot tell.
    """
    alloc_id = check_uuid(alloc_id, "alloc")
    unknown = Refused(404, f'Unknown allocation "{alloc_id}"', reason=Reason.UNKNOWN_ALLOCATION)
    if call.client is not None and (namespace := call.client.alloc_namespace(alloc_id)) is not None:
        # The client knows where its allocations lie, also those that the servers have forgotten.
        scope = Scope(namespace=namespace)
        if not call.access.allows(scope):
            call.need_server()
            raise unknown
        node: NodePort = call.client.calls
    else:
        alloc = loaded_view(call).of(AllocationRows).get(alloc_id)
        if alloc is None:
            raise unknown
        scope, node = Scope(namespace=alloc.namespace), _connected(call, alloc.node_id)
    call.lease.also_needs(scope)
    return AllocTarget(alloc_id, node, scope)


def node_of_query(call: Call) -> NodePort:
    """The node named by `node_id`, or the agent's own client."""
    return node_of_id(call, call.query.get("node_id", ""))


def node_of_id(call: Call, node_id: str) -> NodePort:
    """The node of an id, or without one the agent's own client."""
    if not node_id or (call.client is not None and node_id == call.client.node_id):
        return _own_client(call)
    if node_id not in loaded_view(call).of(NodeRows):
        raise Refused(404, f'Unknown node "{node_id[:64]}"', reason=Reason.UNKNOWN_NODE)
    return _connected(call, node_id)


def other_server(call: Call) -> str:
    """The server that `server_id` names; "" for this agent."""
    requested = call.query.get("server_id", "")
    if not requested:
        return ""
    call.need_server()
    return call.request.app[LEADER_FORWARDING].other(call.request, requested)


def _own_client(call: Call) -> NodePort:
    if call.client is None:
        raise Refused(400, "No local Node and node_id not provided")
    return call.client.calls


def _connected(call: Call, node_id: str) -> NodePort:
    if call.client is not None and call.client.node_id == node_id:
        return call.client.calls
    try:
        return call.node_port(node_id)
    except (NotFound, Unavailable):
        raise Refused(404, "No path to node", reason=Reason.NO_PATH_TO_NODE) from None
