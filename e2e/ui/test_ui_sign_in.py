"""Signing in to the web UI with access control: `yurt ui -authenticate` hands the browser a one-time token."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from yurt.testing.agent import Agent, dev_token, wait_for

from e2e.ui.conftest import new_context, watched_page

SHOWN = "URL for web UI: "


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent with access control, whose commands show its management token."""
    agent = Agent(tmp_path_factory.mktemp("acl"), data_dir=None)
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


@pytest.fixture
def page(agent: Agent, context: BrowserContext) -> Iterator[Page]:
    """A page of that profile."""
    with watched_page(context, agent.address) as (page, faults):
        yield page
    assert not faults, "\n".join(faults)


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


READS = """
namespace "default" { policy = "read" }
node { policy = "read" }
operator { policy = "read" }
"""
JOB = {
    "ID": "kept", "Name": "kept", "Type": "service", "Datacenters": ["*"],
    "TaskGroups": [{"Name": "app", "Count": 1, "Tasks": [{
        "Name": "main", "Driver": "mock_driver", "Config": {"run_for": "1h"}, "Resources": {"CPU": 20, "MemoryMB": 32},
    }]}],
}  # fmt: skip
DENIED = "async ([method, path]) => (await fetch(path, {method, body: method === 'GET' ? null : '{}'," + (
    " headers: {'Content-Type': 'application/json', 'X-Yurt-Client': 'ui'}})).status"
)


def test_what_a_token_may_not_do_is_explained_and_refused(page: Page, agent: Agent) -> None:
    node = agent.get("/v1/nodes")[0]["ID"]
    agent.call("PUT", "/v1/jobs", {"Job": JOB})
    agent.call("PUT", "/v1/acl/policy/reads", {"Name": "reads", "Rules": READS})
    token = agent.call("PUT", "/v1/acl/token", {"Name": "reader", "Type": "client", "Policies": ["reads"]})
    page.goto("/ui/sign-in")
    page.get_by_label("Secret").fill(token["SecretID"])
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.locator("header.top")).to_contain_text("reader")
    page.goto("/ui/sign-in")
    expect(page.locator("h1")).to_have_text("Signed in")
    expect(page.locator("main")).to_contain_text("reads")
    expect(page.locator("main")).to_contain_text("read-job")
    for path, actions in (("/ui/jobs/kept", ("Stop", "Scale", "Edit")), (f"/ui/nodes/{node}", ("Drain",))):
        page.goto(path)
        for action in actions:
            button = page.locator(f"[data-action='{action}']").first
            expect(button).to_have_attribute("aria-disabled", "true")
            button.dispatch_event("click")
            expect(page.get_by_role("status").last).to_contain_text("Your token lacks")
            expect(page.get_by_role("dialog")).to_have_count(0)
    for method, path in (
        ("DELETE", "/v1/job/kept"),
        ("PUT", "/v1/job/kept/scale"),
        ("PUT", "/v1/jobs"),
        ("PUT", f"/v1/node/{node}/drain"),
        ("PUT", f"/v1/node/{node}/eligibility"),
        ("PUT", "/v1/system/gc"),
        ("PUT", "/v1/acl/token"),
    ):
        assert page.evaluate(DENIED, [method, path]) == 403, (method, path)
    assert agent.get("/v1/job/kept")["Stop"] is False
