"""What access control adds to a read, in calls of functions: a number that no other work on the machine changes.

Seconds are measured by `python -m bench acl`. A read of one job is the cheapest request, so it loses the largest share.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from types import FrameType
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

from aiohttp.test_utils import make_mocked_request
from yurt.http.edge.protocol import ApiProtocol
from yurt.testing.access import bootstrapped
from yurt.testing.http_api import Api, job_document, serving

SHARE_MAX = 0.03
"""The share of a request's calls that access control may add, for every caller."""
CONNECTION = 100
"""Calls of a request over a connection, its parsing and its sending, that are not counted here."""
ROUTES = (
    "/v1/job/web?namespace=default",
    "/v1/job/web/allocations?namespace=default",
    "/v1/jobs?namespace=default",
    "/v1/jobs?namespace=*",
    "/v1/nodes",
)
TRIES = 6
SPREAD_MAX = 5
"""Calls that the median of the tries may need more than the least one."""
RULES = 'namespace "default" { policy = "read" }\nnamespace "team-*" { policy = "read" }\nnode { policy = "read" }'


class Transport(asyncio.Transport):
    """Nothing is read from it and written to it."""


def own_connection() -> ApiProtocol:
    """A connection of the server's own kind, as far as the application looks at it."""
    connection: ApiProtocol = Mock(spec=ApiProtocol)
    connection.peer, connection.is_task_api = "127.0.0.1", False
    connection.origin = connection.last_secret = None
    return connection


async def calls_for(api: Api, path: str, secret: str) -> int:
    """The calls of functions, those in C included, with which the application answers a GET that was asked before.

    The least of some tries: what the server does besides may take its turn while a try waits. Most tries need about as
    many, so that the least one is that of a usual request.
    """
    headers = {"X-Nomad-Token": secret} if secret else {}
    connection = own_connection()
    count, counts = 0, list[int]()

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    app = api.client.server.app
    for _ in range(TRIES):
        request = make_mocked_request("GET", path, headers=headers, app=app, transport=Transport(), protocol=connection)
        count = 0
        sys.setprofile(counted)
        try:
            response = await app._handle(request)
        finally:
            sys.setprofile(None)
        assert response.status == 200, response
        counts.append(count)
    tries = counts[1:]
    assert statistics.median(tries) <= min(tries) + SPREAD_MAX, (path, tries)
    return min(tries)


async def test_a_read_with_access_control_takes_a_few_calls_more() -> None:
    async with serving() as api:
        assert (await api.call("PUT", "/v1/jobs", {"Job": job_document("web")})).status == 200
        off = {path: await calls_for(api, path, "") for path in ROUTES}
        shown = {path: await calls_for(api, path, str(uuid4())) for path in ROUTES}
        assert shown == off, "nobody looks a token up here"
    async with bootstrapped() as callers:
        assert (await callers.put("/v1/jobs", {"Job": job_document("web")})).status == 200
        assert (await callers.get(ROUTES[0], token="")).status == 403, "access control is on"
        policy_token = await callers.secret_for(RULES)
        expiring = (await callers.token("rules-0", ExpirationTTL="1h"))["SecretID"]
        secrets = {"policies": policy_token, "expiring": expiring, "management": callers.root["SecretID"]}
        on = {
            (path, who): await calls_for(callers.api, path, secret)
            for path in ROUTES
            for who, secret in secrets.items()
        }
    shares = {(path, who): (on[path, who] - off[path]) / (off[path] + CONNECTION) for path, who in on}
    assert max(shares.values()) <= SHARE_MAX, shares
