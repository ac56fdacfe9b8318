"""Pages of lists for a caller who sees every other row: each page is full, and the last one has no token."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from yurt.testing.access import Callers, bootstrapped
from yurt.testing.access.world import ELSEWHERE, TEAM, everything_in
from yurt.testing.http_api import job_document

NAMES = [f"job-{number}" for number in range(6)]
"""By turns in the namespace of the caller and elsewhere."""


@pytest.fixture
async def callers() -> AsyncIterator[Callers]:
    async with bootstrapped() as found:
        for namespace in (TEAM, ELSEWHERE):
            assert (await found.put(f"/v1/namespace/{namespace}", {"Name": namespace})).status == 200
        for number, name in enumerate(NAMES):
            namespace = (TEAM, ELSEWHERE)[number % 2]
            answer = await found.put("/v1/jobs", {"Job": job_document(name, Namespace=namespace)})
            assert answer.status == 200, answer.text
            body = {"Namespace": namespace, "Items": {"a": "b"}}
            assert (await found.put(f"/v1/var/{name}?namespace={namespace}", body)).status == 200
        yield found


async def pages(callers: Callers, path: str, secret: str, *, per_page: int) -> list[list[str]]:
    """The namespaces of the rows, page by page; twenty pages at most."""
    found: list[list[str]] = []
    token = ""
    for _ in range(20):
        answer = await callers.get(f"{path}?namespace=*&per_page={per_page}{token}", token=secret)
        assert answer.status == 200, answer.text
        found.append([row["Namespace"] for row in answer.json])
        following = answer.headers.get("X-Nomad-NextToken")
        if not following:
            return found
        token = f"&next_token={following}"
    raise AssertionError(f"{path} has more than twenty pages")


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/statuses", "/v1/evaluations", "/v1/vars"])
async def test_rows_that_are_not_seen_take_no_place_on_a_page(callers: Callers, path: str) -> None:
    secret = await callers.secret_for(everything_in(TEAM))
    (everything,) = await pages(callers, path, callers.root["SecretID"], per_page=100)
    assert everything.count(TEAM) == everything.count(ELSEWHERE) >= len(NAMES) // 2
    rows = [TEAM] * everything.count(TEAM)
    for per_page in (1, 2, 100):
        expected = [rows[at : at + per_page] for at in range(0, len(rows), per_page)]
        assert await pages(callers, path, secret, per_page=per_page) == expected


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/vars"])
async def test_a_token_that_names_a_row_elsewhere_shows_nothing_of_it(callers: Callers, path: str) -> None:
    secret = await callers.secret_for(everything_in(TEAM))
    first = await callers.get(f"{path}?namespace=*&per_page=1")
    there, absent = [
        await callers.get(f"{path}?namespace=*&per_page=9&next_token={token}", token=secret)
        for token in (first.headers["X-Nomad-NextToken"], first.headers["X-Nomad-NextToken"] + "0")
    ]
    assert there.status == absent.status == 200
    assert {row["Namespace"] for row in (*there.json, *absent.json)} <= {TEAM}
