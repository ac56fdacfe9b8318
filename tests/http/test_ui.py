"""The pages for a browser show jobs, allocations and nodes, and never the markup of a stranger."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from aiohttp.test_utils import TestClient, TestServer
from yurt.access import Access, Capability
from yurt.http.agent_info import AgentInfo
from yurt.http.agent_routes import ui
from yurt.http.app import make_app
from yurt.sdk.value import UnixNano, replace
from yurt.server.views import View
from yurt.structs.alloc import TaskEvent, TaskState
from yurt.structs.commands import AllocUpdate, RegisterNode, UpdateAllocsFromClient
from yurt.testing.authorities import Grants
from yurt.testing.http_api import NODE_ID, Api, add_ready_node, job_document, ready_node, serving

ATTACK = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]


async def page_of(api: Api, path: str) -> str:
    answer = await api.get(path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8"), answer.text
    return answer.text


@pytest.mark.parametrize("path", ["/", "/ui"])
async def test_the_root_leads_to_the_pages(api: Api, path: str) -> None:
    answer = await api.get(f"{path}?a=b")

    assert (answer.status, answer.headers["Location"]) == (307, "/ui/?a=b")


async def test_an_empty_cluster_says_what_to_do(api: Api) -> None:
    text = await page_of(api, "/ui/plain/")

    assert "No jobs. Write one with `yurt job init`" in text
    assert "No nodes." in text
    assert "Yurt 0.1.0" in text
    assert f'http-equiv="refresh" content="{ui.REFRESH_S}"' in text


async def test_the_page_of_a_job_that_waits_tells_all_that_is_in_the_way(api_with_node: Api) -> None:
    group = job_document()["TaskGroups"][0] | {"Count": 2}
    group["Tasks"][0]["Resources"] = {"CPU": 90_000, "MemoryMB": 90_000}
    await api_with_node.register("large", TaskGroups=[group])
    await api_with_node.wait_until("/v1/job/large/evaluations", lambda evals: "blocked" in [e["Status"] for e in evals])

    text = await page_of(api_with_node, "/ui/plain/jobs/large")

    assert "Group group: 2 not placed. 1 node was looked at; blocked by: cpu (1), memory (1)." in text
    assert "`yurt job why-not large` names the nearest nodes and the smallest change." in text


async def test_the_servers_and_who_leads_are_shown(api: Api) -> None:
    text = await page_of(api, "/ui/plain/")

    (member,) = (await api.get("/v1/agent/members")).json["Members"]
    row = next(line for line in text.splitlines() if member["Name"] in line)
    assert 'class="good">alive' in row and "<td>leader</td>" in row


async def test_jobs_nodes_and_allocations_are_shown(api_with_node: Api) -> None:
    api = api_with_node
    await api.register("group/web")
    await api.wait_until("/v1/job/group/web/allocations", len)

    start = await page_of(api, "/ui/plain/")
    job = await page_of(api, "/ui/plain/jobs/group/web")

    assert "/ui/plain/jobs/group/web" in Tags(start).links
    assert "worker" in start and "mock_driver" in start and "1 starting" in start
    (stub,) = (await api.get("/v1/job/group/web/allocations")).json
    assert stub["ID"][:8] in job and "worker" in job and 'class="wait">pending' in job
    assert (await api.get("/ui/plain/jobs/nope")).status == 404


async def test_a_job_of_another_namespace_is_reached_by_its_link(api: Api) -> None:
    await api.put("/v1/namespace", {"Name": "other"})
    await api.register("a b&c", Namespace="other", ID="a-b&c?")

    (link,) = [link for link in Tags(await page_of(api, "/ui/plain/")).links if link.startswith("/ui/plain/jobs/")]

    assert link == "/ui/plain/jobs/a-b%26c%3F?namespace=other"
    assert "<h2>a-b&amp;c?</h2>" in await page_of(api, link)


async def test_what_strangers_write_is_never_markup(api: Api) -> None:
    node = replace(ready_node(), name=ATTACK, node_class=ATTACK, datacenter=ATTACK)
    await api.server.replica.propose(RegisterNode(node=node))
    await api.put(f"/v1/node/{NODE_ID}/eligibility", {"Eligibility": "eligible"})
    job_id = ATTACK.replace(" ", "")
    assert (await api.register(job_id, Name=ATTACK)).status == 200
    await api.server.resources.nodes.evaluate(NODE_ID)

    pages = [await page_of(api, "/ui/plain/")]
    pages += [await page_of(api, link) for link in Tags(pages[0]).links if link.startswith("/ui/plain/jobs/")]
    pages.append((await api.get(f"/ui/plain/jobs/{ATTACK}")).text)

    assert len(pages) == 3
    for text in pages:
        assert not {"script", "img"} & Tags(text).found
        assert not {name for name in Tags(text).attributes if name.startswith("on")}
        assert "&lt;script&gt;" in text


async def test_events_of_tasks_are_escaped_too(api_with_node: Api) -> None:
    api = api_with_node
    await api.register()
    (stub,) = await api.wait_until("/v1/job/web/allocations", len)
    event = TaskEvent(type="Driver Failure", display_message=ATTACK, time=UnixNano(5))
    update = AllocUpdate(
        id=stub["ID"], node_id=NODE_ID, client_status="failed", task_states={ATTACK: TaskState(events=(event,))}
    )
    await api.server.replica.propose(UpdateAllocsFromClient(updates=(update,)))

    text = await page_of(api, "/ui/plain/jobs/web")

    assert not {"script", "img"} & Tags(text).found
    assert "Driver Failure: &lt;script&gt;" in text and 'class="bad">failed' in text


async def test_the_policy_allows_the_pages_own_style_and_nothing_else(api: Api) -> None:
    answer = await api.get("/ui/plain/")

    style = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_the_pages_can_be_switched_off(api: Api) -> None:
    app = make_app(api.server.http, None, AgentInfo(ui_enabled=False))
    async with TestClient(TestServer(app)) as client, client.get("/ui/plain/") as answer:
        assert (answer.status, "ui.enabled is false" in await answer.text()) == (404, True)


def test_a_table_says_when_it_is_not_whole() -> None:
    assert '<p class="dim">The first 1 of 9.</p>' in ui.Part("x", headers=("a",), rows=[("b",)], total=9).html()


async def test_a_table_has_a_bounded_number_of_rows(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui, "ROWS_MAX", 2)
    for name in ("c", "a", "b"):
        await api.register(name)

    part = ui.jobs_part(View(api.server.state, Access()))

    assert [row[0] for row in part.rows] == [ui.job_link("default", "a"), ui.job_link("default", "b")]
    assert "The first 2 of 3." in part.html()


async def test_the_start_page_shows_the_jobs_of_the_callers_namespace_and_no_nodes() -> None:
    grants = Grants("own", Capability.LIST_JOBS)
    grants.is_on = False
    async with serving(authority=grants) as api:
        await add_ready_node(api)
        for name in ("own", "other"):
            assert (await api.call("PUT", "/v1/namespace", {"Name": name})).status == 200
            body = {"Job": job_document(f"of-{name}", Namespace=name)}
            assert (await api.call("PUT", "/v1/jobs", body)).status == 200
        grants.is_on = True
        page = (await api.get("/ui/plain/")).text
    assert "of-own" in page
    assert not [word for word in ("of-other", "<h2>Nodes</h2>", "<h2>Servers</h2>") if word in page]
