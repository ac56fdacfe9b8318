"""Whatever is sent, the answer is a status and one plain text; no route fails inside."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from yurt.testing.http_api import NODE_ID, UNKNOWN_ID, Api

ENDLESS = ("/v1/event/stream", "/v1/agent/monitor")
METHODS = ("GET", "PUT", "DELETE", "HEAD")
PARTS = ("x", "%00", "..%2F..%2Fetc", "%FF", UNKNOWN_ID, NODE_ID, "a" * 2000, "%F0%9F%92%A5")
BODIES: tuple[bytes | None, ...] = (
    None, b"", b"null", b"[]", b"5", b'"x"', b"{", b"{}", b"\xff\xfe", b'{"Job":5}', b'{"Job":[]}', b'{"Job":{"ID":5}}',
    b'{"Job":{"ID":"a","TaskGroups":[null,{"Tasks":[null,{"Name":"t","Config":[1]}]}]}}', b'{"Jobs":[5]}',
    b'{"Name":5}', b'{"Name":"x","Meta":[]}', b'{"Prefix":5,"Context":{}}', b'{"DrainSpec":5}', b'{"JobHCL":5}',
    b'{"Target":{"Group":"g"},"Count":-99999999999}', b'{"JobID":"a","JobVersion":-1}', b"[" * 5000,
)  # fmt: skip
NAMES = ("a", UNKNOWN_ID, NODE_ID)
BELOW_A_NAME = ("a/plan", "a/dispatch", "a/revert", "a/stable", "a/scale", "a/evaluate")
"""Where one placeholder takes the rest of a path. Elsewhere these are no paths, or paths of other routes."""
QUERIES = ("", "?index=1&wait=1ms", "?filter=%22&per_page=-1", "?prefix=%00&next_token=%ff", "?namespace=%2A&reverse=x")


def paths(api: Api) -> list[str]:
    """Every route with a placeholder for its parts."""
    assert api.client.app is not None
    found = {resource.canonical for resource in api.client.app.router.resources()}
    return sorted(path for path in found if path not in ENDLESS and "/client/fs/" not in path)


def filled(path: str, part: str) -> str:
    """A path with a part in the place of each placeholder."""
    return re.sub(r"\{[^}]*\}", lambda _: part, path)


async def check(api: Api, method: str, path: str, body: bytes | None) -> None:
    """One request; the answer may refuse, but nothing may have failed inside."""
    answer = await api.call(method, path, body)
    assert not (answer.status == 500 and answer.text.startswith("Internal error")), (method, path, body)
    assert "Traceback" not in answer.text


async def test_every_method_on_paths_without_names(api_with_node: Api) -> None:
    for path in paths(api_with_node):
        for method in METHODS if "{" not in path else ():
            await check(api_with_node, method, path, None)


@pytest.mark.parametrize("part", PARTS, ids=range(len(PARTS)))
async def test_odd_names_in_paths(api_with_node: Api, part: str) -> None:
    for path in paths(api_with_node):
        for method in METHODS if "{" in path else ():
            await check(api_with_node, method, filled(path, part), None)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_odd_bodies(api_with_node: Api, body: bytes | None) -> None:
    await api_with_node.register("a")
    for path in paths(api_with_node):
        names = (*NAMES, *BELOW_A_NAME) if path.endswith("{path}") else NAMES if "{" in path else ("",)
        for name in names:
            await check(api_with_node, "PUT", filled(path, name), body)


@pytest.mark.parametrize("query", QUERIES)
async def test_odd_queries(api_with_node: Api, query: str) -> None:
    await api_with_node.register("a")
    for path in paths(api_with_node):
        await check(api_with_node, "GET", filled(path, "a") + query, None)


async def test_a_very_long_url_is_refused_without_a_traceback(api: Api) -> None:
    answer = await api.get("/v1/jobs?prefix=" + "a" * 100_000)
    assert answer.status in (400, 414)
    assert "Traceback" not in answer.text


async def test_many_blocking_queries_wait_at_once_and_all_wake(api: Api) -> None:
    index = (await api.get("/v1/jobs")).index
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = [group.create_task(api.get(f"/v1/jobs?index={index}&wait=60s")) for _ in range(50)]
        await api.register()
    answers: list[Any] = [task.result() for task in waiting]
    assert all(answer.index > index for answer in answers)
