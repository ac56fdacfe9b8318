"""What docs/reference/web-ui-features.md promises of pages that are read rather than acted on, feature by feature."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect
from yurt.testing.agent import Agent, wait_for

from e2e.ui.conftest import visit

WEB = "/ui/jobs/web"
SHOWN: dict[str, tuple[str, str, str, str]] = {
    "deployment": (f"{WEB}/deployments", "region", "Deployment ", "completed successfully.*app.*2.*2.*2.*0.*none"),
    "its allocations": (
        f"{WEB}/deployments", "table", "Allocations of the deployment", "(app.*running.*healthy.*e2e.*){2}",
    ),
    "groups": (WEB, "region", "Task groups", r"app.*2 running.*20 MHz, 32 MiB, 300 MiB disk.*server \(raw_exec\)"),
    "system job": ("/ui/jobs/everywhere/nodes", "table", "Nodes", r"e2e.*running.*everywhere\.app\[0\].*ready.*dc1"),
    "evaluations of a job": (f"{WEB}/evaluations", "table", "Evaluations", "complete.*web.*job-register"),
    "services of a job": (f"{WEB}/services", "table", "Services", r"web-service[\d.]+:\d+.*web-service[\d.]+:\d+"),
    "variables of a job": (
        "/ui/jobs/written/definition", "region", "Variables that the job may read", "nomad/jobs/written/app/main",
    ),
    "what is live": (WEB, "region", "Newest allocations", r"running.*web\.app\[[01]\].*e2e.*Terminal"),
    "what was": (f"{WEB}/timeline", "main", "", "Version 0 registered"),
    "nodes": ("/ui/nodes", "table", "Nodes", r"e2e.*ready.*default.*dc1.* of .* MiB of \d+ GiB"),
    "servers": ("/ui/servers", "table", "Servers", r"e2e\.global.*leader.*alive.*healthy.*\d"),
    "autopilot": ("/ui/servers", "region", "Autopilot", "Healthy.*healthy"),
    "totals": ("/ui/topology", "main", "", r"1\s*nodes.*\d\s*allocations.*%\s*of \d+ GiB memory.*%\s*of "),
}  # fmt: skip


@pytest.mark.parametrize("what", SHOWN)
def test_a_page_shows_the_facts(what: str, page: Page) -> None:
    path, role, name, text = SHOWN[what]
    visit(page, path)
    place = page.locator("main") if role == "main" else page.get_by_role(role, name=name).first  # type: ignore[arg-type]
    expect(place).to_contain_text(re.compile(text, re.DOTALL))


def rows(page: Page, label: str) -> Locator:
    return page.get_by_role("table", name=label).locator(".table-body [role=row]")


def test_the_menu_and_breadcrumbs_lead_to_sections(page: Page) -> None:
    visit(page, "/ui/jobs/web")
    menu = page.get_by_role("navigation", name="Main")
    expect(menu.get_by_role("link")).to_have_count(16)
    expect(page).to_have_title("web · Yurt")
    page.get_by_role("navigation", name="Breadcrumbs").get_by_role("link", name="Jobs").click()
    expect(rows(page, "Jobs")).to_have_count(8)
    menu.get_by_role("link", name="Servers").click()
    expect(page.locator("h1")).to_have_text("Servers")
    expect(menu.get_by_role("link", name="Servers")).to_have_attribute("aria-current", "page")


def test_settings_are_kept_in_the_browser_and_change_the_pages(page: Page, agent: Agent) -> None:
    visit(page, "/ui/settings")
    page.get_by_label("Show times in UTC").check()
    page.get_by_label("Theme").last.select_option("dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto(f"/ui/allocations/{agent.allocs('web')[0]['ID']}")
    expect(page.get_by_role("list", name="Events, newest first")).to_contain_text(" UTC")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_definition_is_the_source_or_the_whole_job(page: Page) -> None:
    visit(page, "/ui/jobs/written/definition")
    expect(page.locator("main")).to_contain_text('owner = "team-a"')
    page.get_by_role("button", name="JSON", exact=True).click()
    expect(page.locator("main")).to_contain_text('"ID": "written"')


def test_allocations_are_searched_and_filtered(page: Page) -> None:
    visit(page, "/ui/jobs/everywhere/allocations")
    expect(rows(page, "Allocations")).to_have_count(1)
    page.get_by_label("Search or filter allocations").fill("no such")
    expect(rows(page, "Allocations")).to_have_count(0)
    visit(page, "/ui/allocations?Status=failed")
    expect(rows(page, "Allocations")).to_have_count(1)
    expect(rows(page, "Allocations").first).to_contain_text("crash.app[0]")
    page.get_by_role("button", name="Remove filter Status failed").click()
    expect(rows(page, "Allocations").nth(2)).to_be_visible()


def test_evaluations_are_filtered_by_status_and_trigger(page: Page) -> None:
    visit(page, "/ui/evaluations")
    page.get_by_label("Status").select_option("blocked")
    expect(rows(page, "Evaluations")).to_have_count(1)
    expect(rows(page, "Evaluations").first).to_contain_text(re.compile("blocked.*big"))
    page.get_by_label("Status").select_option("all")
    page.get_by_label("Trigger").select_option("node-drain")
    expect(page.get_by_role("table", name="Evaluations")).to_have_count(0)


def test_variables_are_a_tree_of_paths(page: Page) -> None:
    visit(page, "/ui/variables")
    for folder in ("nomad", "jobs"):
        rows(page, "Variables").get_by_role("link", name=folder).click()
    expect(page.get_by_role("navigation", name="Folder")).to_contain_text("jobs")
    rows(page, "Variables").get_by_role("link", name="web").click()
    expect(page.locator("h1")).to_have_text("nomad/jobs/web")


def test_the_map_is_grouped_and_is_a_table_too(page: Page) -> None:
    visit(page, "/ui/topology")
    page.get_by_label("Group by").select_option("Datacenter")
    expect(page.get_by_role("img", name="1 nodes by Datacenter")).to_be_visible()
    page.get_by_text("As a table").click()
    expect(page.locator("main details")).to_contain_text("e2e")


def test_the_log_of_an_agent_follows_at_a_level(page: Page, agent: Agent) -> None:
    visit(page, "/ui/monitor")
    page.get_by_role("combobox", name="Level").select_option("debug")
    expect(page.locator("main")).to_contain_text("yurt monitor -log-level=debug")

    def asked_and_logged() -> bool:
        agent.get("/v1/status/leader")
        return "request complete: method=GET path=/v1/status/leader" in page.get_by_role("log").inner_text()

    wait_for("the line of a request", asked_and_logged)


def test_ports_of_an_allocation_are_addresses(page: Page, agent: Agent) -> None:
    visit(page, f"/ui/allocations/{agent.allocs('web')[0]['ID']}")
    port = page.get_by_role("region", name="Ports").get_by_role("link")
    expect(port).to_have_text(re.compile(r"^[\d.]+:\d+$"))
    expect(port).to_have_attribute("href", re.compile(r"^https?://[\d.]+:\d+"))


def test_csi_plugins_show_their_health(page: Page) -> None:
    """The answer of a cluster with a plugin takes the place of the agent's own."""
    plugin = {"ID": "nfs", "Provider": "nfs.example", "Version": "4.1", "ControllerRequired": True,
              "ControllersHealthy": 1, "ControllersExpected": 2, "NodesHealthy": 3, "NodesExpected": 3}  # fmt: skip
    page.route("**/v1/plugins*", lambda route: route.fulfill(json=[plugin]))
    visit(page, "/ui/storage?tab=plugins")
    expect(page.locator("main .table-body")).to_contain_text(re.compile("nfs.*3 of 3.*1 of 2"))


def test_certificates_that_end_are_problems_of_the_overview(page: Page, agent: Agent) -> None:
    """The agent of the tests has no certificate: an answer with one takes the place of its own."""
    found = agent.get("/v1/yurt/overview?namespace=*")
    common = {"Namespace": "", "Status": "expiring", "Reason": "the agent's certificate ends 2027-01-01", "Since": 0}
    found["Attention"] = [
        {"Kind": "server", "ID": "a.global", "Name": "a.global", **common},
        {"Kind": "authority", "ID": "", "Name": "of 3 agents", **common},
    ]
    page.route("**/v1/yurt/overview*", lambda route: route.fulfill(json=found))
    visit(page, "/ui/settings")
    visit(page, "/ui/")
    problems = page.get_by_role("region", name="Needs attention")
    expect(problems).to_contain_text("certificate authority of 3 agents")
    expect(problems.get_by_role("link", name="server a.global")).to_have_attribute("href", "/ui/servers")


def test_a_namespace_that_does_not_exist_is_named(page: Page) -> None:
    visit(page, "/ui/jobs/web?namespace=nope")
    expect(page.get_by_role("alert").first).to_contain_text("There is no namespace “nope”")
    visit(page, "/ui/jobs?Namespace=nope")
    expect(page.get_by_role("alert")).to_contain_text("There is no namespace “nope”")
