"""The index of lists of access control that never had a row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from yurt.testing.access import Callers, bootstrapped

METHOD = {
    "Name": "ci", "Type": "OIDC", "TokenLocality": "local", "MaxTokenTTL": "1h", "Default": True,
    "Config": {"OIDCDiscoveryURL": "https://id", "OIDCClientID": "c", "OIDCClientSecret": "hush",
               "ClockSkewLeeway": "30s"},
}  # fmt: skip


@pytest.fixture
async def acl(tmp_path: Path) -> AsyncIterator[Callers]:
    """An API with access control, bootstrapped."""
    async with bootstrapped(data_dir=str(tmp_path)) as callers:
        yield callers


@pytest.mark.parametrize("path", ["policies", "roles", "auth-methods", "binding-rules"])
async def test_a_list_that_never_had_a_row_has_the_index_1_and_wakes_its_readers(acl: Callers, path: str) -> None:
    for wait in ("", "?index=0&wait=60s", "?index=1&wait=10ms"):
        empty = await acl.get(f"/v1/acl/{path}{wait}")
        assert (empty.json, empty.headers["X-Nomad-Index"]) == ([], "1")
    waiting = asyncio.create_task(acl.get(f"/v1/acl/{path}?index=1&wait=60s"))
    await acl.policy("ops")
    await acl.put("/v1/acl/role", {"Name": "web", "Policies": [{"Name": "ops"}]})
    await acl.put("/v1/acl/auth-method", METHOD)
    rule = {"AuthMethod": METHOD["Name"], "BindType": "policy", "BindName": "ops"}
    assert (await acl.put("/v1/acl/binding-rule", rule)).status == 200
    (row,) = (await waiting).json
    assert (await waiting).headers["X-Nomad-Index"] == str(row["ModifyIndex"]) != "1"
