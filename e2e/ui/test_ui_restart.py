"""The agent is started again while pages are open: they say so, and go on by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import Page, Route, expect
from yurt.testing.agent import Agent, register, running_agent

from e2e.ui.conftest import WAIT_MS, WatchedPage, job, task, visit

LOST = ("net::ERR_", "WebSocket connection to")
"""What Chromium writes to the console while there is no agent."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent that keeps its state and its tasks."""
    folder = tmp_path_factory.mktemp("restart")
    with running_agent(folder, data_dir=folder / "data") as agent:
        register(agent, job("web", [task("server", "while true; do echo tick; sleep 1; done")]))
        agent.running("web", 1)
        yield agent


def test_a_terminal_and_lists_go_on_after_the_agent_was_started_again(
    page: Page, agent: Agent, shared_page: WatchedPage
) -> None:
    (alloc,) = agent.running("web", 1)
    page.goto("/ui/jobs")
    expect(page.locator(".live")).to_contain_text("live")
    terminal = page.context.new_page()
    terminal.goto(f"/ui/allocations/{alloc['ID']}/server?tab=exec")
    terminal.get_by_role("button", name="Run", exact=True).click()
    screen = terminal.locator("[data-terminal] .xterm-rows")
    expect(screen).to_contain_text(re.compile(r"[$#]"))
    terminal.keyboard.type("echo before-$((40+2))\n")
    expect(screen).to_contain_text("before-42")
    agent.interrupt()
    expect(terminal.locator("main")).to_contain_text("reconnecting")
    agent.start()
    expect(screen).to_contain_text(re.compile(r"connected again; the command starts again --\s*[$#]"))
    terminal.locator("[data-terminal] textarea").focus()
    terminal.keyboard.type("echo after-$((40+3))\n")
    expect(screen).to_contain_text("after-43")
    expect(screen).to_contain_text("before-42")
    terminal.close(run_before_unload=False)
    register(agent, job("later", [task("run", "sleep 3600")]))
    expect(page.get_by_role("table", name="Jobs")).to_contain_text("later")
    expect(page.locator(".live")).to_contain_text("live")
    forgive(shared_page)


def forgive(page: WatchedPage) -> None:
    """Forget the faults that come from lost connections."""
    page.faults[:] = [fault for fault in page.faults if not any(lost in fault for lost in LOST)]


def test_a_drain_shows_its_progress(page: Page, agent: Agent) -> None:
    """The task takes its time to end, so that there is a progress to see."""
    node = agent.get("/v1/nodes")[0]["ID"]
    slow = task("slow", "trap '' TERM; while true; do sleep 1; done", KillTimeout=4_000_000_000)
    register(agent, job("slow", [slow]))
    agent.running("slow", 1)
    page.goto(f"/ui/nodes/{node}")
    page.locator("[data-action='Drain']").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain", exact=True).click()
    progress = page.get_by_role("region", name="Draining")
    expect(progress).to_contain_text(re.compile("Migrating[1-9]"))
    expect(progress).to_have_count(0)
    expect(page.locator("header.heading")).to_contain_text("ineligible")


def test_a_page_that_got_no_answer_shows_itself_once_there_is_one(page: Page, shared_page: WatchedPage) -> None:
    """Chromium ends requests when an interface comes or goes: at the start, in a page, in a list, in its scripts."""
    calls = broken_at_first(
        page, "**/v1/yurt/session", "**/v1/yurt/jobs*", "**/app/pages/services.js", "**/v1/services*"
    )
    page.goto("/ui/jobs")
    expect(page.get_by_role("alert")).to_contain_text("No answer")
    expect(page.get_by_role("table", name="Jobs")).to_contain_text("web")
    page.get_by_role("link", name="Services").click()
    expect(page.locator("h1")).to_have_text("Services")
    expect(page.get_by_role("alert")).to_have_count(0)
    assert min(calls.values()) > BROKEN, calls
    forgive(shared_page)


def test_a_page_asks_soon_when_the_browser_is_online_again(page: Page, shared_page: WatchedPage) -> None:
    page.goto("/ui/")
    page.get_by_role("link", name="Overview", exact=True).wait_for()
    page.clock.install()  # no pause ends by itself
    page.route("**/v1/deployments*", lambda route: route.abort("internetdisconnected"))
    visit(page, "/ui/deployments")
    expect(page.get_by_role("alert")).to_contain_text("No answer")
    page.unroute("**/v1/deployments*")
    page.evaluate("dispatchEvent(new Event('online'))")
    page.clock.run_for(1000)
    expect(page.get_by_role("alert")).to_have_count(0)
    forgive(shared_page)


def test_a_page_whose_answer_broke_off_asks_again(page: Page, shared_page: WatchedPage) -> None:
    page.goto("/ui/")
    page.get_by_role("link", name="Overview", exact=True).wait_for()
    page.evaluate(
        """() => {
          const text = Response.prototype.text;
          Response.prototype.text = function () {
            if (!this.url.includes("/v1/deployments")) return text.call(this);
            Response.prototype.text = text;
            return Promise.reject(new TypeError("network error"));
          };
        }"""
    )
    visit(page, "/ui/deployments")
    expect(page.get_by_role("alert")).to_contain_text("No answer")
    expect(page.get_by_role("alert")).to_have_count(0)
    forgive(shared_page)


def test_a_page_out_of_sight_asks_when_it_is_seen(page: Page, shared_page: WatchedPage) -> None:
    page.goto("/ui/")
    page.get_by_role("link", name="Overview", exact=True).wait_for()
    calls: list[str] = []
    page.route("**/v1/deployments*", lambda route: (calls.append(route.request.url), route.abort("failed"))[1])
    page.clock.install()
    visit(page, "/ui/deployments")
    expect(page.get_by_role("alert")).to_contain_text("No answer")
    asked = len(calls)
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => window.isOut, configurable: true})")
    page.evaluate("isOut = true; dispatchEvent(new Event('online'))")
    page.clock.run_for(60_000)
    assert len(calls) == asked
    page.unroute("**/v1/deployments*")
    page.evaluate("isOut = false; document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.get_by_role("alert")).to_have_count(0)
    forgive(shared_page)


def test_a_module_that_is_missing_is_not_asked_for_for_ever(page: Page, shared_page: WatchedPage) -> None:
    calls: list[str] = []
    page.route(
        "**/app/pages/services.js", lambda route: (calls.append(route.request.url), route.fulfill(status=404))[1]
    )
    page.goto("/ui/jobs")
    page.get_by_role("table", name="Jobs").wait_for()
    page.clock.install()
    page.get_by_role("link", name="Services").click()
    expect(page.get_by_role("alert")).to_contain_text("This page failed")
    for _ in range(20):
        page.clock.run_for(60_000)
        page.wait_for_timeout(100)
    assert 1 <= len(calls) <= 6
    shared_page.faults.clear()


def test_a_page_whose_files_did_not_come_is_loaded_again(page: Page, shared_page: WatchedPage) -> None:
    """Chromium ends all open requests when an interface comes or goes, also those for the first scripts."""
    files = ("**/app/main.js", "**/app/core/api.js", "**/vendor/preact.js", "**/app.css")
    for each in files:
        calls = broken_at_first(page, each)
        page.goto("/ui/jobs")
        for _ in range(WAIT_MS // 100):  # without its style the page shows itself before it is loaded again
            if calls[each] <= BROKEN:
                page.wait_for_timeout(100)
        assert calls[each] > BROKEN
        expect(page.get_by_role("table", name="Jobs")).to_contain_text("web")
        page.wait_for_load_state()
        assert page.evaluate("sessionStorage.length") == 0
        page.unroute_all()
    broken_at_first(page, *files, "**/v1/regions")
    page.goto("/ui/jobs")
    expect(page.get_by_role("table", name="Jobs")).to_contain_text("web")
    forgive(shared_page)


def test_a_page_whose_script_is_missing_says_so_and_is_not_loaded_for_ever(
    page: Page, shared_page: WatchedPage
) -> None:
    calls: list[str] = []
    page.route("**/app/shell.js", lambda route: (calls.append(route.request.url), route.fulfill(status=404))[1])
    page.goto("/ui/jobs")
    expect(page.locator("#app")).to_contain_text("Load the page again")
    assert 1 <= len(calls) <= 8
    page.unroute_all()
    page.reload()
    expect(page.get_by_role("table", name="Jobs")).to_contain_text("web")
    assert page.evaluate("sessionStorage.length") == 0
    shared_page.faults.clear()


BROKEN = 2
"""So many requests of each kind fail."""


def broken_at_first(page: Page, *patterns: str) -> dict[str, int]:
    """Break the first requests as a change of the network does; the number of requests by pattern."""
    calls = dict.fromkeys(patterns, 0)

    def answer(pattern: str, route: Route) -> None:
        calls[pattern] += 1
        if calls[pattern] <= BROKEN:
            route.abort("failed")
        else:
            route.continue_()

    for pattern in patterns:
        page.route(pattern, partial(answer, pattern))
    return calls
