"""What access control adds to a read, in calls of functions: a number that no other work on the machine changes.

Seconds are measured by `python -m bench acl`. A read of one job is the cheapest request, so it loses the largest share.
A read is counted on both of its ways: the usual one, which the first request of a connection takes, and the one past
aiohttp of those that repeat it (`yurt.http.plain_reads.fast_path`).
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

from aiohttp.test_utils import make_mocked_request
from yurt.http.edge.connections import Connections
from yurt.http.edge.protocol import ApiProtocol
from yurt.testing.access import bootstrapped
from yurt.testing.fakes import eventually
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
REPEATED_MAX = 14
"""Calls that access control may add to a repeated read: whether its answer may be sent to this caller again."""
SHORT_MAX = 100
"""All calls of a repeated read of one object. Each costs about 0.2 µs, and nearly nothing else does."""
SPREAD_MAX = 5
"""Calls that the median of the tries may need more than the least one."""
RULES = 'namespace "default" { policy = "read" }\nnamespace "team-*" { policy = "read" }\nnode { policy = "read" }'


class Transport(asyncio.Transport):
    """Nothing is read from it; it keeps what was written last."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written = bytes(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to do."""


def own_connection() -> ApiProtocol:
    """A connection of the server's own kind, as far as the application looks at it."""
    connection: ApiProtocol = Mock(spec=ApiProtocol)
    connection.peer, connection.is_task_api = "127.0.0.1", False
    connection.origin = connection.last_secret = None
    connection.head_of.return_value = b""
    return connection


@contextmanager
def counting() -> Iterator[list[int]]:
    """Counts the calls of functions, those in C included; the list has the number afterwards."""
    found, count = list[int](), 0

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        yield found
    finally:
        sys.setprofile(None)
        found.append(count)


async def calls_of_repeated(api: Api, path: str, secret: str) -> int:
    """The calls with which a connection answers a GET that it has answered before, from its bytes to those it sends."""
    token = f"X-Nomad-Token: {secret}\r\n" if secret else ""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}\r\n".encode()
    server = api.client.server.runner.server
    connection, transport = Connections(options={"access_log": None}).make(server), Transport()
    connection.connection_made(transport)
    for _ in range(TRIES):
        transport.written = b""
        connection.data_received(request)
        await eventually(lambda: transport.written.startswith(b"HTTP/1.1 200"))
        await asyncio.sleep(0)
    transport.written = b""
    with counting() as found:
        connection.data_received(request)
    assert transport.written.startswith(b"HTTP/1.1 200"), "it was answered before the loop turned"
    connection.connection_lost(None)
    return found[0]


async def calls_for(api: Api, path: str, secret: str) -> int:
    """The calls of functions, those in C included, with which the application answers a GET that was asked before.

    The least of some tries: what the server does besides may take its turn while a try waits. Most tries need about as
    many, so that the least one is that of a usual request.
    """
    headers = {"X-Nomad-Token": secret} if secret else {}
    connection = own_connection()
    counts = list[int]()
    app = api.client.server.app
    for _ in range(TRIES):
        request = make_mocked_request("GET", path, headers=headers, app=app, transport=Transport(), protocol=connection)
        with counting() as found:
            response = await app._handle(request)
        assert response.status == 200, response
        counts += found
    tries = counts[1:]
    assert statistics.median(tries) <= min(tries) + SPREAD_MAX, (path, tries)
    return min(tries)


async def test_a_read_with_access_control_takes_a_few_calls_more() -> None:
    async with serving() as api:
        assert (await api.call("PUT", "/v1/jobs", {"Job": job_document("web")})).status == 200
        off = {path: await calls_for(api, path, "") for path in ROUTES}
        off_repeated = {path: await calls_of_repeated(api, path, "") for path in ROUTES}
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
        on_repeated = {
            (path, who): await calls_of_repeated(callers.api, path, secret)
            for path in ROUTES
            for who, secret in secrets.items()
        }
    shares = {(path, who): (on[path, who] - off[path]) / (off[path] + CONNECTION) for path, who in on}
    assert max(shares.values()) <= SHARE_MAX, shares
    added = {(path, who): found - off_repeated[path] for (path, who), found in on_repeated.items()}
    assert max(added.values()) <= REPEATED_MAX, added
    assert off_repeated[ROUTES[0]] <= SHORT_MAX, off_repeated
