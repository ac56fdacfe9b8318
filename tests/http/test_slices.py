"""Requests that look at many rows leave the loop to others between slices: told by the number of turns they ask for."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from urllib.parse import parse_qsl

import pytest
from aiohttp.abc import AbstractStreamWriter
from yurt.api.encode import encode_builtins
from yurt.api.page import STEP, by_name, make_page
from yurt.api.stubs import job_stub
from yurt.http.pieces import PiecesBody
from yurt.http.query import read_options
from yurt.http.resources.jobs import ALLOCS_A_SLICE
from yurt.runtime.turns import SLICE, Turns
from yurt.sdk.value import replace
from yurt.server.log.event_buffer import Event
from yurt.server.views.events import CHANGES_A_SLICE
from yurt.state import TABLES, Snapshot, Tables
from yurt.state.store import Change
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import SchedulerConfiguration
from yurt.structs.commands import ApplyPlan
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import ParameterizedJobConfig
from yurt.testing import factories
from yurt.testing.http_api import Api

ROWS = 2 * SLICE + 1
IN_SLICES = ROWS // SLICE


class CountedTurns(Turns):
    """Turns that know how many were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    async def next(self) -> None:
        self.count += 1
        await super().next()


@pytest.fixture
def turns(api: Api) -> CountedTurns:
    """The turns of a server whose state has `ROWS` jobs, evaluations, and allocations of its first job."""
    job = replace(factories.job(), create_index=1)
    jobs = [job, *(replace(job, id=f"job-{number}") for number in range(ROWS - 1))]
    ids = [factories.number_id(number) for number in range(ROWS)]
    rows: dict[str, list[tuple[Any, Any]]] = {
        "jobs": [(one.key, one) for one in jobs],
        "evals": [(one, Evaluation(id=one, job_id=job.id, status="complete", create_index=1)) for one in ids],
        "allocs": [
            (one, Allocation(id=one, namespace="default", name="web.web[0]", job_id=job.id, job=job, task_group="web"))
            for one in ids
        ],
        "scheduler_config": [("", SchedulerConfiguration(pause_eval_broker=True))],
    }
    state = api.server.state
    tables = {table.name: table for table in state.tables()} | {
        name: TABLES[name].with_rows(found, index=state.index) for name, found in rows.items()
    }
    api.server.log.writer.state = Snapshot(state.index, tables)
    api.server.log.writer.turns = counted = CountedTurns()
    return counted


@pytest.mark.parametrize(
    ("method", "path", "body", "least"),
    [
        ("GET", "/v1/jobs?prefix=nothing", None, IN_SLICES),
        ("GET", "/v1/jobs/statuses?prefix=web", None, IN_SLICES + ROWS // SLICE),
        ("GET", "/v1/allocations?prefix=ffff", None, IN_SLICES),
        ("GET", "/v1/allocations?filter=Name+%3D%3D+x", None, ROWS // STEP),
        ("GET", "/v1/deployments", None, 0),
        ("GET", "/v1/evaluations?status=failed", None, IN_SLICES),
        ("GET", "/v1/evaluations/count", None, IN_SLICES),
        ("GET", "/v1/evaluations/count?filter=Status+%3D%3D+failed", None, ROWS // STEP),
        ("DELETE", "/v1/evaluations", {"Filter": "Status == failed"}, ROWS // STEP),
        ("GET", "/v1/job/web/allocations?per_page=2", None, 2 * IN_SLICES),
        ("GET", "/v1/job/web/evaluations?per_page=2", None, 2 * IN_SLICES),
        ("GET", "/v1/job/web/scale", None, 2 * IN_SLICES),
        ("GET", "/v1/scaling/policies", None, IN_SLICES),
        ("PUT", "/v1/search", {"Prefix": "f", "Context": "allocs"}, IN_SLICES),
        ("PUT", "/v1/search/fuzzy", {"Text": "nothing", "Context": "jobs"}, IN_SLICES),
    ],
)  # fmt: skip
async def test_a_request_asks_for_a_turn_for_each_slice(
    api: Api, turns: CountedTurns, method: str, path: str, body: Any, least: int
) -> None:
    assert (await api.call(method, path, body)).status == 200
    assert turns.count >= least


async def test_a_search_shows_the_first_ids_of_all_slices(api: Api, turns: CountedTurns) -> None:
    found = (await api.put("/v1/search", {"Prefix": "0000", "Context": "allocs"})).json
    assert found["Matches"]["allocs"] == [factories.number_id(number) for number in range(20)]
    assert found["Truncations"] == {"allocs": True}


async def test_the_status_of_a_large_job_has_all_its_allocations(api: Api, turns: CountedTurns) -> None:
    (row,) = (await api.get("/v1/jobs/statuses?prefix=web")).json
    assert len({alloc["ID"] for alloc in row["Allocs"]}) == ROWS
    (filtered,) = (await api.get("/v1/jobs/statuses?prefix=web&filter=Allocs+is+not+empty")).json
    assert sorted(filtered["Allocs"], key=lambda alloc: alloc["ID"]) == sorted(
        row["Allocs"], key=lambda alloc: alloc["ID"]
    )


@pytest.mark.parametrize("query", ["", "?reverse=true", "?pretty", "?filter=ID+matches+%227%22"])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_long_list_is_sent_as_the_plain_one_would_be(
    api: Api, turns: CountedTurns, query: str, encoding: str
) -> None:
    state, options = api.server.state, read_options(dict(parse_qsl(query[1:], keep_blank_values=True)))
    page = make_page(
        state.jobs.values(), lambda job: job_stub(job, state.job_summaries.get(job.key)), key=by_name, options=options
    )
    answer = await api.get(f"/v1/jobs{query}", headers={"Accept-Encoding": encoding})
    assert answer.text == encode_builtins(page.rows, pretty=options.pretty).decode()
    assert answer.headers.get("Content-Encoding", "identity") == encoding
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert answer.headers["Content-Type"] == "application/json"
    assert int(answer.headers["Content-Length"]) > 0
    assert answer.index == max(state.jobs.index, state.job_summaries.index)


async def test_pages_of_a_long_list_follow_each_other(api: Api, turns: CountedTurns) -> None:
    shown, token = list[str](), ""
    for _ in range(3):
        page = await api.get(f"/v1/jobs?per_page=1500&next_token={token}")
        shown += [row["ID"] for row in page.json]
        token = page.headers.get("X-Nomad-NextToken", "")
    assert shown == sorted(job.id for job in api.server.state.jobs.values())
    assert not token


async def test_the_statuses_of_many_jobs_are_written_as_one_text_would_be(api: Api, turns: CountedTurns) -> None:
    for query in ("", "&pretty"):
        added = await api.get(f"/v1/jobs/statuses?prefix=w{query}")
        whole = await api.get(f"/v1/jobs/statuses?prefix=w&filter=Allocs+is+not+empty{query}")
        assert added.text.count("\n") == whole.text.count("\n")
        assert len(added.text) == len(whole.text)
        assert {**added.json[0], "Allocs": None} == {**whole.json[0], "Allocs": None}


async def test_the_allocations_of_jobs_with_a_few_each_are_counted_together_for_a_turn(api: Api) -> None:
    jobs = [replace(factories.job(), id=f"job-{number}", create_index=1, modify_index=number) for number in range(9)]
    allocs = [
        Allocation(id=factories.number_id(number), namespace="default", job_id=job.id, job=job, task_group="web")
        for number, job in enumerate(jobs * (ALLOCS_A_SLICE // 2))
    ]
    state = api.server.state
    tables = {table.name: table for table in state.tables()} | {
        "jobs": Tables.jobs.with_rows([(one.key, one) for one in jobs], index=1),
        "allocs": Tables.allocs.with_rows([(one.id, one) for one in allocs], index=1),
    }
    api.server.log.writer.state = Snapshot(state.index, tables)
    api.server.log.writer.turns = turns = CountedTurns()
    answer = await api.get("/v1/jobs/statuses")
    assert turns.count == 4
    assert [row["ID"] for row in answer.json] == [f"job-{number}" for number in reversed(range(9))]
    assert {len(row["Allocs"]) for row in answer.json} == {ALLOCS_A_SLICE // 2}
    assert answer.text == (await api.get("/v1/jobs/statuses?filter=Allocs+is+not+empty")).text


async def test_the_children_of_a_job_are_counted_in_slices_in_the_order_of_their_ids(api: Api) -> None:
    parent = replace(factories.job(), create_index=1, parameterized_job=ParameterizedJobConfig())
    children = [
        replace(factories.job(), id=f"web/{number:05}", parent_id="web", status=f"{number % 7}", create_index=1)
        for number in range(ROWS)
    ]
    state = api.server.state
    jobs = Tables.jobs.with_rows([(one.key, one) for one in (*children, parent)], index=1)
    api.server.log.writer.state = Snapshot(
        state.index, {table.name: table for table in state.tables()} | {"jobs": jobs}
    )
    api.server.log.writer.turns = turns = CountedTurns()
    (row,) = (await api.get("/v1/jobs/statuses")).json
    assert row["ChildStatuses"] == [child.status for child in children]
    assert turns.count >= 2 * IN_SLICES
    (whole,) = (await api.get("/v1/jobs/statuses?filter=ChildStatuses+is+not+empty")).json
    assert row == whole


async def test_the_loop_has_a_turn_between_two_pieces_of_an_answer() -> None:
    sent: list[tuple[int, bytes]] = []
    others = 0

    class Writer:
        async def write(self, piece: bytes) -> None:
            sent.append((others, piece))

    async def count_turns() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    body = PiecesBody([b"a", b"b", b"c"])
    assert (body.size, body.decode()) == (3, "abc")
    await body.write(cast(AbstractStreamWriter, Writer()))
    counting.cancel()
    assert [piece for _, piece in sent] == [b"a", b"b", b"c"]
    assert len({turn for turn, _ in sent}) == 3


async def test_the_rows_of_an_event_are_written_in_slices(api: Api) -> None:
    alloc = Allocation(id="a", namespace="default", job_id="web")
    changes = tuple(Change("allocs", str(number), None, alloc) for number in range(3 * CHANGES_A_SLICE))
    index = api.server.state.index + 1
    api.server.log.events.add(Event(index, changes, ApplyPlan.event_type))
    api.server.log.writer.turns = turns = CountedTurns()
    async with api.client.get(f"/v1/event/stream?topic=Allocation&index={index}") as response:
        await response.content.readline()
        line = b""
        while not line.endswith(b"\n"):
            line += await response.content.readany()
    assert len(json.loads(line)["Events"]) == len(changes)
    assert turns.count == 2


async def test_the_index_of_a_job_s_rows_is_that_of_the_newest_in_any_slice(api: Api, turns: CountedTurns) -> None:
    state = api.server.state
    alloc = state.allocs[factories.number_id(7)]
    edit = state.edit(state.index + 1)
    edit.put(Tables.allocs, alloc.id, replace(alloc, modify_index=state.index + 1))
    api.server.log.writer.state = changed = edit.commit()
    for path in ("/v1/job/web/allocations?per_page=2", "/v1/job/web/scale"):
        assert (await api.get(path)).index == changed.index
