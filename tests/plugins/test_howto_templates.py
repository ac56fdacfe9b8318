"""The template provider that docs/howto/write-a-template-provider.md makes: taken from the page, installed, and asked
by a real agent whose templates follow a Consul of this test.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for
from yurt.testing.page_package import lay_package, page_files, write_sources

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "write-a-template-provider.md"
FILES = {name: text for name, text in page_files(PAGE).items() if name.endswith((".toml", ".py"))}
MODULE = "src/yurt_templates_consul/__init__.py"
MODULE_LINES_MAX = 75
TEXT = """limit={{ key "app/limit" }} is={{ keyExists "app/limit" }} other={{ keyOrDefault "app/no" "none" }}
{{ range ls "app" }}{{ .Key }}:{{ .Value }};{{ end }}"""


class Consul(ThreadingHTTPServer):
    """The keys of a Consul: GET /v1/kv/PATH, with `recurse`, and `index` to wait for what is newer."""

    daemon_threads = True

    def __init__(self, **keys: str) -> None:
        super().__init__(("127.0.0.1", 0), ConsulRequest)
        self.index = 1
        self.keys = {name.replace("__", "/"): value for name, value in keys.items()}
        self.changed = threading.Condition()

    @property
    def address(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def put(self, **keys: str) -> None:
        """Set keys; `__` in a name stands for a slash."""
        with self.changed:
            self.keys |= {name.replace("__", "/"): value for name, value in keys.items()}
            self.index += 1
            self.changed.notify_all()


class ConsulRequest(BaseHTTPRequestHandler):
    """One question."""

    server: Consul

    def do_GET(self) -> None:
        """Answer once there is something newer."""
        url = urlsplit(self.path)
        query, path = parse_qs(url.query), url.path.removeprefix("/v1/kv/")
        with self.server.changed:
            self.server.changed.wait_for(lambda: self.server.index > int(query.get("index", ["0"])[0]), timeout=20)
            keys = self.server.keys.items()
            found = [(k, v) for k, v in keys if k == path or ("recurse" in query and k.startswith(path))]
            index = self.server.index
        rows = [{"Key": key, "Value": base64.b64encode(value.encode()).decode()} for key, value in found]
        body = json.dumps(rows).encode()
        self.send_response(403 if path == "closed" else 200 if rows else 404)
        self.send_header("X-Consul-Index", str(index))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the page's package is laid as an installer would."""
    sources, site = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("site") / "packages"
    write_sources(FILES, sources)
    lay_package(sources, site)
    return site


@pytest.fixture
def consul() -> Iterator[Consul]:
    """A Consul with one key."""
    made = Consul(app__limit="10")
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made
    made.put(bye="now")
    made.shutdown()
    thread.join()
    made.server_close()


def test_the_plugin_module_is_short() -> None:
    assert len(FILES[MODULE].splitlines()) < MODULE_LINES_MAX


def test_the_page_imports_only_the_sdk() -> None:
    imported = set(re.findall(r"^(?:from|import) (yurt\.\S+)", "\n".join(FILES.values()), re.MULTILINE))
    assert imported and all(name.startswith("yurt.sdk.") for name in imported)


def test_templates_of_an_agent_follow_the_keys(
    site: Path, consul: Consul, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *sys.path]))
    config = {"plugin": {"consul": {"config": {"address": consul.address}}}}
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra=config) as agent:
        register(agent, job("follows", TEXT))
        register(agent, job("waits", '{{ key "late" }}'))
        register(agent, job("refused", '{{ key "closed" }}'))
        assert conf(agent, "follows") == "limit=10 is=true other=none\nlimit:10;"
        consul.put(app__limit="20", late="here", app__more="1")
        wait_for("the change", lambda: conf(agent, "follows") == "limit=20 is=true other=none\nlimit:20;more:1;")
        wait_for("the late key", lambda: conf(agent, "waits") == "here")
        wait_for("the refusal", lambda: "the agent's token may not read closed" in events(agent, "refused"))
        listed = agent.cli("plugin", "list")
        assert re.search(r"consul-keys\s+ok", listed.stdout), listed


def test_without_the_package_the_function_says_what_is_missing(tmp_path: Path) -> None:
    with running_agent(tmp_path, data_dir=tmp_path / "data") as agent:
        register(agent, job("lacks", '{{ key "app/limit" }}'))
        wait_for("the reason", lambda: "no Consul provider on this node" in events(agent, "lacks"))


def job(name: str, text: str) -> dict[str, object]:
    """A task with this file that fails for good at once."""
    made = raw_exec_job(name, "/bin/sleep", "600")
    task = made["TaskGroups"][0]["Tasks"][0]
    task["Templates"] = [
        {"EmbeddedTmpl": text, "DestPath": "local/conf", "ChangeMode": "noop", "Wait": {"Min": 0, "Max": 0}}
    ]
    task["RestartPolicy"] = {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000}
    return made


def conf(agent: Agent, name: str) -> str:
    """The file as the task has it, once it runs."""
    (alloc,) = agent.running(name, 1)
    return agent.cli("alloc", "fs", alloc["ID"], "main/local/conf").stdout


def events(agent: Agent, name: str) -> str:
    """What the task's events say."""
    for alloc in agent.allocs(name):
        for state in (agent.get(f"/v1/allocation/{alloc['ID']}")["TaskStates"] or {}).values():
            return "\n".join(event["DisplayMessage"] for event in state["Events"] or [])
    return ""
