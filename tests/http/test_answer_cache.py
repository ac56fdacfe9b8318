"""An answer that is kept is the answer that a server without a cache gives, to the same caller at the same time."""

from __future__ import annotations

import asyncio
import gc
import gzip
import random
from typing import Any, Final

import pytest
import yurt.api.page
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st
from yurt.api.row_texts import RowTexts
from yurt.http.answer_cache import ANSWER_BYTES_MAX, AnswerCache, AnswerKey
from yurt.http.app import make_app
from yurt.http.call import CONTEXT
from yurt.http.pieces import PiecesBody, ZippedTexts
from yurt.sdk.value import replace
from yurt.testing.access import Callers, bootstrapped
from yurt.testing.http_api import Api, add_ready_node, job_document, serving

NAMESPACES: Final = ("default", "prod", "dev")
PATHS: Final = (
    "/v1/jobs", "/v1/jobs?meta=true", "/v1/allocations", "/v1/allocations?resources=true&task_states=false",
    "/v1/evaluations", "/v1/deployments", "/v1/nodes", "/v1/nodes?resources=true&os=true", "/v1/namespaces",
    "/v1/node/pools", "/v1/node/pool/default/jobs", "/v1/node/pool/all/nodes", "/v1/job/web", "/v1/job/web/summary",
    "/v1/job/web/allocations", "/v1/job/web/allocations?all=true", "/v1/job/web/evaluations", "/v1/job/web/deployments",
    "/v1/job/api", "/v1/namespace/prod",
)  # fmt: skip
OPTIONS: Final = (
    "",
    "pretty=",
    "reverse=true",
    "per_page=1",
    "prefix=",
    "filter=ID+matches+%22e%22",
    "index=1&wait=1ms",
    "stale=",
)
HEADERS: Final = ("X-Nomad-Index", "X-Nomad-NextToken", "X-Nomad-KnownLeader", "Content-Type")


class Table:
    """Stands for the content of a table."""


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=60), st.integers(0, 6_000))
def test_an_answer_is_found_for_its_tables_alone(steps: list[tuple[int, int, bool]], most: int) -> None:
    cache, tables = AnswerCache(most), [Table() for _ in range(3)]
    for name, at, is_kept in steps:
        key, shown = AnswerKey(f"/{name}", True), f"{name} {at}".encode()
        if is_kept:
            cache.keep(key, (tables[at],), [shown], at, "")
        found = cache.find(key, (tables[at],))
        assert found is None or b"".join(found.pieces) == shown
        assert 0 <= cache.bytes <= most
        assert bool(cache.bytes) == bool(len(cache))


def test_answers_whose_tables_are_gone_make_place_for_new_ones() -> None:
    cache, live = AnswerCache(), Table()
    cache.keep(AnswerKey("/live", True), (live,), [b"live"], 1, "")
    for number in range(20):
        cache.keep(AnswerKey(f"/{number}", True), (Table(),), [b"outdated"], 1, "")
    assert cache.find(AnswerKey("/live", True), (live,)) is not None  # which makes it the youngest
    assert len(cache) > 1
    for number in range(20, 24):
        cache.keep(AnswerKey(f"/{number}", True), (live,), [b"live"], 1, "")
    assert len(cache) == 5


def test_an_answer_keeps_no_table_alive() -> None:
    cache, key, table = AnswerCache(), AnswerKey("/", True), Table()
    cache.keep(key, (table,), [b"[]"], 1, "")
    assert cache.find(key, (table,)) is not None
    del table
    gc.collect()
    assert cache.find(key, (Table(),)) is None
    assert cache.bytes == 0


def test_a_very_long_answer_is_not_kept() -> None:
    cache, key, table = AnswerCache(), AnswerKey("/", True), Table()
    cache.keep(key, (table,), [b"x" * ANSWER_BYTES_MAX], 1, "")
    assert cache.find(key, (table,)) is None


def policy(namespace: str, *more: str) -> str:
    return f'namespace "{namespace}" {{ policy = "read" }}\n' + "\n".join(more)


NODES: Final = 'node { policy = "read" }'
POLICIES: Final = {
    "prod": policy("prod"),
    "dev": policy("dev", NODES),
    "all": policy("*", NODES, 'node_pool "*" { policy = "read" }'),
    "list": 'namespace "prod" { capabilities = ["list-jobs"] }',
    "no-dev": policy("*", 'namespace "dev" { policy = "deny" }', NODES),
}


async def change(callers: Callers, chance: random.Random) -> None:
    """Change one thing."""
    namespace, name = chance.choice(NAMESPACES), chance.choice(("web", "api", "etl"))
    match chance.randrange(5):
        case 0 | 1:
            job = job_document(name, Namespace=namespace, Meta={"at": str(chance.random())}, Type="service")
            assert (await callers.put("/v1/jobs", {"Job": job})).status == 200
        case 2:
            await callers.call(
                "DELETE", f"/v1/job/{name}?namespace={namespace}&purge={chance.choice(('true', 'false'))}"
            )
        case 3:
            which = chance.choice(tuple(POLICIES))
            rules = chance.choice(tuple(POLICIES.values()))
            assert (await callers.put(f"/v1/acl/policy/{which}", {"Name": which, "Rules": rules})).status == 200
        case _:
            described = {"Name": "prod", "Description": str(chance.random())}
            assert (await callers.put("/v1/namespace/prod", described)).status == 200


async def compare(api: Api, bare: TestClient[Any, Any], path: str, token: str) -> int:
    """The status of an answer, which is the same with the cache, twice, and without."""
    headers = {"X-Nomad-Token": token} if token else {}
    index, answers = -1, list[tuple[int, bytes, list[str | None]]]()
    # An evaluation that ends meanwhile, or the leader's first root key, gives the answers different indexes.
    while index != api.server.state.index:
        index, answers = api.server.state.index, []
        for client in (api.client, api.client, bare):
            async with client.get(path, headers=headers) as answer:
                answers.append((answer.status, await answer.read(), [answer.headers.get(name) for name in HEADERS]))
    assert answers[0] == answers[2], (path, token)
    assert answers[1] == answers[2], (path, token)
    return answers[0][0]


@pytest.mark.parametrize("seed", range(2))
async def test_callers_with_different_rights_get_what_a_server_without_a_cache_gives_them(seed: int) -> None:
    chance = random.Random(seed)
    async with bootstrapped() as callers:
        api = callers.api
        await add_ready_node(api)
        for namespace in NAMESPACES[1:]:
            await callers.put("/v1/namespace", {"Name": namespace})
        tokens = ["", callers.root["SecretID"]]
        for name, rules in POLICIES.items():
            await callers.policy(name, rules)
            tokens.append((await callers.token(name))["SecretID"])
        app = make_app(api.server.http, None, api.client.app[CONTEXT].agent)
        app[CONTEXT] = replace(app[CONTEXT], texts=RowTexts(0), answers=AnswerCache(0))
        async with TestClient(TestServer(app)) as bare:
            statuses = {await changed_and_compared(callers, bare, chance, tokens) for _ in range(25)}
        assert len(api.client.app[CONTEXT].answers) > 0
        assert {200, 403} <= {status for each in statuses for status in each}


async def changed_and_compared(
    callers: Callers, bare: TestClient[Any, Any], chance: random.Random, tokens: list[str]
) -> frozenset[int]:
    """The statuses of some reads after a change."""
    await change(callers, chance)
    statuses = set()
    for _ in range(6):
        path = chance.choice(PATHS)
        asked = [f"namespace={chance.choice((*NAMESPACES, '*'))}", chance.choice(OPTIONS)]
        path += ("&" if "?" in path else "?") + "&".join(filter(None, asked))
        statuses.add(await compare(callers.api, bare, path, chance.choice(tokens)))
    return frozenset(statuses)


async def test_a_list_is_encoded_once_until_a_row_changes() -> None:
    async with serving() as api:
        cache = api.client.app[CONTEXT].answers
        await api.register("web")
        first = await api.get("/v1/namespaces")
        kept = next(iter(cache._entries.values()))
        assert (await api.get("/v1/namespaces")).text == first.text
        assert next(iter(cache._entries.values())) is kept
        await api.put("/v1/namespace", {"Name": "prod"})
        assert (await api.get("/v1/namespaces")).text != first.text


async def test_callers_of_different_policies_share_a_list_of_the_same_namespaces() -> None:
    async with bootstrapped() as callers:
        cache = callers.api.client.app[CONTEXT].answers
        for namespace in NAMESPACES:
            await callers.put("/v1/namespace", {"Name": namespace})
            await callers.put("/v1/jobs", {"Job": job_document("web", Namespace=namespace)})
        await callers.policy("prod", policy("prod"))
        await callers.policy("also-prod", policy("pr*", 'namespace "other" { policy = "read" }'))
        await callers.policy("dev", policy("dev"))
        first, second, other = [(await callers.token(name))["SecretID"] for name in ("prod", "also-prod", "dev")]
        shown = await callers.get("/v1/jobs?namespace=*", token=first)
        assert len(cache) == 1
        assert (await callers.get("/v1/jobs?namespace=*", token=second)).text == shown.text
        assert len(cache) == 1
        assert (await callers.get("/v1/jobs?namespace=*", token=other)).text != shown.text
        # A policy that changes, a namespace that is new: the next list is another one.
        await callers.policy("also-prod", policy("*"))
        assert len((await callers.get("/v1/jobs?namespace=*", token=second)).json) == len(NAMESPACES)
        await callers.put("/v1/namespace", {"Name": "prod-2"})
        await callers.put("/v1/jobs", {"Job": job_document("web", Namespace="prod-2")})
        assert len((await callers.get("/v1/jobs?namespace=*", token=second)).json) == len(NAMESPACES) + 1
        assert (await callers.get("/v1/jobs?namespace=*", token=first)).text == shown.text


@given(st.lists(st.integers(0, 4), max_size=20), st.sampled_from((0, 3_000, 1_000_000)))
def test_kept_bytes_are_compressed_once_and_come_back_whole(asked: list[int], most: int) -> None:
    bodies: list[bytes | tuple[bytes, ...]] = [b"a" * 2_000, b"b" * 40_000, (b"c" * 1_500, b"d"), (b"e", b"f"), b"g"]

    async def compare_all() -> None:
        zipped = ZippedTexts(most)
        for number in asked:
            kept = bodies[number]
            body = await zipped.zipped(kept if isinstance(kept, bytes) else PiecesBody(kept))
            got = body if isinstance(body, bytes) else b"".join(body.cached)
            assert gzip.decompress(got) == (kept if isinstance(kept, bytes) else b"".join(kept))
            assert 0 <= zipped.bytes <= most

    asyncio.run(compare_all())


async def test_a_compressed_answer_is_compressed_once() -> None:
    async with serving() as api:
        await api.register("web", Meta={"long": "x" * 3_000})
        plain = await api.get("/v1/job/web", headers={"Accept-Encoding": "identity"})
        answers = [await api.get("/v1/job/web", headers={"Accept-Encoding": "gzip"}) for _ in range(3)]
        assert {answer.text for answer in answers} == {plain.text}
        assert all(answer.headers["Content-Encoding"] == "gzip" for answer in answers)
        assert len(api.client.app[CONTEXT].zipped._entries) == 1


async def test_a_blocking_query_that_wakes_shares_the_answer_of_the_others() -> None:
    async with serving() as api:
        await api.register("web")
        first, second = [await api.get(f"/v1/jobs?index=1&wait={wait}s") for wait in (1, 2)]
        assert first.text == second.text
        assert len(api.client.app[CONTEXT].answers) == 1


async def test_a_list_that_was_made_with_rights_of_two_times_is_kept_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest of a long list is decided by the newest rights: it is no answer to those who have the former ones."""
    async with bootstrapped() as callers:
        for namespace in NAMESPACES[1:]:
            await callers.put("/v1/namespace", {"Name": namespace})
        for namespace in NAMESPACES:
            for name in ("api", "etl", "web"):
                await callers.put("/v1/jobs", {"Job": job_document(name, Namespace=namespace)})
        await callers.policy("prod", POLICIES["prod"])
        await callers.policy("all", POLICIES["all"])
        one, other = await callers.token("prod"), await callers.token("prod")
        turns, states = callers.api.server.replica.turns, list[int]()
        proceed = turns.next

        async def next_turn() -> None:
            await proceed()
            if not states:
                states.append(0)
                more = {"AccessorID": one["AccessorID"], "Type": "client", "Policies": ["all"]}
                states[0] = (await callers.put(f"/v1/acl/token/{one['AccessorID']}", more)).status

        monkeypatch.setattr(yurt.api.page, "GATHERED", 1)
        monkeypatch.setattr(turns, "next", next_turn, raising=False)
        await callers.get("/v1/jobs?namespace=*", token=one["SecretID"])
        assert states == [200]
        shown = (await callers.get("/v1/jobs?namespace=*", token=other["SecretID"])).json
        assert {job["Namespace"] for job in shown} == {"prod"}


async def test_a_query_that_waited_shows_the_job_that_has_the_id_when_it_ends() -> None:
    async with serving() as api:
        await api.register("web")
        waiting = asyncio.create_task(api.get("/v1/job/web/allocations?index=1&wait=20s"))
        await asyncio.sleep(0.05)
        await api.call("DELETE", "/v1/job/web?purge=true")
        await api.register("web")
        await add_ready_node(api)
        shown = (await waiting).json
        assert len(shown) == 1
        assert (await api.get("/v1/job/web/allocations?index=1")).json == shown


def test_the_text_of_a_query_is_all_that_its_answer_costs_beside_its_bytes() -> None:
    cache, table = AnswerCache(100_000), Table()
    for number in range(100):
        key = AnswerKey(f"/v1/jobs?{number}" + "&a" * 4_000, True)
        cache.keep(key, (table,), [b"[]"], 1, "")
    assert all(isinstance(key.target, str) for key in cache._entries)
    assert sum(len(key.target) for key in cache._entries) <= 100_000
