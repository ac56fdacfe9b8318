"""The agent is started again while pages are open: they say so, and go on by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from yurt.testing.agent import Agent, register, running_agent

from e2e.ui.conftest import WatchedPage, job, task

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
    shared_page.faults[:] = [fault for fault in shared_page.faults if not any(lost in fault for lost in LOST)]


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
