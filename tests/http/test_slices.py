"""Requests that look at many rows leave the loop to others between slices: told by the number of turns they ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from yurt.api.page import STEP
from yurt.http.events import CHANGES_A_SLICE
from yurt.runtime.turns import SLICE, Turns
from yurt.sdk.value import replace
from yurt.server.events import Event
from yurt.state import Snapshot
from yurt.state.store import INDEXES, Change
from yurt.state.table import Table
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import Evaluation
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
    }
    state = api.server.state
    tables = {table.name: table for table in state.tables()} | {
        name: Table.restored(name, INDEXES[name], index=state.index, rows=found) for name, found in rows.items()
    }
    api.server.writer.state = Snapshot(state.index, tables)
    api.server.writer.turns = counted = CountedTurns()
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


async def test_the_rows_of_an_event_are_written_in_slices(api: Api) -> None:
    alloc = Allocation(id="a", namespace="default", job_id="web")
    changes = tuple(Change("allocs", str(number), None, alloc) for number in range(3 * CHANGES_A_SLICE))
    index = api.server.state.index + 1
    api.server.events.add(Event(index, changes, "ApplyPlan"))
    api.server.writer.turns = turns = CountedTurns()
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
    edit.put("allocs", alloc.id, replace(alloc, modify_index=state.index + 1))
    api.server.writer.state = changed = edit.commit()
    for path in ("/v1/job/web/allocations?per_page=2", "/v1/job/web/scale"):
        assert (await api.get(path)).index == changed.index
