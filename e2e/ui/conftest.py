"""One agent with jobs of several kinds, one Chromium, and pages that fail their test on any fault of the browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright
from yurt.testing.agent import Agent, running_agent, wait_for

CHROMIUM = "/usr/bin/chromium"
WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)
ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>"
HOSTILE_NAME = "<img src=x onerror=alert(5)>"
ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "core/ui-vendor/axe/axe.min.js"
EXPECTED = (
    "status of 404",
    "status of 403",
    "status of 400",
    "status of 409",
    "status of 500",
    "net::ERR_NETWORK_CHANGED",
)
"""What Chromium writes to the console about answers that a page asks for and shows, and about requests that it ended
because an interface of the machine came or went: the page sends them again."""
VIOLATIONS = "addEventListener('securitypolicyviolation', e => console.error('CSP', e.violatedDirective, e.blockedURI))"


def task(name: str, script: str, **more: Any) -> dict[str, Any]:
    config = {"command": "/bin/sh", "args": ["-c", script]}
    return {"Name": name, "Driver": "raw_exec", "Config": config,
            "Resources": {"CPU": 20, "MemoryMB": 32}, **more}  # fmt: skip


def job(id: str, tasks: list[dict[str, Any]], *, count: int = 1, **more: Any) -> dict[str, Any]:
    group = {"Name": "app", "Count": count, "Tasks": tasks} | more.pop("group", {})
    return {"ID": id, "Name": id, "Type": "service", "Datacenters": ["*"], "TaskGroups": [group], **more}


SVG = '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(3)"><script>alert(4)</script></svg>'
FILES = f"echo '{SVG}' > $NOMAD_ALLOC_DIR/evil.svg; echo inside > \"$NOMAD_ALLOC_DIR/{HOSTILE_NAME}\"; "
LOUD = (
    FILES
    + r"printf '\033[31mred\033[0m plain\n<b>bold?</b>\n\033]8;;javascript:alert(1)\007link\033]8;;\007\n'; "
    + ("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; while true; do echo tick; sleep 1; done")
)
HCL = """job "written" {
  type = "service"
  meta {
    owner = "team-a"
  }
  group "app" {
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["3600"]
      }
      resources {
        cpu    = 20
        memory = 32
      }
    }
  }
}
"""
ONE_TRY = {
    "Update": {"MaxParallel": 0},
    "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
    "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
}
"""A group whose tasks are neither restarted nor rescheduled."""
JOBS = [
    job(
        "web",
        [task("server", LOUD, Actions=[{"Name": "hello", "Command": "/bin/echo", "Args": ["from the task"]}])],
        count=2,
        Meta={"owner": "team-a"},
        UI={
            "Description": "Serves the **shop**. Its runbook says what to do when it is slow.",
            "Links": [{"Label": "runbook", "URL": "https://example.com/"}],
        },
        group={
            "Networks": [{"DynamicPorts": [{"Label": "http"}]}],
            "Services": [{"Name": "web-service", "PortLabel": "http", "Provider": "nomad"}],
            "Scaling": {"Min": 1, "Max": 5, "Enabled": True},
        },
    ),
    job(
        "crash",
        [task("broken", "echo no luck >&2; exit 3")],
        group=ONE_TRY,
    ),
    job("big", [task("hungry", "sleep 1") | {"Resources": {"CPU": 20, "MemoryMB": 900_000}}]),
    job(
        "convert",
        [task("run", "echo $NOMAD_META_input; sleep 3600")],
        Type="batch",
        ParameterizedJob={"Payload": "optional", "MetaRequired": ["input"], "MetaOptional": []},
    ),
    job(
        "nightly",
        [task("run", "true")],
        Type="batch",
        Periodic={"Enabled": True, "Spec": "0 3 1 1 *", "SpecType": "cron"},
    ),
    job("everywhere", [task("agent", "sleep 3600")], Type="system"),
    job(
        "hostile",
        [task("run", "sleep 3600", Meta={ATTACK: ATTACK})],
        Name=ATTACK,
        Meta={"owner": ATTACK, "bidi": "a\u202eb"},
        UI={
            "Description": f"A **loud** job {ATTACK}",
            "Links": [{"Label": "docs", "URL": "https://example.com/"}, {"Label": "bad", "URL": "javascript:alert(1)"}],
        },
    ),
]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("ui")
    extra = {
        "ui": {"enabled": True, "label": {"text": "tests"}},
        "client": {"host_volume_register_dirs": [str(folder)]},
    }
    with running_agent(folder, extra=extra) as agent:
        for each in JOBS:
            agent.call("PUT", "/v1/jobs", {"Job": each})
        parsed = agent.call("PUT", "/v1/jobs/parse", {"JobHCL": HCL, "Canonicalize": True})
        agent.call("PUT", "/v1/jobs", {"Job": parsed, "Submission": {"Source": HCL, "Format": "hcl2"}})
        agent.call("PUT", "/v1/var/nomad/jobs/web", {"Items": {"password": "swordfish", "attack": ATTACK}})
        agent.running("web", 2)
        wait_for("a failed job", lambda: [row["ClientStatus"] for row in agent.allocs("crash")] == ["failed"])
        yield agent


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser for one module: while Playwright runs, its event loop keeps asynchronous tests of other modules out."""
    with sync_playwright() as started:
        browser = launched(started)
        yield browser
        browser.close()


def launched(started: Playwright) -> Browser:
    if not Path(CHROMIUM).exists():
        pytest.skip("Debian's chromium is not installed")
    return started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture(scope="module")
def context(agent: Agent, chromium: Browser) -> Iterator[BrowserContext]:
    """One profile for all tests of a module: the files of the pages come from its cache, as they do for operators."""
    made = new_context(chromium, agent.address)
    yield made
    made.close()


def new_context(chromium: Browser, address: str) -> BrowserContext:
    made = chromium.new_context(base_url=address, viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    made.set_default_timeout(WAIT_MS)
    made.add_init_script(VIOLATIONS)
    return made


VISIT = """to => new Promise(done => {
  history.pushState(null, '', to);
  dispatchEvent(new PopStateEvent('popstate'));
  setTimeout(done, 20);
})"""
KEEPS = (
    """() => localStorage.length > 0 || sessionStorage.length > 0 || document.querySelector('dialog[open]') !== null"""
)


def visit(page: Page, path: str) -> None:
    """Show an address within the pages that are loaded, as a click on a link does; the first one is loaded."""
    if "/ui" in page.url:
        page.evaluate(VISIT, path)
    else:
        page.goto(path)


class WatchedPage(NamedTuple):
    """A page, and what went wrong in it: errors of scripts, broken rules of its policy, requests to another origin."""

    page: Page
    faults: list[str]


@contextmanager
def watched_page(context: BrowserContext, address: str) -> Iterator[WatchedPage]:
    """A new page, whose faults are gathered."""
    page, faults = context.new_page(), list[str]()
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on(
        "request", lambda sent: None if sent.url.startswith((address, "data:", "blob:")) else faults.append(sent.url)
    )
    page.on("console", lambda said: faults.append(said.text) if is_fault(said.type, said.text) else None)
    yield WatchedPage(page, faults)
    page.close()


@pytest.fixture(scope="module")
def shared_page(agent: Agent, context: BrowserContext) -> Iterator[WatchedPage]:
    """One page for the tests of a module: to load a document takes ten times as long as to follow a link."""
    with watched_page(context, agent.address) as watched:
        yield watched


@pytest.fixture
def page(agent: Agent, shared_page: WatchedPage, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page, of whose faults there may be none; where a test fails or leaves something behind, it is loaded anew."""
    page, faults = shared_page
    faults.clear()
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="light")
    failed = request.session.testsfailed
    yield page
    page.unroute_all()
    if page.url.startswith(agent.address) and (request.session.testsfailed > failed or page.evaluate(KEEPS)):
        page.evaluate("() => { localStorage.clear(); sessionStorage.clear() }")
        page.goto("about:blank")
    assert not faults, "\n".join(faults)


def is_fault(kind: str, text: str) -> bool:
    return kind == "error" and not any(known in text for known in EXPECTED)


@pytest.fixture
def check_access(page: Page) -> Callable[[str], None]:
    """Fails when axe finds a serious fault of accessibility on the page shown."""

    def check(name: str) -> None:
        if not page.evaluate("() => 'axe' in window"):
            page.evaluate(AXE.read_text() + "; 0")
        found = page.evaluate(
            "async () => (await axe.run(document, {resultTypes: ['violations'], preload: false, iframes: false,"
            " runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']})).violations"
            ".filter(v => ['serious', 'critical'].includes(v.impact))"
            ".map(v => [v.id, v.nodes.slice(0, 3).map(n => n.html)])"
        )
        assert not found, f"{name}: {json.dumps(found, indent=1)}"

    return check
