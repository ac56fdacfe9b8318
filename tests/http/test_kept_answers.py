"""Answers of plain reads that are sent again: only while all that they follow from is the same."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from random import Random

import pytest
from yurt.http.plain_reads import kept_answers
from yurt.testing.access import bootstrapped
from yurt.testing.http_api import Api, add_ready_node, job_document, serving
from yurt.testing.nightly import is_nightly

from tests.http.raw_connections import DATE, HEADERS, JOB, Served, Wire, head, served

OBJECTS = (
    "/v1/status/leader", JOB, f"{JOB}/summary", f"{JOB}/allocations", f"{JOB}/evaluations", f"{JOB}/deployments",
    f"{JOB}/deployment", f"{JOB}/versions", "/v1/services", "/v1/service/web", "/v1/job/other", "/v1/jobs",
    "/v1/jobs?namespace=*", "/v1/jobs?filter=Priority+%3D%3D+50", "/v1/nodes", "/v1/nodes?resources=true",
    "/v1/evaluations", "/v1/allocations?task_states=false", "/v1/deployments", "/v1/namespaces", "/v1/node/pools",
)  # fmt: skip
"""Reads of what the random requests change."""
READS = 'namespace "default" { policy = "read" }'


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as made:
        await add_ready_node(made)
        assert (await made.register()).status == 200
        await made.wait_until(f"{JOB}/allocations", bool)
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


@pytest.mark.parametrize("target", [each for each in OBJECTS if each != "/v1/job/other"])
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
    match random.randrange(7):
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
            await api.call("PUT", "/v1/var/a?namespace=default", {"Path": "a", "Items": {"k": str(random.random())}})
        case _:
            await api.call("PUT", f"{JOB}/scale", {"Target": {"Group": "web"}, "Count": random.randrange(1, 4)})


@pytest.mark.parametrize("seed", range(40 if is_nightly() else 4))
async def test_each_answer_is_that_of_the_usual_way(
    api: Api, http: Served, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random, asked, wire = Random(seed), Asked(http, monkeypatch), await http.connect()

    async def both(target: str) -> tuple[bytes, bytes]:
        # An unknown header sends a request the usual way; the cluster works meanwhile, so both are asked at one index.
        while True:
            index = api.server.state.index
            found = plain(await wire.ask(head(target))), plain(await wire.ask(head(target, f"{HEADERS}X-Other: a\r\n")))
            if api.server.state.index == index:
                return found

    for _ in range(40):
        if random.random() < 0.4:
            await change(api, random)
        for target in random.sample(OBJECTS, 5):
            fast, usual = await both(target)
            assert fast == usual, target
    assert asked.sent_again > 20


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
