"""Signing in to the web UI with access control: `yurt ui -authenticate` hands the browser a one-time token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from yurt.testing.agent import Agent, dev_token, wait_for

from e2e.ui.conftest import new_context

SHOWN = "URL for web UI: "


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent with access control, whose commands show its management token."""
    agent = Agent(tmp_path, data_dir=None)
    agent.flags = ("-acl",)
    agent.spawn()
    try:
        agent.token = dev_token(agent)
        wait_for("a ready node", agent.is_ready)
        yield agent
    finally:
        agent.interrupt()


@pytest.fixture
def context(agent: Agent, chromium: Browser) -> Iterator[BrowserContext]:
    """A profile without the other agent's cookies."""
    made = new_context(chromium, agent.address)
    yield made
    made.close()


def test_a_command_signs_a_browser_in_once(page: Page, agent: Agent) -> None:
    node = agent.get("/v1/nodes")[0]
    page.goto(f"/ui/nodes/{node['ID']}")
    expect(page.get_by_role("alert").first).to_contain_text("Permission denied")
    told = agent.cli("ui", "-authenticate", "-show-url", node["ID"])
    assert told.stdout.startswith(SHOWN), told.stderr
    address = told.stdout.removeprefix(SHOWN).strip()
    page.goto(address)
    expect(page).to_have_url(address.partition("#")[0])
    assert agent.token not in page.content()
    page.get_by_role("button", name="Sign in with it").click()
    expect(page.locator("h1")).to_have_text(node["Name"])
    expect(page.locator("main")).to_contain_text("Use of the host")
    assert page.evaluate("() => document.cookie") == ""
    page.goto("/ui/sign-in")
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("h1")).to_have_text("Sign in")
    page.goto(address)
    page.get_by_role("button", name="Sign in with it").click()
    expect(page.get_by_role("alert")).to_contain_text("Permission denied")
    assert page.evaluate("async () => (await fetch('/v1/nodes')).status") == 403
