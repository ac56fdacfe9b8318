"""Every route that writes: a body that is null, of another type or missing is never read as one without fields."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from yurt.http.route_table import ROUTES
from yurt.server.config import AclConfig
from yurt.testing.http_api import NODE_ID, UNKNOWN_ID, Api, add_ready_node, serving

OPTIONAL = {
    "PUT /v1/acl/bootstrap",
    "PUT /v1/acl/identity/client-introduction-token",
    "PUT /v1/client/allocation/{id}/restart",
    "PUT /v1/client/identity/renew",
    "PUT /v1/job/{job_id}/evaluate",
    "PUT /v1/yurt/session",
    "DELETE /v1/evaluations",
}
"""They read an object if there is one; no body and null are none."""
REQUIRED = {
    f"PUT /v1/{path}"
    for path in (
        "acl/auth-method", "acl/auth-method/{name}", "acl/binding-rule", "acl/binding-rule/{id}", "acl/login",
        "acl/oidc/auth-url", "acl/oidc/complete-auth", "acl/policy/{name}", "acl/role", "acl/role/{id}",
        "acl/token", "acl/token/onetime/exchange", "acl/token/{id}", "agent/schedulers/config",
        "allocation/{id}/keep", "yurt/node/{id}/device", "client/allocation/{id}/pause",
        "client/allocation/{id}/signal", "client/metadata", "deployment/allocation-health/{id}",
        "deployment/pause/{id}", "deployment/promote/{id}", "job/{job_id}", "job/{job_id}/dispatch",
        "job/{job_id}/plan", "job/{job_id}/revert", "job/{job_id}/scale", "job/{job_id}/stable",
        "job/{job_id}/versions/{tag}/tag", "jobs", "jobs/parse", "jobs/statuses", "namespace", "namespace/{name}",
        "node/pool/{name}", "node/pools", "node/{id}/drain", "node/{id}/eligibility",
        "operator/autopilot/configuration", "operator/scheduler/configuration", "quota", "quota/{name}", "search",
        "search/fuzzy", "validate/job", "var/{path}", "volume/csi/{id}", "volume/host/create",
        "volume/host/register", "volumes", "yurt/acl/explain", "yurt/job/why-not",
    )
}  # fmt: skip
"""They read an object."""
UNREAD = {
    "PUT /v1/acl/token/onetime", "PUT /v1/agent/force-leave", "PUT /v1/agent/join", "PUT /v1/agent/keyring/install",
    "PUT /v1/agent/keyring/remove", "PUT /v1/agent/keyring/use", "PUT /v1/agent/reload", "PUT /v1/agent/servers",
    "PUT /v1/allocation/{id}/stop", "PUT /v1/client/allocation/{id}/gc",
    "PUT /v1/client/gc", "PUT /v1/deployment/fail/{id}", "PUT /v1/job/{job_id}/periodic/force",
    "PUT /v1/node/{id}/evaluate", "PUT /v1/node/{id}/purge", "PUT /v1/operator/keyring/rotate",
    "PUT /v1/operator/raft/transfer-leadership", "PUT /v1/operator/utilization", "PUT /v1/system/gc",
    "PUT /v1/system/reconcile/summaries", "PUT /v1/volume/csi/{id}/create", "PUT /v1/volumes/snapshot",
    "PUT /v1/yurt/plugin/{name}/reload",
}  # fmt: skip
"""They read parameters and the path only, as Nomad's do."""
BYTES = {"PUT /v1/job/{job_id}/dispatch/payload", "PUT /v1/operator/snapshot"}
"""They read bytes."""
WRONG = {"null": "null", "[]": "list", '"x"': "string", "5": "integer", "0.5": "number", "true": "boolean"}
"""Bodies, and what they are called."""


def line(method: str, path: str) -> str:
    return f"{method} {re.sub(r':[^}]*}', '}', path)}"


WRITING = {line(route.methods[0], route.path) for route in ROUTES if route.methods[0] not in ("GET", "HEAD")}
"""POST is another spelling of PUT."""
DELETES = {name for name in WRITING if name.startswith("DELETE")} - OPTIONAL
"""They read parameters and the path only."""


def test_every_route_that_writes_is_in_the_table() -> None:
    assert WRITING - DELETES == OPTIONAL | REQUIRED | UNREAD | BYTES


@asynccontextmanager
async def agent() -> AsyncIterator[Api]:
    """An agent with access control and a node; requests show a management token."""
    async with serving(acl=AclConfig(enabled=True)) as api:
        secret = (await api.call("POST", "/v1/acl/bootstrap")).json["SecretID"]
        api.client.session.headers.update({"X-Nomad-Token": secret, "X-Yurt-Client": "test"})
        await add_ready_node(api)
        yield api


async def answers(names: set[str], body: str) -> dict[str, tuple[int, str]]:
    """The answer of each route to a body."""
    found = {}
    async with agent() as api:
        for name in sorted(names):
            method, path = name.split(" ")
            path = path.replace("/node/{id}", f"/node/{NODE_ID}").replace("{id}", UNKNOWN_ID)
            answer = await api.call(method, re.sub(r"{[^}]*}", "some", path), body.encode())
            found[name] = answer.status, answer.text
    return found


@pytest.mark.parametrize("body", WRONG)
async def test_a_body_of_another_type_is_refused_with_what_is_expected(body: str) -> None:
    found = await answers(REQUIRED if body == "null" else REQUIRED | OPTIONAL, body)
    refusal = (400, f"expected object, got {WRONG[body]}")
    assert {name: told for name, told in found.items() if (told[0], told[1].partition(": ")[2]) != refusal} == {}


async def test_no_body_is_refused_where_one_is_needed() -> None:
    found = await answers(REQUIRED, " \n")
    assert {name: told for name, told in found.items() if told != (400, "Request body is empty")} == {}


@pytest.mark.parametrize("body", ["", "null"])
async def test_null_and_nothing_are_no_optional_body(body: str) -> None:
    found = await answers(OPTIONAL, body)
    assert {name: told for name, told in found.items() if "expected object" in told[1] or "body" in told[1]} == {}
