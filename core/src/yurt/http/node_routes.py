"""The routes of a server that a node's agent may call for users of its own HTTP API.

A client without a server passes requests on over the connection that its node holds. That connection proves who the
node is, and nothing about its users, so it carries what users of jobs need and no route that rules the cluster: not
`/v1/operator/`, not the keyring, not snapshots, not introductions of further nodes. A route says `from_nodes=True`
where it is carried, so a new route is refused until somebody decides about it; `tests/http/test_node_routes.py` holds
the decisions.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from multidict import istr

from yurt.http.dispatcher import endpoint_of
from yurt.http.errors import Refused
from yurt.http.forwarding_headers import FROM_NODE

_FROM_NODE: Final = istr(FROM_NODE)


def check_node_route(request: web.Request) -> None:
    """Raises Refused (403) for a request over a node's connection to a route that it does not carry.

    The route that answers decides and not the text of the path, which can be written in several ways.
    """
    if _FROM_NODE not in request.headers:
        return
    endpoint = endpoint_of(request)
    if endpoint is not None and not endpoint.from_nodes:
        raise Refused(
            403,
            f"Permission denied: clients do not pass {request.method} {request.path[:256]} on to their servers; "
            "ask a server at its own HTTP address (-address or NOMAD_ADDR)",
        )
