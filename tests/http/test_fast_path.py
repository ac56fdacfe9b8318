"""Repeated reads are answered past aiohttp: what a client gets, and who gets it, is as if they were not."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.test_utils import make_mocked_request
from yurt.audit.settings import AuditSettings, AuditSinkSettings
from yurt.http import dispatcher
from yurt.http.audit import AUDIT
from yurt.http.edge.protocol import HEAD_MAX, NO_HEAD, Pace, is_whole_head
from yurt.http.plain_reads import fast_path
from yurt.testing.access import bootstrapped
from yurt.testing.fakes import eventually
from yurt.testing.http_api import Api, job_document, serving

from tests.http.raw_connections import DATE, HEADERS, JOB, Served, head, served, serving_web_job


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving_web_job() as made:
        yield made


@pytest.fixture
async def http(api: Api) -> AsyncIterator[Served]:
    async with served(api.server) as made:
        yield made


VERSIONS = f"{JOB}/versions?diffs=true"
"""Its answers are not kept, so each is made."""
TARGETS = (
    "/v1/status/leader", JOB, f"{JOB}/summary", f"{JOB}/allocations", f"{JOB}/evaluations", f"{JOB}?pretty",
    f"{JOB}/allocations?all=true", "/v1/jobs", "/v1/nodes?prefix=11&per_page=5", "/v1/evaluations", "/v1/agent/health",
)  # fmt: skip


@pytest.mark.parametrize("coding", ["", "Accept-Encoding: gzip, deflate\r\n"])
@pytest.mark.parametrize("own", [{}, {"Access-Control-Allow-Origin": "*", "X-Own": "a"}], ids=["plain", "own headers"])
async def test_an_answer_is_the_same_on_both_ways(api: Api, coding: str, own: Mapping[str, str]) -> None:
    async with served(api.server, response_headers=own) as http:
        wire = await http.connect()
        for target in TARGETS:
            request = head(target, HEADERS + coding)
            answers = [DATE.sub(b"", await wire.ask(request)) for _ in range(3)]
            assert b"\r\nServer: " in answers[0] and answers[0].startswith(b"HTTP/1.1 200 OK\r\n")
            assert answers[1] == answers[0] and answers[2] == answers[0], target
        assert http.usual < 2 * len(TARGETS), "some of them were answered past aiohttp"


async def test_every_small_read_is_answered_past_aiohttp(http: Served) -> None:
    await http.learnt("/v1/status/leader", JOB, f"{JOB}/summary", f"{JOB}/allocations", f"{JOB}/evaluations")


async def test_a_compressed_answer_is_sent_from_the_cache(http: Served, api: Api) -> None:
    wire = await http.learnt(JOB, headers=HEADERS + "Accept-Encoding: gzip\r\n")
    answer = await wire.ask(head(JOB, HEADERS + "Accept-Encoding: gzip\r\n"))
    found, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in found and json.loads(gzip.decompress(body))["ID"] == "web"


async def test_requests_are_counted_on_both_ways(http: Served, api: Api) -> None:
    wire = await http.connect()
    counters, timings = api.server.metrics.counters, api.server.metrics.timings
    labelled = api.server.metrics.labelled_counters

    def counts() -> tuple[int, ...]:
        answers = labelled["http.response", (("code", "200"),)]
        return answers, counters["rpc.query"], timings["http.request"].count, timings["job.get_job"].count

    seen = []
    for _ in range(4):
        assert await wire.status(head(JOB)) == 200
        seen.append(counts())
    assert http.usual == 1
    steps = [tuple(b - a for a, b in zip(*pair, strict=True)) for pair in itertools.pairwise(seen)]
    assert steps == [(1, 1, 1, 1)] * 3


class Tries:
    """Counts the answers that are begun past aiohttp, and lets a test give them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Awaitable[Any]] | None = None) -> None:
        self.count = 0
        self._answer = answer or fast_path.answered
        monkeypatch.setattr(fast_path, "answered", self._counted)

    async def _counted(self, *parts: Any) -> Any:
        self.count += 1
        return await self._answer(*parts)


def gzipped(target: str) -> bytes:
    return head(target, HEADERS + "Accept-Encoding: gzip\r\n")


async def test_clients_with_and_without_compression_do_not_undo_each_others_targets(
    http: Served, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.register(Meta={f"key{number}": "v" * 100 for number in range(40)})
    plain, other = await http.connect(), await http.connect()
    for target, is_kept in ((f"{JOB}?pretty", True), (VERSIONS, False)):
        for _ in range(2):
            await plain.ask(head(target))
            await other.ask(gzipped(target))
        usual, tries = http.usual, Tries(monkeypatch)
        for _ in range(5):
            assert b"Content-Encoding" not in await plain.ask(head(target))
            assert b"Content-Encoding: gzip" in await other.ask(gzipped(target))
        made = 0 if is_kept else 5
        assert (http.usual - usual, tries.count) == (5, made), f"{target}: the plain one, and never the other"


@pytest.mark.parametrize(("meta", "is_fast"), [(30, True), (400, False)], ids=["some KiB", "more than is tried"])
async def test_a_long_answer_is_made_once(
    http: Served, api: Api, monkeypatch: pytest.MonkeyPatch, meta: int, is_fast: bool
) -> None:
    await api.register(Meta={f"key{number}": f"{number}" * 400 for number in range(meta)})
    wire = await http.connect()
    for request in (head(JOB), gzipped(JOB)):
        for _ in range(2):
            assert await wire.status(request) == 200
        usual, tries = http.usual, Tries(monkeypatch)
        for _ in range(5):
            assert await wire.status(request) == 200
        assert (5 - (http.usual - usual), tries.count) == ((5, 0) if is_fast else (0, 0)), request


async def test_a_change_is_seen_at_once_and_a_deletion_too(http: Served, api: Api) -> None:
    wire = await http.learnt(JOB, "/v1/jobs")
    assert (await api.register(Priority=70)).status == 200
    assert (await wire.json(JOB))["Priority"] == 70
    assert (await wire.json("/v1/jobs"))[0]["Priority"] == 70
    assert (await api.call("DELETE", f"{JOB}?purge=true")).status == 200
    assert await wire.status(head(JOB)) == 404
    assert await wire.json("/v1/jobs") == []


async def test_other_headers_take_the_usual_way_and_are_checked(http: Served) -> None:
    wire = await http.learnt(JOB)
    foreign = f"{HEADERS}Origin: http://evil.example\r\n"
    for headers in (foreign, HEADERS.replace("127.0.0.1", "evil.example"), f"{HEADERS}Sec-Fetch-Site: cross-site\r\n"):
        for _ in range(3):
            assert await wire.status(head(JOB, headers)) == 403, headers
        assert await wire.status(head(JOB)) == 200
    usual = http.usual
    own = f"{HEADERS}Sec-Fetch-Site: same-origin\r\n"
    assert [await wire.status(head(JOB, own)) for _ in range(3)] == [200] * 3
    assert http.usual == usual + 3, "a header that nobody knows to be plain"


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1\r\nConnection: close"])
async def test_a_connection_that_ends_with_its_answer_is_not_learnt(http: Served, version: str) -> None:
    wire = await http.connect()
    assert await wire.status(head(JOB).replace(b"HTTP/1.1", version.encode())) == 200
    assert await wire.is_ended() and len(http.fast_path) == 0


async def test_a_blocking_query_still_waits(http: Served, api: Api) -> None:
    wire = await http.learnt(JOB)
    index = (await wire.json(JOB))["ModifyIndex"]
    waiting = asyncio.create_task(wire.ask(head(f"{JOB}?index={index}&wait=10s")))
    assert (await api.register(Priority=60)).status == 200
    assert b'"Priority":60' in await waiting
    usual = http.usual
    assert await wire.status(head(f"{JOB}?index={index}&wait=10s")) == 200
    assert http.usual == usual + 1


async def test_a_head_that_comes_while_another_is_answered_is_not_taken_for_it(http: Served, api: Api) -> None:
    wire = await http.connect()
    index = int(re.search(rb"X-Nomad-Index: (\d+)", await wire.ask(head("/v1/jobs")))[1])  # type: ignore[index]
    wire.writer.write(head(f"/v1/jobs?index={index}"))
    await eventually(lambda: http.usual == 2)
    wire.writer.write(head("/v1/nodes"))
    await wire.writer.drain()
    await asyncio.sleep(0.05)  # it is read while the other waits
    assert (await api.register("other")).status == 200
    assert [b"JobSummary" in await wire.answer() for _ in range(2)] == [True, False]
    other = await http.connect()
    for target, is_jobs in (("/v1/nodes", False), ("/v1/jobs", True)) * 3:
        for each in (wire, other):
            assert (b"JobSummary" in await each.ask(head(target))) is is_jobs, target


async def test_a_client_that_asks_again_at_once_is_answered_past_aiohttp(http: Served) -> None:
    connection, transport = http.connection()
    connection.data_received(head(JOB))
    while b'"ID":"web"' not in transport.written:  # noqa: ASYNC110 - the very turn in which it is written
        await asyncio.sleep(0)
    usual, transport.written = http.usual, b""  # aiohttp has yet to see that its handler is done
    connection.data_received(head(JOB))
    assert transport.written.startswith(b"HTTP/1.1 200 OK") and http.usual == usual
    for target in ("/v1/nodes", JOB):
        connection.data_received(head(target))
    await eventually(lambda: http.usual == usual + 2)
    await eventually(lambda: transport.written.count(b"HTTP/1.1 200 OK") == 3)
    assert transport.written.rfind(b"SchedulingEligibility") < transport.written.rfind(b"TaskGroups"), "in order"


async def test_a_head_behind_one_that_is_not_answered_yet_is_not_learnt_as_it(http: Served) -> None:
    connection, transport = http.connection()
    connection.data_received(head("/v1/jobs"))
    connection.data_received(head("/v1/nodes?index=1"))  # which is not learnt as itself
    await eventually(lambda: transport.written.count(b"HTTP/1.1 200") == 2)
    connection.connection_lost(None)
    wire = await http.connect()
    for target, is_jobs in (("/v1/jobs", True), ("/v1/nodes?index=1", False)) * 3:
        assert (b"JobSummary" in await wire.ask(head(target))) is is_jobs, target


async def test_the_rest_of_a_head_that_came_behind_another_is_no_head(http: Served) -> None:
    wire = await http.learnt("/v1/nodes")
    assert await wire.status(head("/v1/nodes") + head(JOB)[:30]) == 200
    # To the parser these bytes are the rest of a target, not a request.
    assert await wire.status(head("/v1/nodes")) == 400


async def test_heads_in_parts_and_several_at_once_are_answered_in_order(http: Served) -> None:
    wire = await http.learnt(JOB, "/v1/nodes")
    wire.writer.write(head(JOB) + head("/v1/nodes") + head(JOB)[:20])
    assert [b'"TaskGroups"' in await wire.answer() for _ in range(2)] == [True, False]
    assert b'"TaskGroups"' in await wire.ask(head(JOB)[20:])
    wire.writer.write(head(JOB)[:30])
    await wire.writer.drain()
    await asyncio.sleep(0.05)
    # To the parser these bytes are the rest of a target, not a request.
    assert await wire.status(head("/v1/nodes")) == 400


async def test_a_body_that_looks_like_a_known_head_is_a_body(http: Served, api: Api) -> None:
    wire = await http.learnt("/v1/nodes")
    known = head("/v1/nodes")
    wire.writer.write(f"PUT /v1/jobs HTTP/1.1\r\n{HEADERS}Content-Length: {len(known)}\r\n\r\n".encode())
    await wire.writer.drain()
    await asyncio.sleep(0.05)
    assert await wire.status(known) == 400
    assert await wire.status(known) == 200


@pytest.mark.parametrize("body", [b"hello", head("/v1/status/peers")], ids=["text", "a known head"])
async def test_a_body_in_a_later_segment_is_no_request(http: Served, body: bytes) -> None:
    wire = await http.learnt("/v1/status/peers")
    request = head("/v1/status/leader", f"{HEADERS}Content-Length: {len(body)}\r\n")
    usual = http.usual
    for _ in range(3):
        assert (await wire.ask(request)).endswith(b'\r\n\r\n"127.0.0.1:4647"')
        wire.writer.write(body)
        await wire.writer.drain()
        await asyncio.sleep(0.05)
    assert b'"TaskGroups"' in await wire.ask(head(JOB)), "each answer was that to its request"
    assert http.usual == usual + 4


async def test_a_body_that_ends_as_a_head_does_is_no_part_of_it(http: Served) -> None:
    wire, body = await http.connect(), head("/v1/status/peers")
    request = head("/v1/status/leader", f"{HEADERS}Content-Length: {len(body)}\r\n") + body
    for _ in range(3):
        assert (await wire.ask(request)).endswith(b'\r\n\r\n"127.0.0.1:4647"')
    assert http.usual == 3 and len(http.fast_path) == 0


async def test_no_header_of_a_plain_read_says_that_more_belongs_to_it(http: Served) -> None:
    assert not fast_path.PLAIN_HEADERS & {"content-length", "transfer-encoding", "expect", "upgrade", "te", "trailer"}
    wire = await http.connect()
    empty = head(JOB, f"{HEADERS}Content-Length: 0\r\n")
    assert [await wire.status(empty) for _ in range(3)] == [200] * 3
    assert http.usual == 3


@pytest.mark.parametrize(
    "parts",
    [[head(JOB)[:20], head(JOB)[20:]], [head(JOB)[:-2], b"\r\n"], [head(JOB) + head(JOB)[:20], head(JOB)[20:]]],
    ids=["in the line", "before the end", "pipelined"],
)
async def test_whole_heads_after_one_in_parts_are_answered_past_aiohttp_again(http: Served, parts: list[bytes]) -> None:
    wire = await http.learnt(JOB, "/v1/nodes")
    for part in parts:
        wire.writer.write(part)
        await wire.writer.drain()
        await asyncio.sleep(0.05)
    for _ in range(b"".join(parts).count(b"GET ")):
        assert b'"TaskGroups"' in await wire.answer()
    usual = http.usual
    for _ in range(3):
        assert b'"NodePool"' in await wire.ask(head("/v1/nodes")) and b'"TaskGroups"' in await wire.ask(head(JOB))
    assert http.usual == usual + 1, "one whole head shows that the parser holds nothing"


async def test_the_end_of_one_head_with_another_behind_it_is_no_whole_head(http: Served) -> None:
    wire = await http.learnt("/v1/nodes")
    wire.writer.write(head(JOB)[:-2])
    await wire.writer.drain()
    await asyncio.sleep(0.05)
    wire.writer.write(b"\r\n" + head("/v1/nodes")[:-2])
    assert b'"TaskGroups"' in await wire.answer()
    assert b'"NodePool"' in await wire.ask(b"\r\n")


def test_the_end_of_a_body_before_a_request_line_is_no_part_of_a_head() -> None:
    request = make_mocked_request("GET", JOB)
    message = RawRequestMessage(
        "GET", JOB, HttpVersion11, request.headers, request.raw_headers, False, None, False, False, request.rel_url
    )
    whole = head(JOB)
    assert is_whole_head(whole, message)
    assert not is_whole_head(f"GET {JOB} HTTP/".encode() + whole, message)
    assert not is_whole_head(whole + whole, message)


async def test_an_idle_connection_keeps_no_request_and_never_a_long_one(http: Served) -> None:
    connection, transport = http.connection()
    for headers in (HEADERS, f"{HEADERS}X-Long: {'a' * HEAD_MAX}\r\n"):
        transport.written = b""
        connection.data_received(request := head("/v1/jobs", headers))
        assert len(connection.repeats.head[0]) == (len(request) if len(request) <= HEAD_MAX else 0)
        await eventually(lambda: transport.written.startswith(b"HTTP/1.1 200"))
        await eventually(lambda: not connection.is_at_work)
        assert connection.repeats.head == NO_HEAD
    connection.connection_lost(None)


async def test_reads_between_writes_are_answered_past_aiohttp(http: Served) -> None:
    wire = await http.learnt(JOB)
    for priority in (60, 61):
        body = json.dumps({"Job": job_document("web", Priority=priority)}).encode()
        usual = http.usual
        put = f"PUT /v1/jobs HTTP/1.1\r\n{HEADERS}Content-Length: {len(body)}\r\n\r\n".encode()
        assert await wire.status(put + body) == 200
        assert (await wire.json(JOB))["Priority"] == priority
        assert http.usual == usual + 1


async def test_a_connection_that_is_idle_after_a_write_has_begun_no_request(api: Api) -> None:
    async with served(api.server, pace=Pace(head_s=0.2)) as http:
        wire = await http.connect()
        body = json.dumps({"Job": job_document("web")}).encode()
        put = f"PUT /v1/jobs HTTP/1.1\r\n{HEADERS}Content-Length: {len(body)}\r\n\r\n".encode()
        assert await wire.status(put + body) == 200
        await asyncio.sleep(0.6)
        assert await wire.status(put + body) == 200


async def test_a_half_sent_head_after_known_ones_is_given_up(api: Api) -> None:
    async with served(api.server, pace=Pace(head_s=0.2)) as http:
        wire = await http.learnt(JOB)
        assert await wire.status(head(JOB)[:-2]) == 408
        assert await wire.is_ended()


async def test_an_idle_connection_is_closed_after_its_last_answer(api: Api) -> None:
    async with served(api.server, keepalive_timeout=1.0) as http:
        wire = await http.learnt(JOB)
        for _ in range(6):
            await asyncio.sleep(0.3)
            assert await wire.status(head(JOB)) == 200
        assert await wire.is_ended()


async def test_a_connection_whose_read_is_known_is_the_youngest(api: Api) -> None:
    async with served(api.server, limit=2) as http:
        first, second = await http.learnt(JOB), await http.connect()
        assert await second.status(head(JOB)) == 200
        assert await first.status(head(JOB)) == 200
        third = await http.connect()
        assert await third.status(head(JOB)) == 200
        assert await second.is_ended()
        assert await first.status(head(JOB)) == 200


async def test_what_is_kept_is_bounded(http: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "TARGETS_MAX", 8)
    wire = await http.learnt(JOB)
    for number in range(50):
        assert await wire.status(head(f"{JOB}?unknown={number}")) == 200
        assert len(http.fast_path) <= 8
    long = HEADERS + f"Accept: {'a' * HEAD_MAX}\r\n"
    usual = http.usual
    assert [await wire.status(head(JOB, long)) for _ in range(3)] == [200] * 3
    assert await wire.status(head(f"{JOB}?{'a' * fast_path.LINE_MAX}")) == 200
    assert http.usual == usual + 4 and len(http.fast_path) <= 8
    await http.learnt(JOB)


async def test_a_target_that_is_asked_for_stays_known(http: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "TARGETS_MAX", 8)
    wire = await http.learnt(JOB)
    for number in range(50):
        assert await wire.status(head(f"{JOB}?unknown={number}")) == 200
        usual = http.usual
        assert await wire.status(head(JOB)) == 200 and http.usual == usual


async def cancelled(*parts: Any) -> web.Response:
    waited = asyncio.get_running_loop().create_future()
    waited.cancel()
    return await waited  # type: ignore[no-any-return]


async def defect(*parts: Any) -> web.Response:
    raise KeyError("a defect")


@pytest.mark.parametrize("answer", [cancelled, defect])
async def test_a_target_that_fails_takes_the_usual_way_and_is_not_tried_again(
    http: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    wire = await http.learnt(VERSIONS)
    usual, tries = http.usual, Tries(monkeypatch, answer)
    with caplog.at_level(logging.DEBUG, logger=fast_path.__name__):
        assert [await wire.status(head(VERSIONS)) for _ in range(5)] == [200] * 5
    assert (http.usual, tries.count) == (usual + 5, 1)
    assert "route=/v1/job/{job_id}/versions" in caplog.text


def with_cookie() -> web.Response:
    response = web.json_response("other")
    response.set_cookie("a", "b")
    return response


@pytest.mark.parametrize("make", [with_cookie, lambda: web.Response(body=b"other")], ids=["cookie", "no type"])
async def test_an_answer_to_which_aiohttp_adds_headers_takes_the_usual_way(
    http: Served, monkeypatch: pytest.MonkeyPatch, make: Callable[[], web.Response]
) -> None:
    async def other(*parts: Any) -> web.Response:
        return make()

    wire = await http.learnt(VERSIONS)
    Tries(monkeypatch, other)
    assert b'"TaskGroups"' in await wire.ask(head(VERSIONS))


async def test_an_answer_that_cannot_be_sent_is_not_learnt(http: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = await http.learnt(JOB)
    known = len(http.fast_path)
    monkeypatch.setattr(dispatcher, "leader_headers", lambda context: {"X-Nomad-KnownLeader": "tr\x01ue"})
    assert await (await http.connect()).ask(head("/v1/status/leader")) == b""
    assert len(http.fast_path) == known
    assert await wire.ask(head("/v1/status/leader")) == b""


async def test_no_control_character_leaves_in_a_header(api: Api) -> None:
    own: dict[str, str] = {}
    async with served(api.server, response_headers=own) as http:
        wires = [await http.learnt(VERSIONS) for _ in range(3)]
        for wire, character in zip(wires, "\0\x01\x7f", strict=True):
            own["X-Own"] = f"a{character}b"
            assert await wire.ask(head(VERSIONS)) == b"", "aiohttp refuses it"


async def test_pages_of_jobs_with_odd_ids_are_complete_on_both_ways(http: Served, api: Api) -> None:
    ids = ["a%41b", "a\x01b", "a\nb", "a\x7fb", "é", "web", "z\t"]
    for each in ids:
        assert each == "web" or (await api.register(each)).status == 200
    wire = await http.connect()
    for _ in range(3):
        found, token = list[str](), ""
        while len(found) < len(ids):
            answer = await wire.ask(head(f"/v1/jobs?per_page=1&next_token={quote(token)}"))
            found += [job["ID"] for job in json.loads(answer.partition(b"\r\n\r\n")[2])]
            following = re.search(rb"X-Nomad-NextToken: ([!-~]+)\r\n", answer)
            token = following[1].decode() if following else ""
        assert (found, token) == (sorted(ids), "")
    assert http.usual == len(ids)


async def test_a_refused_caller_forgets_nothing_for_others() -> None:
    async with bootstrapped() as callers, served(callers.api.server, acl_enabled=True) as http:
        await callers.put("/v1/jobs", {"Job": job_document("web")})
        headers = f"{HEADERS}X-Nomad-Token: {callers.root['SecretID']}\r\n"
        wire, stranger = await http.learnt(JOB, headers=headers), await http.learnt("/v1/status/leader")
        usual = http.usual
        for _ in range(5):
            assert await stranger.status(head(JOB)) == 403
            assert await wire.status(head(JOB, headers)) == 200
        assert http.usual == usual + 5, "those of the stranger"


async def test_a_server_whose_log_is_closed_answers_no_known_read(http: Served, api: Api) -> None:
    wire = await http.learnt(JOB)
    await api.server.stop()
    usual = http.usual
    assert await wire.status(head(JOB)) >= 500
    assert http.usual == usual + 1


async def test_the_audit_log_has_a_line_for_each_read(tmp_path: Path) -> None:
    sink = AuditSinkSettings(name="file", path=tmp_path / "audit.log")
    async with (
        serving(audit=AuditSettings(sinks=(sink,))) as api,
        served(api.server, audit=api.client.server.app[AUDIT]) as http,
    ):
        wire = await http.connect()
        assert [await wire.status(head("/v1/nodes")) for _ in range(3)] == [200] * 3
        assert http.usual == 3
    assert (tmp_path / "audit.log").read_text().count('"endpoint":"/v1/nodes"') == 3
