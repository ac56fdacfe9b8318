"""Answers of plain reads that are sent again: only while all that they follow from is the same."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from yurt.http.edge.protocol import ApiProtocol
from yurt.http.plain_reads import kept_answers
from yurt.http.plain_reads.fast_path import CachedHead
from yurt.http.plain_reads.target import Target
from yurt.server.views import Rows
from yurt.testing.access import Callers, bootstrapped
from yurt.testing.http_api import NODE_ID, Api, add_ready_node, job_document
from yurt.testing.nightly import is_nightly

from tests.http.raw_connections import DATE, HEADERS, JOB, Served, Wire, head, served, serving_web_job

OBJECTS = (
    "/v1/status/leader", JOB, f"{JOB}/summary", f"{JOB}/allocations", f"{JOB}/evaluations", f"{JOB}/deployments",
    f"{JOB}/deployment", f"{JOB}/versions", "/v1/services", "/v1/service/web", "/v1/job/other", "/v1/jobs",
    "/v1/jobs?namespace=*", "/v1/jobs?filter=Priority+%3D%3D+50", "/v1/nodes", "/v1/nodes?resources=true",
    "/v1/evaluations", "/v1/allocations?task_states=false", "/v1/deployments", "/v1/namespaces", "/v1/node/pools",
    "/v1/node/pool/gpu", "/v1/node/pool/gpu/nodes", "/v1/node/pool/gpu/jobs", "/v1/node/pool/all/nodes", "/v1/quotas",
    f"/v1/node/{NODE_ID}", f"/v1/node/{NODE_ID}/allocations", "/v1/namespace/team", "/v1/volumes?type=host",
    "/v1/volumes/claims",
)  # fmt: skip
"""Reads of what the random requests change."""
MISSING = (
    "/v1/job/other",
    "/v1/node/pool/gpu",
    "/v1/node/pool/gpu/nodes",
    "/v1/node/pool/gpu/jobs",
    "/v1/namespace/team",
)
"""Those of what is not there at first."""
READS = 'namespace "default" { policy = "read" }'


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving_web_job() as made:
        yield made


@pytest.fixture
async def http(api: Api) -> AsyncIterator[Served]:
    async with served(api.server) as made:
        yield made


class Asked:
    """Counts the answers that were not made anew."""

    def __init__(self, http: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent_again = 0
        kept = http.fast_path.kept
        find = kept.find

        def counted(*parts: object, **named: object) -> bytes:
            found: bytes = find(*parts, **named)  # type: ignore[arg-type]
            self.sent_again += bool(found)
            return found

        monkeypatch.setattr(kept, "find", counted)


def plain(answer: bytes) -> bytes:
    """Without the date."""
    return DATE.sub(b"", answer)


@pytest.mark.parametrize("target", [each for each in OBJECTS if each not in MISSING])
async def test_an_answer_is_sent_again(http: Served, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    asked, wire = Asked(http, monkeypatch), await http.connect()
    answers = {plain(await wire.ask(head(target))) for _ in range(6)}
    assert len(answers) == 1 and asked.sent_again >= 3, "the first ones are read, learnt and kept"
    other = await http.connect()
    await other.ask(head(target))
    sent = asked.sent_again
    assert plain(await other.ask(head(target))) in answers
    assert asked.sent_again == sent + 1, "other connections share it"


@pytest.mark.parametrize(
    "target", [f"{JOB}/versions?diffs=true", "/v1/scaling/policies", "/v1/agent/health", "/v1/regions", "/v1/vars"]
)
async def test_what_follows_from_more_than_tables_is_made_each_time(
    http: Served, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    asked, wire = Asked(http, monkeypatch), await http.connect()
    for _ in range(6):
        assert await wire.status(head(target)) == 200
    assert asked.sent_again == 0


async def test_the_date_is_that_of_the_answer(http: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = await http.learnt(JOB)
    asked = Asked(http, monkeypatch)
    monkeypatch.setattr(kept_answers, "rfc822_formatted_time", lambda: "Thu, 01 Jan 2099 00:00:00 GMT")
    answer = await wire.ask(head(JOB))
    assert asked.sent_again == 1 and b"\r\nDate: Thu, 01 Jan 2099 00:00:00 GMT\r\n" in answer


async def test_an_operators_date_is_kept_out(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(api.server, response_headers={"Date": "today"}) as http:
        asked, wire = Asked(http, monkeypatch), await http.connect()
        answers = [await wire.ask(head(JOB)) for _ in range(5)]
        assert all(each.count(b"\r\nDate: today\r\n") == 1 for each in answers) and asked.sent_again == 0


async def change(api: Api, random: Random) -> None:
    """One change of what the reads show, or of something else."""
    match random.randrange(9):
        case 0:
            await api.register(random.choice(("web", "other")), Priority=random.randrange(50, 60))
        case 1:
            await api.call("DELETE", f"/v1/job/other?purge={random.choice(('true', 'false'))}")
        case 2:
            await add_ready_node(api)
        case 3:
            await api.call("PUT", "/v1/namespace/team", {"Name": "team", "Description": str(random.random())})
        case 4:
            await api.call("PUT", "/v1/node/pool/gpu", {"Name": "gpu", "Description": str(random.random())})
        case 5:
            await api.call("DELETE", "/v1/node/pool/gpu")
        case 6:
            await api.call("DELETE", "/v1/namespace/team")
        case 7:
            await api.call("PUT", "/v1/var/a?namespace=default", {"Path": "a", "Items": {"k": str(random.random())}})
        case _:
            await api.call("PUT", f"{JOB}/scale", {"Target": {"Group": "web"}, "Count": random.randrange(1, 4)})


async def both_ways(api: Api, wire: Wire, target: str, secret: str = "") -> tuple[list[bytes], bytes]:
    """Three answers to a read, and that of the usual way, which an unknown header asks for; all at one index.

    The cluster works meanwhile, so some have to be asked for again.
    """
    headers = f"{HEADERS}X-Nomad-Token: {secret}\r\n" if secret else HEADERS
    while True:
        index = api.server.state.index
        fast = [plain(await wire.ask(head(target, headers))) for _ in range(3)]
        usual = plain(await wire.ask(head(target, f"{headers}X-Other: a\r\n")))
        if api.server.state.index == index:
            return fast, usual


@pytest.mark.parametrize("seed", range(40 if is_nightly() else 4))
async def test_each_answer_is_that_of_the_usual_way(
    api: Api, http: Served, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random, asked, wire = Random(seed), Asked(http, monkeypatch), await http.connect()
    for _ in range(40):
        if random.random() < 0.4:
            await change(api, random)
        for target in random.sample(OBJECTS, 5):
            fast, usual = await both_ways(api, wire, target)
            assert fast == [usual] * 3, target
    assert asked.sent_again > 20


@pytest.mark.parametrize("list_name", ["nodes", "jobs"])
async def test_the_lists_of_a_deleted_pool_are_gone(http: Served, api: Api, list_name: str) -> None:
    """Neither list shows the table of pools, and the end of an empty pool changes none of those that they show."""
    assert (await api.put("/v1/node/pool/gpu", {"Name": "gpu"})).status == 200
    wire = await http.learnt(target := f"/v1/node/pool/gpu/{list_name}")
    assert (await api.call("DELETE", "/v1/node/pool/gpu")).status == 200
    assert await wire.status(head(target)) == 404


async def test_a_kept_answer_has_read_no_other_tables(http: Served, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await api.put("/v1/node/pool/gpu", {"Name": "gpu"})).status == 200
    assert (await api.put("/v1/namespace/team", {"Name": "team"})).status == 200
    read: set[str] = set()
    made, open_rows = http.fast_path._made, Rows.__init__

    def noted(rows: Rows[object, Any], *parts: Any) -> None:
        read.add(rows.name)
        open_rows(rows, *parts)

    def checked(connection: ApiProtocol, cached: CachedHead, target: Target) -> bytes:
        read.clear()
        answer = made(connection, cached, target)
        if target.shown is not None:
            assert read <= set(target.shown), target.path
            checked_targets.add(target.path)
        return answer

    checked_targets: set[str] = set()
    monkeypatch.setattr(Rows, "__init__", noted)
    monkeypatch.setattr(http.fast_path, "_made", checked)
    targets = [each for each in OBJECTS if each != "/v1/job/other"]
    wire = await http.connect()
    for target in targets:
        for _ in range(4):
            assert await wire.status(head(target)) == 200, target
    assert checked_targets == set(targets)


async def with_token(wire: Wire, secret: str, target: str = JOB) -> int:
    headers = f"{HEADERS}X-Nomad-Token: {secret}\r\n" if secret else HEADERS
    return await wire.status(head(target, headers))


async def test_rights_are_asked_for_before_an_answer_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bootstrapped() as callers, served(callers.api.server, acl_enabled=True) as http:
        await callers.put("/v1/jobs", {"Job": job_document("web")})
        asked = Asked(http, monkeypatch)
        reader, blind = await callers.secret_for(READS), await callers.secret_for('node { policy = "read" }')
        same = (await callers.token("rules-0"))["SecretID"]
        wires = {secret: await http.connect() for secret in (reader, same, blind, "")}
        for _ in range(4):
            assert [await with_token(wire, secret) for secret, wire in wires.items()] == [200, 200, 403, 403]
        assert asked.sent_again >= 4, "two tokens with one policy share it"
        mixed = await http.connect()  # as over a proxy, which sends the requests of several callers
        for secret, status in ((reader, 200), (blind, 403), (reader, 200), ("", 403), (same, 200), (blind, 403)) * 3:
            assert await with_token(mixed, secret) == status


@pytest.mark.parametrize("how", ["token", "policy"])
async def test_a_revoked_right_ends_at_once(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    async with bootstrapped() as callers, served(callers.api.server, acl_enabled=True) as http:
        await callers.put("/v1/jobs", {"Job": job_document("web")})
        asked, secret = Asked(http, monkeypatch), await callers.secret_for(READS)
        wire = await http.connect()
        for _ in range(5):
            assert await with_token(wire, secret) == 200
        assert asked.sent_again >= 2
        accessor = (await callers.get("/v1/acl/token/self", token=secret)).json["AccessorID"]
        path = f"/v1/acl/token/{accessor}" if how == "token" else "/v1/acl/policy/rules-0"
        assert (await callers.call("DELETE", path)).status == 200
        sent = asked.sent_again
        assert await with_token(wire, secret) == 403
        assert asked.sent_again == sent


async def change_rights(callers: Callers, random: Random) -> None:
    """One change of what the callers with the policies p0 and p1, or the role r, may see."""
    rights = (
        'namespace "default" { policy = "read" }',
        'namespace "*" { policy = "read" }',
        'node { policy = "read" }',
    )
    match random.randrange(5):
        case 0 | 1:
            await callers.policy(f"p{random.randrange(2)}", random.choice(rights))
        case 2:
            await callers.call("DELETE", f"/v1/acl/policy/p{random.randrange(2)}")
        case 3:
            (role,) = (await callers.get("/v1/acl/roles")).json
            body = {"Name": "r", "Policies": [{"Name": f"p{random.randrange(2)}"}]}
            await callers.put(f"/v1/acl/role/{role['ID']}", body)
        case _:
            await callers.put("/v1/jobs", {"Job": job_document(f"job{random.randrange(3)}", Namespace="prod")})


@pytest.mark.parametrize("seed", range(20 if is_nightly() else 2))
async def test_each_caller_gets_the_answer_of_the_usual_way(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    async with bootstrapped() as callers, served(callers.api.server, acl_enabled=True) as http:
        await add_ready_node(callers.api)
        await callers.put("/v1/namespace/prod", {"Name": "prod"})
        await callers.put("/v1/jobs", {"Job": job_document("web")})
        for name in ("p0", "p1"):
            await callers.policy(name, READS)
        assert (await callers.put("/v1/acl/role", {"Name": "r", "Policies": [{"Name": "p0"}]})).status == 200
        tokens = [await callers.token("p0"), await callers.token("p1"), await callers.token(Roles=[{"Name": "r"}])]
        secrets = [*(each["SecretID"] for each in tokens), callers.root["SecretID"], ""]
        asked, wires = Asked(http, monkeypatch), [await http.connect() for _ in range(3)]
        for _ in range(60):
            if random.random() < 0.3:
                await change_rights(callers, random)
            target = random.choice((JOB, "/v1/jobs?namespace=*", "/v1/jobs", "/v1/nodes", "/v1/namespaces"))
            for number, secret in enumerate(secrets):
                # Some callers have a connection of their own, and some share one, as over a proxy.
                fast, usual = await both_ways(callers.api, wires[min(number, 2)], target, secret)
                assert fast == [usual] * 3, (target, number)
        assert asked.sent_again > 50


async def test_a_token_that_expires_gets_no_kept_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bootstrapped() as callers, served(callers.api.server, acl_enabled=True) as http:
        await callers.put("/v1/jobs", {"Job": job_document("web")})
        await callers.secret_for(READS)
        asked, secret = Asked(http, monkeypatch), (await callers.token("rules-0", ExpirationTTL="1m"))["SecretID"]
        wire = await http.connect()
        for _ in range(5):
            assert await with_token(wire, secret) == 200
        assert asked.sent_again >= 2
        now = callers.api.server.http.authority._now  # type: ignore[attr-defined]
        monkeypatch.setattr(callers.api.server.http.authority, "_now", lambda: now() + 61 * 10**9)
        assert await with_token(wire, secret) == 403


async def test_a_server_that_leads_no_more_sends_no_kept_answer(api: Api, http: Served) -> None:
    wire = await http.learnt(JOB, "/v1/status/leader")
    await api.server.stop()
    assert await wire.status(head(JOB)) >= 500
    assert await wire.status(head("/v1/status/leader")) >= 500


async def test_an_answer_with_another_index_is_another(http: Served, api: Api) -> None:
    wire = await http.learnt(JOB)

    async def index() -> int:
        found = re.search(rb"X-Nomad-Index: (\d+)", await wire.ask(head(JOB)))
        assert found is not None
        return int(found[1])

    before = await index()
    assert (await api.register(Priority=60)).status == 200
    assert await index() > before


async def test_kept_answers_are_bounded(http: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = http.fast_path.kept._answers
    monkeypatch.setattr(cache, "_bytes_max", 20_000)
    wire = await http.connect()
    for number in range(60):
        for _ in range(3):
            assert await wire.status(head(f"{JOB}?unknown={number}")) == 200
        assert cache.bytes <= 20_000
    assert 0 < len(http.fast_path.kept) < 60


async def test_a_kept_answer_keeps_no_state_alive(http: Served, api: Api) -> None:
    wire = await http.learnt(JOB)
    await asyncio.sleep(0)
    found = http.fast_path.kept._answers._entries
    assert found and all(ref() is not None for each in found.values() for ref in each.tables)
    assert (await api.register(Priority=60)).status == 200
    await wire.ask(head(JOB))
    for each in found.values():
        assert all(ref() is None or ref() in api.server.state._tables.values() for ref in each.tables)
