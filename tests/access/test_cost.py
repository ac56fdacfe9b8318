"""What access control adds to a read, in calls of functions: a number that no other work on the machine changes.

Seconds are measured by `python -m bench acl`. A read of one job is the cheapest request, so it loses the largest share.
"""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

from aiohttp.test_utils import make_mocked_request
from yurt.testing.access import bootstrapped
from yurt.testing.http_api import Api, job_document, serving

ADDED_MAX = 14
"""Calls, beside 283 for a read of one job without access control."""


class Transport(asyncio.Transport):
    """Nothing is read from it and written to it."""


async def calls_for(api: Api, path: str, secret: str) -> int:
    """The calls of functions, those in C included, with which the application answers a GET that was asked before."""
    headers = {"X-Nomad-Token": secret} if secret else {}
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    for _ in range(3):
        request = make_mocked_request("GET", path, headers=headers, app=api.client.server.app, transport=Transport())
        count = 0
        sys.setprofile(counted)
        try:
            response = await api.client.server.app._handle(request)
        finally:
            sys.setprofile(None)
        assert response.status == 200, response
    return count


async def test_a_read_with_access_control_takes_a_few_calls_more() -> None:
    path = "/v1/job/web?namespace=default"
    async with serving() as api:
        assert (await api.call("PUT", "/v1/jobs", {"Job": job_document("web")})).status == 200
        off = await calls_for(api, path, "")
    async with bootstrapped() as callers:
        assert (await callers.put("/v1/jobs", {"Job": job_document("web")})).status == 200
        secret = await callers.secret_for('namespace "default" { policy = "read" }')
        on = await calls_for(callers.api, path, secret)
    assert 0 < on - off <= ADDED_MAX, (off, on)
