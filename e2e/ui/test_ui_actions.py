"""What operators do in the web UI, in a real browser against a real agent: find, understand, act, watch it happen."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import BrowserContext, Locator, Page, expect
from yurt.testing.agent import Agent, wait_for

from e2e.ui.conftest import job, task, visit


def confirm(page: Page, action: str, command: str | None = None) -> None:
    """Take an action through its dialog, which shows the command that does the same."""
    page.locator(f"[data-action='{action}']").first.click()
    dialog = page.get_by_role("dialog")
    if command is not None:
        expect(dialog.locator("code").first).to_contain_text(command)
    dialog.get_by_role("button", name=action, exact=True).click()
    expect(dialog).to_be_hidden()


def rows(page: Page, label: str) -> Locator:
    return page.get_by_role("table", name=label).locator(".table-body [role=row]")


def test_jobs_are_searched_filtered_sorted_and_kept_in_the_address(page: Page) -> None:
    visit(page, "/ui/jobs")
    expect(rows(page, "Jobs")).to_have_count(8)
    page.keyboard.press("F")
    page.keyboard.type("nigh")
    expect(rows(page, "Jobs")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"q=nigh"))
    visit(page, "/ui/jobs?q=" + 'Type%20%3D%3D%20"system"')
    expect(rows(page, "Jobs")).to_have_count(1)
    visit(page, "/ui/jobs")
    page.get_by_text("Status ▾").click()
    page.get_by_label(re.compile("^failed")).check()
    expect(rows(page, "Jobs")).to_have_count(1)
    expect(rows(page, "Jobs").first).to_contain_text("crash")
    page.get_by_role("button", name="Remove filter Status failed").click()
    expect(rows(page, "Jobs")).to_have_count(8)
    page.get_by_role("columnheader", name="Job", exact=True).get_by_role("button").click()
    expect(rows(page, "Jobs").first).to_contain_text("big")
    page.go_back()


def test_the_keyboard_alone_suffices(page: Page) -> None:
    visit(page, "/ui/jobs?sort=ID")
    expect(rows(page, "Jobs")).to_have_count(8)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_role("region", name="Selected jobs")).to_contain_text("1 job selected")
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.locator("h1")).to_have_text("Nodes")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Go to jobs")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.locator(".palette input")).to_be_focused()
    page.keyboard.type("everyw")
    expect(page.get_by_role("option").first).to_contain_text("everywhere")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("everywhere")
    page.keyboard.press(":")
    expect(page.locator(".palette input")).to_be_focused()
    page.keyboard.type("topo")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Topology")


def test_keys_are_chosen_by_the_reader(page: Page) -> None:
    visit(page, "/ui/jobs")
    expect(page.locator("main")).to_contain_text("everywhere")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Change the key of: Go to nodes").click()
    page.keyboard.press("j")
    expect(dialog.get_by_role("alert")).to_contain_text("j is used for: Next row")
    dialog.get_by_label("Change the key of: Go to nodes").click()
    page.keyboard.press("Q")
    expect(dialog.get_by_label("Change the key of: Go to nodes")).to_have_text("Q ")
    page.keyboard.press("Escape")
    page.keyboard.press("Q")
    expect(page.locator("h1")).to_have_text("Nodes")
    page.reload()
    expect(rows(page, "Nodes")).to_have_count(1)
    page.keyboard.press("?")
    dialog.get_by_role("button", name="Back to the keys of Yurt").click()
    expect(dialog.get_by_label("Change the key of: Go to nodes")).to_have_text(re.compile("g ?c"))


def test_a_job_file_is_kept_as_a_template(page: Page) -> None:
    visit(page, "/ui/jobs/run")
    editor = page.locator("[data-editor='Job file'] .cm-content")
    expect(editor).to_contain_text("example")
    page.get_by_role("button", name="Templates", exact=True).click()
    page.get_by_role("dialog").get_by_role("listitem").filter(has_text="Periodic job").get_by_text("Use").click()
    expect(editor).to_contain_text("nightly")
    page.get_by_role("button", name="Templates", exact=True).click()
    page.get_by_role("button", name="Save this job file as a template").click()
    page.get_by_role("dialog").get_by_role("textbox", name="Name").fill("ours")
    page.get_by_role("dialog").get_by_role("button", name="Save template").click()
    visit(page, "/ui/jobs/run")
    page.get_by_role("button", name="Templates", exact=True).click()
    saved = page.get_by_role("dialog").get_by_role("listitem").filter(has_text="ours")
    saved.get_by_role("button", name="Use").click()
    expect(editor).to_contain_text("nightly")
    page.get_by_role("button", name="Templates", exact=True).click()
    saved.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()


def test_nodes_are_drained_together(page: Page, agent: Agent) -> None:
    node = agent.get("/v1/nodes")[0]
    visit(page, "/ui/nodes")
    page.get_by_label("Select all rows").check()
    selected = page.get_by_role("region", name="Selected nodes")
    selected.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"yurt node drain -enable -yes -deadline=1h {node['ID']}")
    page.keyboard.press("Escape")
    selected.get_by_role("button", name="Take no new allocations").click()
    page.get_by_role("dialog").get_by_role("button", name="Take no new allocations: 1 node").click()
    expect(rows(page, "Nodes").first).to_contain_text("ineligible")
    page.get_by_label("Select all rows").check()
    selected.get_by_role("button", name="Take new allocations").click()
    page.get_by_role("dialog").get_by_role("button", name="Take new allocations: 1 node").click()
    expect(rows(page, "Nodes").first).to_contain_text("ready")


def test_a_queued_job_shows_its_place(page: Page, agent: Agent) -> None:
    agent.call("PUT", "/v1/node/pools", {"Name": "batch", "BatchQueue": {"fifo": {}}})
    agent.call("PUT", "/v1/jobs", {"Job": job("queued", [task("run", "true")], Type="batch", NodePool="batch")})
    visit(page, "/ui/waiting")
    expect(rows(page, "Queues").first).to_contain_text("queued")
    page.get_by_role("table", name="Queues").get_by_role("link", name="queued").click()
    expect(page.get_by_role("region", name="In the queue")).to_contain_text("1 of 1")
    agent.call("DELETE", "/v1/job/queued?purge=true")


def test_changes_appear_without_reloading(page: Page, agent: Agent) -> None:
    visit(page, "/ui/jobs?q=live")
    expect(page.locator(".live")).to_contain_text("live")
    expect(page.locator("main")).to_contain_text("0 jobs")
    job = agent.get("/v1/job/everywhere") | {"ID": "live-job", "Name": "live-job", "Type": "service"}
    agent.call("PUT", "/v1/jobs", {"Job": job})
    expect(rows(page, "Jobs").first).to_contain_text("live-job")
    expect(rows(page, "Jobs").first).to_contain_text("1 running")
    agent.call("DELETE", "/v1/job/live-job?purge=true")
    expect(rows(page, "Jobs")).to_have_count(0)


def test_a_job_is_written_with_help_planned_and_run_then_edited_and_reverted(page: Page, agent: Agent) -> None:
    visit(page, "/ui/jobs/run")
    editor = page.locator("[data-editor='Job file'] .cm-content")
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text('job "fresh" {\n  group "app" {\n    cuont = 1\n  }\n}\n')
    expect(page.locator(".cm-lintRange-error")).to_have_count(1)
    page.keyboard.press("Control+a")
    text = page.evaluate("async () => (await (await fetch('/v1/job/written/submission?version=0')).json()).Source")
    page.keyboard.insert_text(text.replace('"written"', '"fresh"'))
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.get_by_role("group", name="Differences")).to_contain_text("job fresh")
    expect(page.locator("main")).to_contain_text("all can be placed")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page).to_have_url(re.compile("/ui/jobs/fresh"))
    agent.running("fresh", 1)
    visit(page, "/ui/jobs/run?edit=fresh&namespace=default")
    expect(editor).to_contain_text("memory = 32")
    editor.get_by_text("memory = 32").click()
    page.keyboard.press("End")
    page.keyboard.press("Backspace")
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("minimum MemoryMB value is 10; got 3")
    expect(page.get_by_role("button", name="Run", exact=True)).to_have_count(0)
    editor.get_by_text("memory = 3").click()
    page.keyboard.press("End")
    page.keyboard.insert_text("0")
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.get_by_role("group", name="Differences")).to_contain_text("32 → 30")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page).to_have_url(re.compile("/ui/jobs/fresh"))
    visit(page, "/ui/jobs/fresh/versions")
    page.get_by_role("button", name="Changes").first.click()
    expect(page.get_by_role("group", name="Differences")).to_contain_text("32 → 30")
    page.get_by_role("button", name="Side by side").first.click()
    expect(page.locator("pre.added")).to_contain_text("memory = 30")
    confirm(page, "Revert", "yurt job revert fresh 0")
    expect(page.locator("main")).to_contain_text("Version 2")
    page.locator("[data-action=Tag]").first.click()
    page.get_by_role("dialog").get_by_label("Name").fill("good")
    page.get_by_role("dialog").get_by_role("button", name="Tag", exact=True).click()
    expect(page.locator("main")).to_contain_text("tag good")
    visit(page, "/ui/jobs/fresh")
    confirm(page, "Stop", "yurt job stop fresh")
    wait_for("a stopped job", lambda: agent.get("/v1/job/fresh")["Stop"])
    expect(page.locator("[data-action=Start]")).to_be_visible()


def test_why_a_job_waits_leads_to_the_change_that_helps(page: Page, agent: Agent) -> None:
    visit(page, "/ui/")
    page.locator("main").get_by_role("link", name="big").first.click()
    page.get_by_role("navigation", name="Sections").get_by_text("Why it waits").click()
    expect(page.get_by_role("list", name="Nodes left after each step")).to_contain_text("Have enough free resources0")
    expect(page.get_by_role("region", name="Nearest nodes")).to_contain_text("MB memory short")
    page.get_by_label("Node that is asked about").fill(agent.get("/v1/nodes")[0]["Name"])
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("region", name="Group app")).to_contain_text("lacks: ")
    page.get_by_role("button", name="Apply to editor").click()
    expect(page.locator("main")).to_contain_text("The smallest change that helps is applied")
    expect(page.locator("main")).to_contain_text("all can be placed")


def test_a_group_is_scaled_and_a_child_dispatched(page: Page, agent: Agent) -> None:
    visit(page, "/ui/jobs/web")
    page.locator("[data-action=Scale]").click()
    page.get_by_role("dialog").get_by_label("Count").fill("3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("navigation", name="Sections").get_by_text("Scaling").click()
    expect(page.locator("main")).to_contain_text("2 → 3")
    agent.running("web", 3)
    visit(page, "/ui/jobs/convert")
    page.locator("[data-action=Dispatch]").click()
    page.get_by_role("dialog").get_by_label("input").fill("a picture")
    page.get_by_role("dialog").get_by_label("Payload").fill("päyload")
    page.get_by_role("dialog").get_by_role("button", name="Dispatch", exact=True).click()
    expect(page.locator("main")).to_contain_text("päyload")
    visit(page, "/ui/jobs/convert/children")
    expect(rows(page, "Jobs")).to_have_count(1)
    visit(page, "/ui/jobs/nightly")
    held = {"EvalID": "", "Warnings": "an instance of this second exists"}
    page.route("**/periodic/force*", lambda route: route.fulfill(json=held))
    confirm(page, "Launch now", "yurt job periodic force nightly")
    expect(page.get_by_text("Not launched: an instance of this second exists")).to_be_visible()
    page.unroute("**/periodic/force*")
    confirm(page, "Launch now", "yurt job periodic force nightly")
    expect(page.get_by_text('A child of "nightly" was launched')).to_be_visible()
    wait_for("a child", lambda: [row for row in agent.get("/v1/jobs?prefix=nightly/") if "periodic" in row["ID"]])


def alloc_of(agent: Agent, job: str) -> dict[str, Any]:
    return next(row for row in agent.allocs(job) if row["ClientStatus"] == "running")


def test_logs_follow_search_and_stay_text(page: Page, agent: Agent) -> None:
    visit(page, f"/ui/allocations/{alloc_of(agent, 'web')['ID']}?tab=logs&from=start")
    log = page.get_by_role("log")
    expect(log).to_contain_text("tick")
    assert page.locator(".log-line").count() < 200
    page.keyboard.press("f")
    page.keyboard.type("red")
    expect(page.locator("main")).to_contain_text("1 lines match")
    page.get_by_label("Only lines that match").check()
    expect(log.locator(".f-1")).to_have_text("red")
    page.get_by_label("Find in the log").fill("/^line 29\\d+$/")
    expect(page.locator("main")).to_contain_text("110 lines match")
    page.get_by_label("Find in the log").fill("bold")
    expect(log).to_contain_text("<b>bold?</b>")
    page.get_by_label("Find in the log").fill("link")
    expect(log).to_contain_text("link")
    assert log.locator("a, b, img").count() == 0
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename == "server.stdout.log"


def test_a_terminal_runs_commands(page: Page, agent: Agent) -> None:
    visit(page, f"/ui/allocations/{alloc_of(agent, 'web')['ID']}/server?tab=exec")
    page.get_by_role("button", name="Run", exact=True).click()
    screen = page.locator("[data-terminal] .xterm-rows")
    expect(screen).to_contain_text(re.compile(r"[$#]"))
    page.keyboard.type("echo it-is-$((40+2))\n")
    expect(screen).to_contain_text("it-is-42")
    page.keyboard.type("printf '\\033[31mcolour\\033[0m\\n'\n")
    red = screen.locator("span.xterm-fg-1", has_text="colour")
    expect(red.first).to_be_visible()
    assert red.first.evaluate("e => getComputedStyle(e).color") != screen.evaluate("e => getComputedStyle(e).color")
    page.keyboard.type(
        "printf '\\033]0;evil\\007\\033]52;c;ZXZpbA==\\007\\033]8;;javascript:alert(1)\\007x\\033]8;;\\007%s\\n' done\n"
    )
    expect(screen).to_contain_text("xdone")
    expect(page).to_have_title("server · Yurt")
    assert page.locator("[data-terminal] a").count() == 0
    page.keyboard.type("exit 4\n")
    expect(page.locator("main")).to_contain_text("exit code 4")


def test_files_are_read_and_an_allocation_is_restarted_and_stopped(page: Page, agent: Agent) -> None:
    alloc = alloc_of(agent, "web")
    visit(page, f"/ui/allocations/{alloc['ID']}?tab=files&path=/alloc/logs")
    page.get_by_role("button", name="server.stdout.0").click()
    expect(page.get_by_label("Contents")).to_contain_text("line 7")
    visit(page, f"/ui/allocations/{alloc['ID']}")
    confirm(page, "Restart", f"yurt alloc restart {alloc['ID']}")
    expect(page.get_by_role("list", name="Events, newest first")).to_contain_text("Restart Signaled")
    confirm(page, "Stop", f"yurt alloc stop {alloc['ID']}")
    expect(page.locator("main")).to_contain_text("replaced by")


def test_canaries_are_promoted_from_the_overview(page: Page, agent: Agent) -> None:
    def version(seconds: int) -> dict[str, Any]:
        update = {"MaxParallel": 1, "Canary": 1, "MinHealthyTime": 0, "HealthCheck": "task_states"}
        return job("canary", [task("run", f"sleep {seconds}")], group={"Update": update})

    agent.call("PUT", "/v1/jobs", {"Job": version(3600)})
    wait_for("a healthy job", lambda: (agent.get("/v1/job/canary/deployment") or {}).get("Status") == "successful")
    agent.call("PUT", "/v1/jobs", {"Job": version(3601)})
    visit(page, "/ui/")
    page.get_by_role("region", name="Needs attention").get_by_role("link", name="canary").click()
    confirm(page, "Promote", "yurt deployment promote ")
    wait_for("a promotion", lambda: agent.get("/v1/job/canary/deployment")["TaskGroups"]["app"]["Promoted"])
    agent.call("DELETE", "/v1/job/canary?purge=true")


def test_a_task_is_paused_and_runs_again(page: Page, agent: Agent) -> None:
    alloc = alloc_of(agent, "everywhere")
    visit(page, f"/ui/allocations/{alloc['ID']}/agent")
    confirm(page, "Pause task", f"yurt alloc pause -state=pause {alloc['ID']} agent")
    expect(page.get_by_role("region", name="Facts")).to_contain_text("by an operator")
    confirm(page, "Run task", f"yurt alloc pause -state=run {alloc['ID']} agent")
    expect(page.locator("[data-action='Pause task']")).to_be_visible()


def test_what_if_composes_the_command(page: Page, agent: Agent) -> None:
    node = agent.get("/v1/nodes")[0]
    visit(page, f"/ui/nodes/{node['ID']}")
    page.get_by_role("link", name="What if it were lost?").click()
    expect(page.get_by_role("region", name="The command")).to_contain_text(f"yurt whatif -lose={node['ID']}")
    page.get_by_label("Nodes are added like:").select_option(node["Name"])
    page.get_by_label("How many:").fill("4")
    expect(page.get_by_role("region", name="The command")).to_contain_text(f"-add=4:{node['ID']}")


def test_a_host_volume_is_shown_and_deleted(page: Page, agent: Agent) -> None:
    path = agent.folder / "scratch"
    path.mkdir()
    node = agent.get("/v1/nodes")[0]["ID"]
    asked = [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]
    volume = {"Name": "scratch", "NodeID": node, "HostPath": str(path), "RequestedCapabilities": asked}
    agent.call("PUT", "/v1/volume/host/register", {"Volume": volume})
    visit(page, "/ui/storage")
    page.get_by_role("link", name="scratch").click()
    expect(page.get_by_role("region", name="Facts")).to_contain_text(str(path))
    expect(page.get_by_role("region", name="Capabilities")).to_contain_text("single-node-writer, file-system")
    confirm(page, "Delete", "yurt volume delete -type=host")
    expect(page.locator("main")).to_contain_text("No host volumes were made")


def test_declared_actions_run_and_show_their_output(page: Page, agent: Agent) -> None:
    agent.running("web", agent.get("/v1/job/web")["TaskGroups"][0]["Count"])
    visit(page, "/ui/jobs/web/commands")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("main")).to_contain_text("from the task")
    expect(page.locator("main")).to_contain_text("exit code 0")


def test_a_node_takes_no_allocations_and_keeps_metadata(page: Page, agent: Agent) -> None:
    node = agent.get("/v1/nodes")[0]["ID"]
    visit(page, f"/ui/nodes/{node}?tab=meta")
    page.locator("[data-action='Add metadata']").click()
    page.get_by_role("dialog").get_by_label("Name").fill("rack")
    page.get_by_role("dialog").get_by_label("Value").fill("r7")
    page.get_by_role("dialog").get_by_role("button", name="Add metadata").click()
    expect(page.get_by_role("table", name="Metadata")).to_contain_text("r7")
    confirm(page, "Take no new allocations", f"yurt node eligibility -disable {node}")
    expect(page.locator("header.heading")).to_contain_text("ineligible")
    confirm(page, "Take new allocations")
    expect(page.locator("header.heading")).to_contain_text("ready")


def test_a_variable_is_masked_edited_and_saved_only_over_what_was_read(page: Page, agent: Agent) -> None:
    visit(page, "/ui/variables/nomad/jobs/web")
    expect(page.locator("main")).to_contain_text("••••••••")
    assert "swordfish" not in page.locator("main").inner_html()
    page.keyboard.press("v")
    expect(page.locator("main")).to_contain_text("swordfish")
    expect(page.locator("main")).to_contain_text("<img src=x")
    page.get_by_role("button", name="Edit", exact=True).click()
    page.get_by_label("Value 2").fill("mine")
    agent.call("PUT", "/v1/var/nomad/jobs/web", {"Items": {"attack": "a", "password": "theirs"}})
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("Somebody changed the variable")
    page.get_by_role("button", name="Overwrite theirs").click()
    page.get_by_role("button", name="Show values").click()
    expect(page.locator("main")).to_contain_text("mine")
    visit(page, "/ui/variables?new=1")
    page.get_by_label("Path").fill("apps/one")
    page.get_by_label("Key 1", exact=True).fill("k")
    page.get_by_label("Value 1").fill("v")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("apps/one")
    confirm(page, "Delete", "yurt var purge")


def test_a_namespace_is_made_and_deleted(page: Page, agent: Agent) -> None:
    visit(page, "/ui/namespaces?new=1")
    editor = page.get_by_role("dialog").locator(".cm-content")
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text('{"Name": "team-b", "Description": "made here"}')
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(rows(page, "namespaces").filter(has_text="team-b")).to_contain_text("made here")
    rows(page, "namespaces").filter(has_text="team-b").get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(rows(page, "namespaces")).to_have_count(1)


def test_jobs_are_stopped_together_and_views_are_saved(page: Page, agent: Agent) -> None:
    job = agent.get("/v1/job/everywhere")
    for name in ("pair-1", "pair-2"):
        agent.call("PUT", "/v1/jobs", {"Job": job | {"ID": name, "Name": name, "Type": "service"}})
    visit(page, "/ui/jobs?q=pair")
    expect(rows(page, "Jobs")).to_have_count(2)
    page.get_by_text("Views ▾").click()
    page.get_by_role("button", name="Save this view").click()
    page.get_by_role("dialog").get_by_label("Name").fill("pairs")
    page.get_by_role("dialog").get_by_role("button", name="Save this view").click()
    expect(page.get_by_role("link", name="pairs")).to_have_attribute("href", "/ui/jobs?q=pair")
    page.get_by_label("Select all rows").check()
    page.get_by_role("region", name="Selected jobs").get_by_role("button", name="Purge").click()
    expect(page.get_by_role("dialog")).to_contain_text("yurt job stop -purge pair-1")
    page.get_by_role("dialog").get_by_role("button", name="Purge 2 jobs").click()
    expect(rows(page, "Jobs")).to_have_count(0)


TOUCH_PX = 24
"""The least size of what is touched (WCAG 2.2, 2.5.8)."""


def box_of(target: Locator) -> tuple[float, float, float, float]:
    """Left, top, width and height in the window."""
    box = target.bounding_box()
    assert box is not None
    return box["x"], box["y"], box["width"], box["height"]


def in_sight(target: Locator) -> bool:
    """Its top is in the window, and nothing of it beyond the sides."""
    left, top, width, _ = box_of(target)
    size = target.page.viewport_size
    assert size is not None
    return left >= 0 and left + width <= size["width"] and 0 <= top < size["height"]


def test_a_new_user_on_a_phone_finds_why_a_job_fails_and_restarts_it(page: Page, agent: Agent) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    visit(page, "/ui/")
    page.locator("main").get_by_role("link", name="crash").first.click()
    reason = page.get_by_role("region", name="What fails")
    expect(reason).to_contain_text("Exit Code: 3")
    expect(reason).to_contain_text("no luck")
    assert in_sight(reason), "the reason is in sight without scrolling"
    page.get_by_role("link", name="Log", exact=True).first.click()
    expect(page.get_by_role("log")).to_contain_text("no luck")
    page.get_by_role("link", name="crash", exact=True).click()
    retry = page.locator("[data-action='Retry failed']").first
    expect(retry).to_be_visible()
    assert in_sight(retry) and min(box_of(retry)[2:]) >= TOUCH_PX
    retry.click()
    button = page.get_by_role("dialog").get_by_role("button", name="Retry failed", exact=True)
    expect(page.get_by_role("dialog")).to_contain_text("yurt job eval -force-reschedule crash")
    assert in_sight(button) and min(box_of(button)[2:]) >= TOUCH_PX
    button.click()
    wait_for("a new attempt", lambda: len(agent.allocs("crash")) > 1)
    expect(page.locator("main")).to_contain_text("failed")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360


def test_all_pages_of_a_browser_share_one_stream(context: BrowserContext, agent: Agent) -> None:
    pages = [context.new_page() for _ in range(3)]
    for page, path in zip(pages, ("/ui/", "/ui/jobs", "/ui/nodes"), strict=True):
        page.goto(path)
        expect(page.locator(".live")).to_contain_text("live")
    assert all(
        "/v1/yurt/watch" not in str(page.evaluate("() => performance.getEntries().map(e => e.name)")) for page in pages
    )
    for page in pages:
        page.close()
