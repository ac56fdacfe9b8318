"""Measures the web UI's load on a server: lists of 10,000 jobs and 100,000 allocations, changes, 100 idle pages.

The server runs in this process, beside a client on loopback. Times are those of the client, CPU time is that
of the whole process, client included. Run it with `python -m bench ui`, with `--scale 0.1` for a tenth of the rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from yurt.testing.http_api import Api, serving

from bench.pauses_worlds import Sizes, live
from bench.table import Row, print_table

JOBS, ALLOCS_OF_BIG, NODES = 10_000, 10, 5_000
PAGES: Final = 100
"""As many as connections that aiohttp's client opens."""
IDLE_S: Final = 10.0
TIMES: Final = 5
FILTERED: Final = "jobs?namespace=*&where=Status:running&search=job-00&facets=Type"
SLIM: Final = "/v1/yurt/jobs?namespace=*&per_page=10000&fields=ID,Status,Type,Running,Desired,Priority"
VIEWS: Final = ({"ID": "j", "Kind": "jobs"}, {"ID": "o", "Kind": "overview"})
PARAMS: Final = [("view", json.dumps(view)) for view in VIEWS]


@asynccontextmanager
async def world(scale: float) -> AsyncIterator[Api]:
    """A server with many jobs."""
    nodes, jobs = max(1, round(NODES * scale)), max(1, round(JOBS * scale))
    sizes = Sizes(nodes=nodes, jobs=jobs, big=ALLOCS_OF_BIG, dead_jobs=1, blocked=100)
    async with serving() as api:
        api.server.log.writer.state = live(sizes)
        yield api


async def timed_ms(work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """The median and the longest of some runs."""
    found = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        await work()
        found.append((time.perf_counter() - begun) * 1000)
    return statistics.median(found), max(found)


async def fetch(api: Api, path: str) -> bytes:
    """The body of an answer as it travels."""
    headers = {"Accept-Encoding": "gzip"}
    async with api.client.get(path, headers=headers, auto_decompress=False) as response:
        assert response.status == 200, await response.text()
        return await response.read()


async def first_rows(api: Api) -> Row:
    """The first page while nothing is kept."""

    async def cold() -> None:
        api.server.read_models.reset()
        await fetch(api, "/v1/yurt/jobs?namespace=*&facets=Status,Type&sort=-SubmitTime")

    median, longest = await timed_ms(cold)
    return Row("first rows, nothing kept, ms (longest)", "", f"{median:.0f} ({longest:.0f})", "1000")


async def lists(api: Api) -> list[Row]:
    """Lists while the rows are kept."""
    rows = []
    for what, path, target in (
        ("jobs: filter and facets, ms (longest)", FILTERED, "100"),
        ("jobs: sort by any column, ms (longest)", "jobs?namespace=*&sort=-Running,Name", "100"),
        ("allocations: all, facets, ms (longest)", "allocations?namespace=*&facets=Status&sort=-CreateTime", "1000"),
        ("nodes, ms (longest)", "nodes?sort=Name", "100"),
        ("overview, ms (longest)", "overview?namespace=*", "100"),
    ):
        median, longest = await timed_ms(lambda path=path: fetch(api, f"/v1/yurt/{path}"))  # type: ignore[misc]
        rows.append(Row(what, "", f"{median:.0f} ({longest:.0f})", target))
    size = len(await fetch(api, SLIM))
    rows.append(Row("all jobs, 6 fields, KB compressed", "", f"{size / 1000:.0f}", "120"))
    return rows


async def idle_pages(api: Api) -> Row:
    """CPU of open pages while nothing changes."""
    async with AsyncExitStack() as stack:
        for _ in range(PAGES):
            await stack.enter_async_context(api.client.get("/v1/yurt/watch", params=PARAMS))
        await asyncio.sleep(1)
        begun, wall = time.process_time(), time.perf_counter()
        await asyncio.sleep(IDLE_S)
        percent = (time.process_time() - begun) / (time.perf_counter() - wall) * 100
    return Row(f"{PAGES} open pages, nothing changes: % of a core", "", f"{percent:.2f}", "5")


async def changes() -> Row:
    """How long a change takes from its request to the line of an open page, on a small server."""
    delays = []
    options: Any = {"headers": {"Accept-Encoding": "gzip"}, "auto_decompress": False}
    async with serving() as api, api.client.get("/v1/yurt/watch", params=PARAMS, **options) as reader:
        unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        for number in range(TIMES):
            await asyncio.sleep(1)
            begun, text = time.perf_counter(), b""
            await api.register(name := f"job-{number}")
            while name.encode() not in text:
                text += unzip.decompress(await reader.content.readany())
            delays.append((time.perf_counter() - begun) * 1000)
    return Row(
        "change to a page's line, ms (longest)", "", f"{statistics.median(delays):.0f} ({max(delays):.0f})", "300"
    )


async def measure(scale: float) -> list[Row]:
    """All rows of the table."""
    from bench.ui_browser import browser_rows

    async with world(scale) as api, serving() as small:
        rows = [await first_rows(api), *await lists(api), await idle_pages(api), await changes()]
        return rows + await browser_rows(api, small, asyncio.sleep)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench ui")
    parser.add_argument("--scale", type=float, default=1.0)
    scale = parser.parse_args().scale
    title = f"web UI, {JOBS * scale:.0f} jobs of 10 allocations, {NODES * scale:.0f} nodes"
    print_table(title, asyncio.run(measure(scale)), other="")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}")
