"""The watch: changed rows of many views in one stream, rows that are gone, lost changes, and rights that end."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from yurt.access import Capability
from yurt.http.ui_routes import watch
from yurt.server import read_models
from yurt.structs.commands import AllocUpdate, UpdateAllocsFromClient
from yurt.structs.member import FAILED
from yurt.testing.authorities import Grants
from yurt.testing.fake_cluster import FakeCluster, member
from yurt.testing.http_api import NODE_ID, Api, add_ready_node, job_document, serving

LIMIT_S = 60.0
JOBS = {"ID": "j", "Kind": "jobs", "Fields": ["Status"]}


class Reader:
    """Lines of a watch."""

    def __init__(self, response: Any) -> None:
        self._content = response.content
        self._unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._rest = b""

    async def line(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            piece = await self._content.readany()
            assert piece, "the stream has ended"
            self._rest += self._unzip.decompress(piece)
        first, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(first)
        return found

    async def until(self, expected: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        async with asyncio.timeout(LIMIT_S):
            while not expected(found := await self.line()):
                pass
        return found


@asynccontextmanager
async def watching(api: Api, *views: dict[str, Any], index: int | None = None) -> AsyncIterator[Reader]:
    params = [("view", json.dumps(each)) for each in views] + ([] if index is None else [("index", str(index))])
    options: Any = {"headers": {"Accept-Encoding": "gzip"}, "auto_decompress": False}
    async with api.client.get("/v1/yurt/watch", params=params, **options) as response:
        assert response.status == 200, await response.text()
        reader = Reader(response)
        assert "Index" in await reader.line()
        yield reader


def rows_of(line: dict[str, Any], view: str) -> dict[str, Any]:
    found: dict[str, Any] = line.get("Views", {}).get(view, {}).get("Columns", {})
    return found


async def test_one_stream_tells_of_rows_in_several_views(api_with_node: Api) -> None:
    api = api_with_node
    views = (
        JOBS, {"ID": "only", "Kind": "jobs", "Where": ["Type:service"], "Fields": ["ID"]},
        {"ID": "a", "Kind": "allocations", "Namespace": "default", "Job": "web", "Fields": ["JobID", "Status"]},
        {"ID": "n", "Kind": "nodes", "Fields": ["Allocations", "CardList"]}, {"ID": "o", "Kind": "overview"},
    )  # fmt: skip
    async with watching(api, *views) as reader:
        await api.register("web")
        line = await reader.until(lambda line: rows_of(line, "a"))
        assert rows_of(line, "a")["JobID"] == ["web"] and "only" not in line["Views"]
        assert rows_of(line, "j")["ID"] == ["web"] and rows_of(line, "j")["Namespace"] == ["default"]
        assert rows_of(line, "n") == {"ID": [NODE_ID], "Allocations": [1], "CardList": [[]]}
        assert line["Views"]["o"]["Overview"]["Jobs"]["Total"] == 1
        assert line["Index"] <= api.server.state.index


async def test_an_overview_tells_of_a_server_that_fails_while_no_row_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BEAT_S", 0.05)
    cluster = FakeCluster(member("srv1"), member("srv2"))
    async with serving(cluster=cluster) as api, watching(api, {"ID": "o", "Kind": "overview"}) as reader:
        await reader.until(lambda line: "Views" in line)  # the servers as they are when the stream begins
        assert "Views" not in await reader.line()
        cluster.fixed = (member("srv1"), member("srv2", status=FAILED))
        line = await reader.until(lambda line: "Views" in line)
        (problem,) = line["Views"]["o"]["Overview"]["Attention"]
        assert (problem["Kind"], problem["Name"], problem["Status"]) == ("server", "srv2.global", "failed")
        assert "Views" not in await reader.line()


async def test_a_row_that_leaves_a_view_is_gone(api: Api) -> None:
    await api.register("web")
    view = JOBS | {"Where": ["Stop:false"]}
    async with watching(api, view) as reader:
        await api.call("DELETE", "/v1/job/web")
        line = await reader.until(lambda line: line.get("Views", {}).get("j", {}).get("Gone"))
        assert line["Views"]["j"] == {"Gone": [["default", "web"]]}


async def test_nothing_is_lost_between_a_list_and_its_stream(api: Api) -> None:
    index = (await api.get("/v1/yurt/jobs")).json["Index"]
    await api.register("between")
    await api.get("/v1/yurt/jobs")
    async with watching(api, JOBS, index=index) as reader:
        assert rows_of(await reader.until(lambda line: rows_of(line, "j")), "j")["ID"] == ["between"]


async def test_a_reader_that_knows_too_little_reads_its_lists_again(api: Api) -> None:
    await api.register("old")
    await api.register("older")
    await api.get("/v1/yurt/jobs")
    async with watching(api, JOBS, {"ID": "o", "Kind": "overview"}, index=1) as reader:
        assert (await reader.until(lambda line: "Resync" in line))["Resync"] == ["j", "o"]
        await api.register("new")
        assert "new" in rows_of(await reader.until(lambda line: rows_of(line, "j")), "j")["ID"]


async def test_a_reader_that_knows_a_longer_log_reads_its_lists_again(api: Api) -> None:
    await api.register("restored")
    index = (await api.get("/v1/yurt/jobs")).json["Index"]
    async with watching(api, JOBS, index=index + 100) as reader:
        assert await reader.line() == {"Index": index, "Resync": ["j"]}
        await api.register("new")
        assert "new" in rows_of(await reader.until(lambda line: rows_of(line, "j")), "j")["ID"]


async def test_another_state_makes_readers_begin_anew(api: Api) -> None:
    async with watching(api, JOBS) as reader:
        await api.register("first")
        await reader.until(lambda line: rows_of(line, "j"))
        api.server.read_models.reset()
        await api.register("second")
        line = await reader.until(lambda line: "Resync" in line or "second" in rows_of(line, "j").get("ID", ()))
        assert line


async def test_changes_that_are_too_many_to_note_are_a_resync(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_models, "BATCH_ROWS_MAX", 2)
    async with watching(api, JOBS) as reader:
        for number in range(6):
            await api.register(f"job-{number}")
        seen = set[str]()

        def is_told(line: dict[str, Any]) -> bool:
            seen.update(rows_of(line, "j").get("ID", ()))
            return "Resync" in line or len(seen) == 6

        assert await reader.until(is_told)


@pytest.fixture
async def granted() -> AsyncIterator[tuple[Api, Grants]]:
    grants = Grants("own", Capability.LIST_JOBS)
    grants.is_on = False
    async with serving(authority=grants) as api:
        await add_ready_node(api)
        for namespace, job_id in (("own", "mine"), ("other", "secret")):
            await api.put("/v1/namespace", {"Name": namespace})
            await api.put("/v1/jobs", {"Job": job_document(job_id, Namespace=namespace)})
        await api.wait_until("/v1/allocations?namespace=*", lambda rows: len(rows) == 2)
        grants.is_on = True
        yield api, grants


async def test_a_reader_is_told_of_its_own_namespaces_only(granted: tuple[Api, Grants]) -> None:
    api, _ = granted
    updates = tuple(
        AllocUpdate(id=alloc.id, node_id=NODE_ID, client_status="running") for alloc in api.server.state.allocs.values()
    )
    async with watching(api, JOBS, {"ID": "o", "Kind": "overview"}) as reader:
        await api.server.replica.propose(UpdateAllocsFromClient(updates=updates, now=api.server.replica.env.now()))
        line = await reader.until(lambda line: rows_of(line, "j"))
        assert "secret" not in json.dumps(line) and rows_of(line, "j")["ID"] == ["mine"]
        assert line["Views"]["o"]["Overview"]["Jobs"]["Total"] == 1 and line["Views"]["o"]["Overview"]["Nodes"] is None


@pytest.mark.parametrize(
    "view",
    [{"Kind": "nodes"}, {"Kind": "allocations"}, {"Kind": "jobs", "Namespace": "other"},
     {"Kind": "overview", "Namespace": "other"}],
)  # fmt: skip
async def test_a_forbidden_view_is_refused(granted: tuple[Api, Grants], view: dict[str, str]) -> None:
    api, _ = granted
    answer = await api.get("/v1/yurt/watch", params={"view": json.dumps({"ID": "x", **view})})
    assert answer.status == 403


@pytest.mark.parametrize(
    ("views", "text"),
    [
        ([], "0 views to watch"), (["{}"], "needs an ID"), (["[1]"], "not a JSON object"),
        (['{"ID":"a","Kind":"<b>"}'], "unknown kind"),
        (['{"ID":"a","Kind":"jobs","Fields":["Nope"]}'], 'no field "Nope"'),
        (['{"ID":"a","Kind":"jobs"}'] * 2, "needs an ID of its own"), (["x" * 5_000], "longer than"),
        (['{"ID":"a","Kind":"jobs","Filter":"Nope == 1"}'], "Nope"),
        ([f'{{"ID":"{n}"}}' for n in range(33)], "33 views"),
    ],
)  # fmt: skip
async def test_a_view_that_cannot_be_read_is_refused(api: Api, views: list[str], text: str) -> None:
    answer = await api.get("/v1/yurt/watch", params=[("view", each) for each in views])
    assert answer.status == 400 and text in answer.text
