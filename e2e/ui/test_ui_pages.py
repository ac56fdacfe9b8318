"""Every page of the web UI in a real browser: what it shows, in all widths and themes; nothing hostile runs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from yurt.testing.agent import Agent, wait_for

from e2e.ui.conftest import HOSTILE_NAME, ONE_TRY, job, task, visit

WIDTHS = (360, 1280, 3840)
"""A phone, a laptop, and the widest, which shows what a laptop does with more room: that one is for pictures alone."""
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
BOTH_THEMES = ("overview", "jobs", "job", "why", "run")
SHOTS = os.environ.get("YURT_UI_SHOTS", "")
"""Where `make ui-shots` wants pictures of all pages."""
TOUR = ("overview", "jobs", "job", "why", "logs", "run")
PICTURES = Path(__file__).resolve().parents[2] / "docs/tutorial/pictures"
NODES_MAX = 3000
PAGES: dict[str, tuple[str, str]] = {
    "overview": ("/ui/", "Needs attention"),
    "jobs": ("/ui/jobs", "everywhere"),
    "run": ("/ui/jobs/run", "Plan"),
    "waiting": ("/ui/waiting", "big"),
    "what-if": ("/ui/what-if", "Choose a change"),
    "job": ("/ui/jobs/web", "Task groups"),
    "job-allocations": ("/ui/jobs/web/allocations", "web.app[0]"),
    "why": ("/ui/jobs/big/why", "Smallest change that helps"),
    "logs": ("/ui/jobs/web/logs", "tick"),
    "timeline": ("/ui/jobs/web/timeline", "Version 0 registered"),
    "deployments": ("/ui/jobs/web/deployments", "Healthy"),
    "versions": ("/ui/jobs/web/versions", "Version 0"),
    "job-evaluations": ("/ui/jobs/web/evaluations", "job-register"),
    "job-services": ("/ui/jobs/web/services", "web-service"),
    "definition": ("/ui/jobs/written/definition", "Variables that the job may read"),
    "scaling": ("/ui/jobs/web/scaling", " desired, "),
    "commands": ("/ui/jobs/web/commands", "hello"),
    "children": ("/ui/jobs/convert/children", "hildren"),
    "periodic": ("/ui/jobs/nightly", "0 3 1 1 *"),
    "system": ("/ui/jobs/everywhere/nodes", "The job there"),
    "allocations": ("/ui/allocations", "crash.app[0]"),
    "nodes": ("/ui/nodes", "ready"),
    "topology": ("/ui/topology", "nodes"),
    "cards": ("/ui/cards", "No node has cards"),
    "servers": ("/ui/servers", "leader"),
    "evaluations": ("/ui/evaluations", "job-register"),
    "all-deployments": ("/ui/deployments", "web"),
    "services": ("/ui/services", "web-service"),
    "storage": ("/ui/storage", "No host volumes"),
    "plugins": ("/ui/storage?tab=plugins", "No CSI plugin"),
    "variables": ("/ui/variables?flat=1", "nomad/jobs/web"),
    "variable": ("/ui/variables/nomad/jobs/web", "password"),
    "namespaces": ("/ui/namespaces", "default"),
    "quotas": ("/ui/namespaces?tab=quotas", "None."),
    "pools": ("/ui/pools", "default"),
    "access": ("/ui/access", "Access control is off"),
    "operator": ("/ui/operator", "Root keys"),
    "monitor": ("/ui/monitor", "Level"),
    "events": ("/ui/events", "Topic"),
    "metrics": ("/ui/metrics", "gauge"),
    "settings": ("/ui/settings", "Theme"),
    "sign-in": ("/ui/sign-in", "Access control is off"),
}


def take_pictures(page: Page, name: str, width: int) -> None:
    """One picture in each theme, and the one of the tour; editors are loaded after their page."""
    for editor in page.locator("[data-editor]").all():
        expect(editor.locator(".cm-content")).to_be_attached()
    for theme in THEMES[::-1]:
        page.emulate_media(color_scheme=theme)
        page.screenshot(path=Path(SHOTS) / f"{name}-{width}-{theme}.png")
    if width == WIDTHS[1] and name in TOUR:
        page.screenshot(path=PICTURES / f"{name}.png")


def check_width(page: Page, name: str, width: int) -> None:
    """Nothing reaches beyond the window, and there is not too much of it."""
    page.set_viewport_size({"width": width, "height": 800})
    page.evaluate("() => new Promise(done => setTimeout(done, 20))")  # frames stop where no picture is wanted
    wide = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{name} at {width} px: {wide} px too wide"
    assert page.evaluate("() => document.querySelectorAll('*').length") <= NODES_MAX


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_fits_and_is_accessible(name: str, page: Page, check_access: Callable[[str], None]) -> None:
    """Each page is checked by axe in one theme, those that are seen most in both."""
    path, text = PAGES[name]
    themes = THEMES if name in BOTH_THEMES else (THEMES[list(PAGES).index(name) % 2],)
    page.emulate_media(color_scheme=themes[0])
    visit(page, path)
    expect(page.locator("main")).to_contain_text(text)
    expect(page).to_have_title(re.compile("· Yurt$"))
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator(".crumbs > [aria-hidden]:last-child")).to_have_count(0)  # no sign behind the last link
    for width in WIDTHS if SHOTS else WIDTHS[1::-1]:
        check_width(page, name, width)
        if SHOTS:
            take_pictures(page, name, width)
    page.set_viewport_size({"width": WIDTHS[0], "height": 800})
    for theme in themes:
        page.emulate_media(color_scheme=theme)
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        check_access(f"{name} at {WIDTHS[0]} px in {theme}")


def test_the_table_of_servers_shows_names_addresses_and_the_leader_in_full(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    visit(page, "/ui/servers")
    table = page.get_by_role("table").first
    expect(table).to_contain_text("leader")
    cut = "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.textContent)"
    assert table.locator("[role=cell], td").evaluate_all(cut) == []


def test_the_table_of_servers_tells_learners_and_failed_ones_from_followers(page: Page) -> None:
    servers = {"a": ("alive", True), "b": ("alive", False), "c": ("failed", True), "d": ("alive", True)}
    members = [{"Name": f"{name}.global", "Addr": "10.0.0.1", "Status": status, "Tags": {"port": name}}
               for name, (status, _) in servers.items()]  # fmt: skip
    peers = [{"Node": f"{name}.global", "ID": name, "Voter": is_voter} for name, (_, is_voter) in servers.items()]
    health = {"Servers": [{"Name": "a.global", "Leader": True, "Healthy": True}]}
    page.route("**/v1/agent/members*", lambda route: route.fulfill(json={"Members": members}))
    page.route("**/v1/operator/raft/configuration*", lambda route: route.fulfill(json={"Servers": peers}))
    page.route("**/v1/operator/autopilot/health*", lambda route: route.fulfill(json=health))
    visit(page, "/ui/settings")
    visit(page, "/ui/servers")
    rows = page.get_by_role("table").first.get_by_role("row")
    for row in (r"a\.global.*leader", r"b\.global.*learner", r"c\.global.*failed", r"d\.global.*follower"):
        expect(rows.filter(has_text=re.compile(row, re.DOTALL))).to_have_count(1)
    expect(rows.filter(has_text="follower")).to_have_count(1)
    page.get_by_role("button", name="Transfer leadership").click()
    expect(page.get_by_label("To", exact=True).locator("option")).to_have_text(["d.global"])
    page.keyboard.press("Escape")


def test_failures_of_a_version_that_was_reverted_are_over(page: Page, agent: Agent) -> None:
    for command, status in (("exit 3", "failed"), ("exec sleep 3600", "running")):
        made = job("reverted", [task("main", command)], group=ONE_TRY)
        agent.call("PUT", "/v1/jobs", {"Job": made})
        wait_for(status, lambda status=status: status in [row["ClientStatus"] for row in agent.allocs("reverted")])
    visit(page, "/ui/jobs/reverted")
    expect(page.get_by_role("region", name="Newest allocations")).to_contain_text("failed")
    expect(page.get_by_role("region", name="What fails")).to_have_count(0)
    visit(page, "/ui/jobs/crash")
    expect(page.get_by_role("region", name="What fails")).to_contain_text("version 0")


def first_alloc(agent: Agent, job: str) -> dict[str, Any]:
    return agent.allocs(job)[0]


def test_the_pages_of_an_allocation_and_a_task(page: Page, agent: Agent, check_access: Callable[[str], None]) -> None:
    alloc = first_alloc(agent, "crash")
    visit(page, f"/ui/allocations/{alloc['ID']}")
    expect(page.locator("main")).to_contain_text("Exit Code: 3")
    expect(page.get_by_role("list", name="Events, newest first")).to_contain_text("Terminated")
    check_access("allocation")
    page.get_by_role("link", name="broken", exact=True).first.click()
    expect(page.locator("h1")).to_have_text("broken")
    expect(page.locator("main")).to_contain_text("raw_exec")
    page.get_by_role("navigation", name="Sections").get_by_text("Files").click()
    expect(page.get_by_role("table", name="Files")).to_contain_text("local")
    visit(page, f"/ui/allocations/{alloc['ID']}?tab=why")
    expect(page.get_by_role("region", name="Scores when it was placed")).to_contain_text("binpack")


def test_the_pages_of_a_node_and_an_evaluation(page: Page, agent: Agent, check_access: Callable[[str], None]) -> None:
    node = agent.get("/v1/nodes")[0]
    with page.expect_response(f"**/v1/yurt/node/{node['ID']}/usage*") as past:
        visit(page, f"/ui/clients/{node['ID']}")
    assert past.value.json()["Host"]["At"], "charts have a past"
    expect(page.locator("main")).to_contain_text("Use of the host")
    expect(page.locator(".chart").first).to_have_attribute("data-samples", re.compile(r"^([2-9]|\d\d)"))
    expect(page.locator("main")).to_contain_text("raw_exec")
    check_access("node")
    for tab, text in (("Attributes", "cpu.arch"), ("Allocations", "everywhere"), ("Metadata", "Add metadata")):
        page.get_by_role("navigation", name="Sections").get_by_text(tab).click()
        expect(page.locator("main")).to_contain_text(text)
    evaluation = next(row for row in agent.get("/v1/job/big/evaluations") if row["TriggeredBy"] == "job-register")
    visit(page, f"/ui/evaluations/{evaluation['ID']}")
    expect(page.locator("main")).to_contain_text("Not placed")
    expect(page.locator(".graph")).to_contain_text("blocked")
    visit(page, f"/ui/evaluations/{evaluation['ID']}?tab=replay")
    expect(page.locator("main")).to_contain_text("identical to the byte")
    expect(page.locator("main")).to_contain_text("What would happen now")
    slider = page.get_by_role("region", name="Evaluations of the job in time")
    expect(slider).to_contain_text("job-register")
    slider.get_by_label("Evaluation").focus()
    page.keyboard.press("End")
    expect(slider).to_contain_text("blocked")
    expect(page).to_have_url(re.compile("step="))
    slider.get_by_role("button", name="Its cause").click()
    expect(page.locator("main")).to_contain_text("identical to the byte")
    placed = next(row for row in agent.get("/v1/job/everywhere/evaluations") if row["TriggeredBy"] == "job-register")
    visit(page, f"/ui/evaluations/{placed['ID']}?tab=replay")
    expect(page.get_by_role("region", name="Steps")).to_contain_text("Today: the same node would be chosen")


def test_hostile_text_is_only_text(page: Page) -> None:
    visit(page, "/ui/jobs/hostile")
    expect(page.locator("h1")).to_contain_text("<img src=x")
    expect(page.locator("main")).to_contain_text("a\\u202eb")
    expect(page.locator(".markdown")).to_contain_text("<img src=x")
    expect(page.locator(".markdown strong")).to_have_text("loud")
    assert page.locator("a[href^='javascript']").count() == 0
    expect(page.get_by_role("link", name="docs")).to_have_attribute("rel", "noopener noreferrer")
    visit(page, "/ui/jobs?q=" + "%3Cimg src=x onerror=alert(1)%3E")
    expect(page.locator("main")).to_contain_text("0 jobs")
    assert page.locator("main img").count() == 0


HOSTILE_PAGES = (
    "/ui/", "/ui/jobs", "/ui/allocations", "/ui/nodes", "/ui/jobs/hostile/definition", "/ui/jobs/hostile/versions",
    "/ui/jobs/hostile/timeline", "/ui/jobs/hostile/evaluations", "/ui/variables/nomad/jobs/web",
)  # fmt: skip


def test_no_page_makes_an_element_of_hostile_text(page: Page, agent: Agent) -> None:
    alloc = first_alloc(agent, "hostile")["ID"]
    for path in (*HOSTILE_PAGES, f"/ui/allocations/{alloc}/run"):
        visit(page, path)
        expect(page.locator("main .loading")).to_have_count(0)
        assert page.locator("img:not(.cm-widgetBuffer), main script, [onerror]").count() == 0, path
    expect(page.get_by_role("region", name="Facts")).to_contain_text("<script>alert(2)</script>")


CARD = {"Vendor": "nvidia", "Type": "gpu", "Name": "H100"}
USED = {"IntNumeratorVal": 20480, "IntDenominatorVal": 81920, "Unit": "MiB"}


def test_cards_have_charts_of_memory_and_use(page: Page, agent: Agent) -> None:
    """The answers of a node with a card take the place of its own: no machine of the tests has one."""
    node = agent.get("/v1/nodes")[0]["ID"]
    stats = {"Summary": USED, "Stats": {"Attributes": {"GPU utilization": {"IntNumeratorVal": 37, "Unit": "%"}}}}
    live = agent.get(f"/v1/client/stats?node_id={node}") | {
        "DeviceStats": [{**CARD, "InstanceStats": {"GPU-7f": stats}}]
    }
    past = {"Name": "H100", "At": [1, 2], "MemoryMB": [10, None], "BusyPercent": [5, 6]}
    kept = agent.get(f"/v1/yurt/node/{node}/usage")
    kept["Host"]["Devices"] = {"GPU-7f": past | {"At": kept["Host"]["At"][-1:] * 2}}
    page.route("**/v1/client/stats*", lambda route: route.fulfill(json=live))
    page.route(f"**/v1/yurt/node/{node}/usage*", lambda route: route.fulfill(json=kept))
    visit(page, "/ui/nodes")
    visit(page, f"/ui/nodes/{node}")
    expect(page.get_by_label("H100 GPU-7f: memory (MiB): 20 GiB of 80 GiB")).to_be_visible()
    expect(page.get_by_label("H100 GPU-7f: busy (%): 37 %")).to_be_visible()
    page.get_by_label("Minutes shown in charts").fill("15")
    expect(page.get_by_role("region", name="Use of the host")).to_contain_text("Last 15 min")


def test_hostile_files_are_only_text(page: Page, agent: Agent) -> None:
    alloc = first_alloc(agent, "web")["ID"]
    visit(page, f"/ui/allocations/{alloc}?tab=files&path=/alloc")
    files = page.get_by_role("table", name="Files")
    files.get_by_role("button", name=HOSTILE_NAME).click()
    expect(page.get_by_label("Contents")).to_contain_text("inside")
    visit(page, f"/ui/allocations/{alloc}?tab=files&path=/alloc&file=/alloc/evil.svg")
    expect(page.get_by_label("Contents")).to_contain_text("alert(3)")
    assert page.locator("main img, main svg").count() == 0
    with page.expect_download() as saved:  # The answer of the API is never a document of its origin.
        page.evaluate("address => { location.href = address }", f"/v1/client/fs/cat/{alloc}?path=/alloc/evil.svg")
    assert saved.value.url.endswith("evil.svg")


def test_logs_of_a_job_are_one_stream(page: Page) -> None:
    visit(page, "/ui/settings")
    page.evaluate("() => performance.clearResourceTimings()")
    visit(page, "/ui/jobs/web/logs?type=both")
    log = page.get_by_role("log")
    expect(log).to_contain_text("tick")
    expect(log).to_contain_text("app[0] server")
    expect(log).to_contain_text("app[1] server")
    asked = page.evaluate("() => performance.getEntriesByType('resource').map(each => new URL(each.name).pathname)")
    assert not [path for path in asked if path.startswith("/v1/client/fs/")]


def test_the_map_opens_a_panel_for_a_node(page: Page, agent: Agent) -> None:
    name = agent.get("/v1/nodes")[0]["Name"]
    visit(page, "/ui/topology")
    page.locator("canvas.map").click(position={"x": 20, "y": 40})
    expect(page.get_by_role("region", name=name)).to_contain_text("web.app[0]")
    page.get_by_role("link", name="Open", exact=True).click()
    expect(page.locator("h1")).to_have_text(name)
    page.get_by_role("navigation", name="Sections").get_by_text("Topology").click()
    expect(page.get_by_role("region", name="NUMA node 0")).to_contain_text("cores")


def test_another_region_is_chosen_at_the_top(page: Page) -> None:
    page.route("**/v1/regions", lambda route: route.fulfill(json=["global", "west"]))
    page.goto("/ui/jobs")
    expect(page.locator("main")).to_contain_text("everywhere")
    with page.expect_request(lambda sent: "/v1/yurt/overview" in sent.url and "region=west" in sent.url):
        page.get_by_label("Region").select_option("west")
    expect(page.get_by_role("alert")).to_contain_text("No path to region")
    page.get_by_label("Region").select_option("global")
    expect(page.locator("main")).to_contain_text("Needs attention")


def test_no_script_of_the_page_can_make_markup(context: BrowserContext) -> None:
    page = context.new_page()
    page.goto("/ui/settings")
    expect(page.locator("h1")).to_have_text("Settings")
    sinks = ("document.body.innerHTML = '<b>x</b>'", "setTimeout('1')", "document.write('x')", "new Function('1')()",
             "document.createElement('script').src = 'x.js'", "trustedTypes.createPolicy('other', {})")  # fmt: skip
    # What the debugger evaluates may evaluate text whatever the policy says; a timer of the page may not.
    attempt = "() => new Promise(done => setTimeout(() => { try { CODE; done(false) } catch { done(true) } }))"
    for sink in sinks:
        assert page.evaluate(attempt.replace("CODE", sink)), sink
    page.close()


def test_errors_have_pages_of_their_own(page: Page) -> None:
    visit(page, "/ui/jobs/no-such-job")
    expect(page.get_by_role("alert")).to_contain_text("Not found")
    visit(page, "/ui/nowhere")
    expect(page.locator("h1")).to_have_text("No such page")
    page.route("**/v1/deployments*", lambda route: route.fulfill(status=500, body="No cluster leader"))
    visit(page, "/ui/deployments")
    expect(page.get_by_role("alert")).to_contain_text("No leader")
    expect(page.locator("header.top")).to_contain_text("no leader")
    # While it fails: the page asks by itself too, and the button is another one after each answer. Playwright's click
    # waits until the button stays where it is, for which a busy machine leaves no time.
    with page.expect_request("**/v1/deployments*"):
        page.get_by_role("button", name="Try again").dispatch_event("click")
    page.unroute("**/v1/deployments*")
    expect(page.locator("main")).to_contain_text("web")


def test_nomads_addresses_work(page: Page) -> None:
    for path, text in (
        ("/ui/jobs/web@default", "Task groups"),
        ("/ui/jobs/web@default/versions", "Version 0"),
        ("/ui/clients", "ready"),
    ):
        page.goto(path)
        expect(page.locator("main")).to_contain_text(text)
