"""Programs that discover services in Nomad find those of Yurt: Prometheus and Traefik with their own Go code for Nomad
(e2e/go_discovery), and Caddy with a template that is rendered again at each change.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, dev_token, raw_exec_job, register, running_agent, wait_for
from yurt.testing.services.go_programs import build_go, fetched_module
from yurt.testing.unique_ports import free_ports

pytestmark = pytest.mark.timeout(900)

SOURCES = Path(__file__).parent / "go_discovery"
OLDEST_GO = (1, 26)
SEEN_LIMIT_S = 60.0
READER = 'namespace "shop" { capabilities = ["read-job"] }'
TAGS = ["traefik.enable=true", "traefik.http.routers.web.rule=Host(`web.example`)", "blue"]
CADDYFILE = """
{
    admin unix/caddy.sock
}
http://127.0.0.1:%d {
    reverse_proxy {{ range nomadService "pages" }} {{ .Address }}:{{ .Port }}{{ end }} {
        lb_policy round_robin
    }
}
"""
PAGE = "mkdir page; echo $NOMAD_ALLOC_INDEX > page/index.html; exec busybox httpd -f -p $NOMAD_ADDR_http -h page"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs `prometheus` and `traefik`; skips where they cannot be built."""
    folder = tmp_path_factory.mktemp("go")
    build_go(fetched_module(SOURCES, folder, oldest=OLDEST_GO), folder, "./prometheus", "./traefik")
    return folder


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A dev agent with access control and the namespace `shop`; its token is the management token."""
    started = Agent(tmp_path_factory.mktemp("agent"), data_dir=None)
    started.flags = ("-acl",)
    started.spawn()
    try:
        started.token = dev_token(started)
        started.call("PUT", "/v1/namespace/shop", {"Name": "shop"})
        register(started, served_job("elsewhere", count=1))
        yield started
    finally:
        started.interrupt()


@pytest.fixture(scope="module")
def reader(agent: Agent) -> str:
    """The secret of a token that reads the jobs of `shop`."""
    agent.call("PUT", "/v1/acl/policy/discovery", {"Name": "discovery", "Rules": READER})
    made = agent.call("PUT", "/v1/acl/token", {"Name": "discovery", "Type": "client", "Policies": ["discovery"]})
    return str(made["SecretID"])


def served_job(name: str, script: str = "exec sleep 600", *, count: int, **more: Any) -> dict[str, Any]:
    """A job with a service of its name on a dynamic port, whose provider is `nomad`."""
    network = {"DynamicPorts": [{"Label": "http"}]}
    service = {"Name": name, "Provider": "nomad", "PortLabel": "http", "Tags": TAGS}
    job = raw_exec_job(name, "/bin/sh", "-c", script, count=count, Networks=[network], Services=[service])
    return job | more


def instances(agent: Agent, name: str) -> list[dict[str, Any]]:
    """The instances of a service of the namespace `shop`, by port."""
    found: list[dict[str, Any]] = agent.get(f"/v1/service/{name}?namespace=shop")
    return sorted(found, key=lambda each: int(each["Port"]))


class Printing:
    """A program that prints a line of JSON for each change that it sees."""

    def __init__(self, output: Path) -> None:
        self.output = output

    def wait_last(self, expected: Any, reduce: Callable[[Any], Any]) -> None:
        """Wait until the newest line, reduced to what the test is about, equals what is expected."""

        def last() -> Any:
            lines = self.output.read_text().splitlines()
            return reduce(json.loads(lines[-1])) if lines else None

        try:
            wait_for("the line", lambda: last() == expected, SEEN_LIMIT_S)
        except AssertionError:
            assert last() == expected, self.output.with_suffix(".log").read_text()


@contextmanager
def printing(
    folder: Path, program: Path, *words: str, given: str = "", env: dict[str, str] | None = None
) -> Iterator[Printing]:
    output = folder / "seen"
    with output.open("wb") as lines, output.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [program, *words], stdin=subprocess.PIPE, stdout=lines, stderr=log, env={**os.environ, **(env or {})}
        )
    assert process.stdin is not None
    process.stdin.write(given.encode())
    process.stdin.close()
    try:
        yield Printing(output)
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_prometheus_discovers_the_services_of_a_namespace(
    agent: Agent, reader: str, programs: Path, tmp_path: Path
) -> None:
    entry = (
        f"server: {agent.address}\nnamespace: shop\nregion: global\nrefresh_interval: 200ms\n"
        f"authorization: {{credentials: {reader}}}\n"
    )
    register(agent, served_job("web", count=2, Namespace="shop"))
    wait_for("two instances", lambda: len(instances(agent, "web")) == 2)
    with printing(tmp_path, programs / "prometheus", given=entry) as prometheus:
        prometheus.wait_last([target(each) for each in instances(agent, "web")], by_port)

        register(agent, served_job("web", count=1, Namespace="shop"))
        wait_for("one instance", lambda: len(instances(agent, "web")) == 1)
        prometheus.wait_last([target(each) for each in instances(agent, "web")], by_port)

        agent.call("DELETE", "/v1/job/web?namespace=shop")
        prometheus.wait_last([], by_port)


def by_port(targets: list[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(targets, key=lambda each: int(each["__meta_nomad_service_port"]))


def target(instance: dict[str, Any]) -> dict[str, str]:
    """The target that Prometheus is to make of an instance of a service."""
    return {
        "__address__": f"{instance['Address']}:{instance['Port']}",
        "__meta_nomad_address": instance["Address"],
        "__meta_nomad_dc": "dc1",
        "__meta_nomad_namespace": "shop",
        "__meta_nomad_node_id": instance["NodeID"],
        "__meta_nomad_service": "web",
        "__meta_nomad_service_address": instance["Address"],
        "__meta_nomad_service_id": instance["ID"],
        "__meta_nomad_service_port": str(instance["Port"]),
        "__meta_nomad_tags": f",{','.join(TAGS)},",
    }


@pytest.mark.parametrize("way", ["watch", "poll"])
def test_traefik_routes_to_the_services_that_their_tags_enable(
    agent: Agent, reader: str, programs: Path, tmp_path: Path, way: str
) -> None:
    env = {"NOMAD_ADDR": agent.address, "NOMAD_TOKEN": reader}
    with printing(tmp_path, programs / "traefik", way, "shop", env=env) as traefik:
        traefik.wait_last((None, []), routed)

        register(agent, served_job("web", count=2, Namespace="shop"))
        wait_for("two instances", lambda: len(instances(agent, "web")) == 2)
        urls = [f"http://{each['Address']}:{each['Port']}" for each in instances(agent, "web")]
        traefik.wait_last(("Host(`web.example`)", urls), routed)

        agent.call("DELETE", "/v1/job/web?namespace=shop")
        traefik.wait_last((None, []), routed)


def routed(message: dict[str, Any]) -> tuple[str | None, list[str]]:
    """The rule of the router `web` and the addresses that it leads to, by port."""
    found = message["Configuration"].get("http", {})
    router, service = found.get("routers", {}).get("web", {}), found.get("services", {}).get("web", {})
    urls = [each["url"] for each in service.get("loadBalancer", {}).get("servers", [])]
    return router.get("rule"), sorted(urls, key=lambda url: int(url.rpartition(":")[2]))


@pytest.mark.skipif(shutil.which("caddy") is None, reason="Caddy is not installed: apt install caddy")
def test_caddy_follows_a_service_by_a_template(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with running_agent(tmp_path) as agent:
        register(agent, caddy_job(port))
        register(agent, served_job("pages", PAGE, count=1))
        wait_for("a page of the first instance", lambda: pages(port) == {"0"})

        register(agent, served_job("pages", PAGE, count=2))
        wait_for("pages of both instances", lambda: pages(port) == {"0", "1"})

        register(agent, served_job("pages", PAGE, count=1))
        wait_for("only pages of the first instance", lambda: pages(port) == {"0"})
        (alloc,) = agent.running("caddy", 1)
        assert agent.get(f"/v1/allocation/{alloc['ID']}")["TaskStates"]["main"]["Restarts"] == 0


def caddy_job(port: int) -> dict[str, Any]:
    """Caddy in front of the service `pages`: at each change a script loads the file that was rendered."""
    job = raw_exec_job("caddy", "caddy", "run", "--config", "local/Caddyfile", "--adapter", "caddyfile")
    reload = ["reload", "--config", "local/Caddyfile", "--adapter", "caddyfile", "--address", "unix/caddy.sock"]
    task = job["TaskGroups"][0]["Tasks"][0]
    task["Resources"] = {"CPU": 200, "MemoryMB": 128}
    task["Templates"] = [
        {
            "EmbeddedTmpl": CADDYFILE % port,
            "DestPath": "local/Caddyfile",
            "ChangeMode": "script",
            "ChangeScript": {"Command": "caddy", "Args": reload, "Timeout": 30_000_000_000, "FailOnError": True},
        }
    ]
    return job


def pages(port: int) -> set[str]:
    """What four requests in a row are answered with; nothing while Caddy cannot answer."""
    try:
        return {
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).read().decode().strip() for _ in range(4)
        }
    except OSError:
        return set()
