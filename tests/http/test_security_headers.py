"""Files and logs of tasks, and all else that an agent answers, are data for a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from yurt.http.agent_info import AgentInfo
from yurt.http.api_port import ApiPart, ApiRequest
from yurt.http.app import make_app
from yurt.http.edge.security_headers import inert_type
from yurt.http.route_table import ROUTES
from yurt.http.routes import Route
from yurt.structs.rpc import FileInfo, StreamFrame
from yurt.testing.http_api import NODE_ID, UNKNOWN_ID, Api

HTML = b"<!doctype html><script>alert(document.domain)</script>"
POLICY = "sandbox; default-src 'none'"
CONTENT = "/v1/client/fs/"
NAMES = {
    "page.html": "text/html; charset=utf-8", "page.HTM": "text/html", "image.svg": "image/svg+xml",
    "page.xhtml": "application/xhtml+xml", "feed.xml": "application/xml", "code.js": "text/javascript",
    "paper.pdf": "application/pdf", "noname": "", "x.mhtml": "multipart/related", "odd": "TEXT/HTML",
}  # fmt: skip
PLAIN = ("text/plain; charset=utf-8", "application/octet-stream")
ENDLESS = ("/v1/event/stream", "/v1/agent/monitor", "/v1/yurt/watch")


class HtmlNode:
    """A connected node on which every file and log is a page of HTML, and says so."""

    async def list_files(self, alloc_id: str, path: str) -> tuple[FileInfo, ...]:
        return tuple([await self.stat_file(alloc_id, name) for name in NAMES])

    async def stat_file(self, alloc_id: str, path: str) -> FileInfo:
        kind = NAMES.get(path, "text/html")
        return FileInfo(name=path, is_dir=False, size=1, file_mode="-rw-r--r--", mod_time=1, content_type=kind)

    async def read_file(self, alloc_id: str, path: str, *, offset: int, limit: int) -> AsyncIterator[bytes]:
        yield HTML

    async def stream_file(
        self, alloc_id: str, path: str, *, offset: int, origin: str, follow: bool
    ) -> AsyncIterator[StreamFrame]:
        yield StreamFrame(data=HTML, file=path)

    async def stream_logs(
        self, alloc_id: str, task: str, *, kind: str, offset: int, origin: str, follow: bool
    ) -> AsyncIterator[StreamFrame]:
        yield StreamFrame(data=HTML, file=task)


@pytest.fixture
async def alloc_id(api_with_node: Api) -> str:
    """An allocation on that node."""
    node: Any = HtmlNode()
    api_with_node.server.clients.node_ports.attach(NODE_ID, node)
    await api_with_node.register()
    (stub,) = await api_with_node.wait_until("/v1/job/web/allocations", len)
    return str(stub["ID"])


def contents(route: Route) -> bool:
    """Whether a route gives what a task wrote; the others below it list names, as the API's JSON."""
    return not route.path.startswith((f"{CONTENT}ls", f"{CONTENT}stat", f"{CONTENT}{{path"))


def filled(path: str, alloc_id: str) -> str:
    """A path of a route with its parameters filled in."""
    while "{" in path:
        start = path.index("{")
        path = path[:start] + alloc_id + path[path.rindex("}") + 1 if path.count("{") == 1 else path.index("}") + 1 :]
    return path


@pytest.mark.parametrize(
    "route", [each for each in ROUTES if each.path.startswith("/v1/client/fs")], ids=lambda route: route.path
)
async def test_every_route_of_files_and_logs_is_inert_for_every_name(
    api_with_node: Api, alloc_id: str, route: Route
) -> None:
    for name in NAMES:
        query = f"path={name}&offset=0&limit=9&follow=false&task=main&type=stdout&plain=true"
        async with api_with_node.client.get(f"{filled(route.path, alloc_id)}?{query}") as answer:
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Content-Security-Policy"] == POLICY
            kind = answer.headers["Content-Type"]
            assert kind in PLAIN or (kind.startswith("application/json") and not contents(route)), (name, kind)


async def test_every_route_forbids_to_guess_and_to_run(api_with_node: Api, alloc_id: str) -> None:
    assert api_with_node.client.app is not None
    paths = {resource.canonical for resource in api_with_node.client.app.router.resources()}
    assert any(path.startswith(CONTENT) for path in paths)
    for path in sorted(path for path in paths if path not in ENDLESS and not path.startswith("/ui")):
        for given in (alloc_id, UNKNOWN_ID):
            async with api_with_node.client.get(filled(path, given), allow_redirects=False) as answer:
                assert answer.headers["X-Content-Type-Options"] == "nosniff", path
                assert answer.headers["Content-Security-Policy"] == POLICY, path
                assert not answer.headers.get("Content-Type", "").startswith("text/html"), path


class Far:
    """The API of another agent, which knows nothing of this."""

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncIterator[ApiPart]:
        yield ApiPart(status=200, headers={"Content-Type": "text/html", "Content-Security-Policy": "default-src *"})
        yield ApiPart(data=HTML)


@asynccontextmanager
async def client_agent(**headers: str) -> AsyncIterator[TestClient[Any, Any]]:
    agent = AgentInfo(version="0.1.0", name="test", dev=False, plugins=(), response_headers=headers)
    far: Any = Far()
    async with TestClient(TestServer(make_app(None, None, agent, servers=far))) as client:
        yield client


@pytest.mark.parametrize("way", ["cat", "logs", "readat", "stream"])
async def test_what_another_agent_answers_is_inert_too(way: str) -> None:
    async with client_agent() as client, client.get(f"{CONTENT}{way}/{UNKNOWN_ID}?path=x") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers.getall("Content-Security-Policy") == [POLICY]


async def test_headers_of_the_operator_do_not_lift_it_for_files() -> None:
    given = {"Content-Security-Policy": "default-src *", "X-Content-Type-Options": "off"}
    async with client_agent(**given) as client, client.get(f"{CONTENT}cat/{UNKNOWN_ID}?path=x") as answer:
        assert answer.headers["Content-Security-Policy"] == POLICY
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("found", "given"),
    [
        ("text/html", PLAIN[0]), ("application/json", PLAIN[0]), ("", PLAIN[0]),
        ("image/svg+xml", PLAIN[1]), ("image/png", PLAIN[1]), ("application/xhtml+xml", PLAIN[1]),
    ],
)  # fmt: skip
def test_a_file_comes_as_text_or_as_bytes(found: str, given: str) -> None:
    assert inert_type(found) == given
