"""Two regions of one server each, joined: requests, jobs, namespaces and node pools go where they belong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, ApiFailure, raw_exec_job, wait_for


class RegionAgent(Agent):
    """An agent that may take its time to start."""

    def start(self) -> None:
        self.spawn()
        wait_for("a ready node", self.is_ready)


def make_agent(folder: Path, region: str, **server: Any) -> Agent:
    """A server with a client in a region of its own; west decides for both."""
    (folder / region).mkdir()
    extra = {
        "region": region,
        "server": {"enabled": True, "bootstrap_expect": 1, "authoritative_region": "west", **server},
        "client": {"enabled": True, "options": {"driver.raw_exec.enable": "1"}},
    }
    return RegionAgent(folder / region, data_dir=folder / region / "data", name=f"srv-{region}", extra=extra)


def serf(agent: Agent) -> str:
    """Where an agent answers joins."""
    return f"127.0.0.1:{json.loads(agent.config.read_text())['ports']['serf']}"


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Agent, Agent]]:
    """West and east; east joins by its configuration."""
    folder = tmp_path_factory.mktemp("regions")
    west = make_agent(folder, "west")
    east = make_agent(folder, "east", server_join={"retry_join": [serf(west)], "retry_interval": "1s"})
    try:
        west.start()
        east.start()
        for agent in (west, east):
            wait_for("both regions", lambda agent=agent: agent.get("/v1/regions") == ["east", "west"])
        yield west, east
    finally:
        for agent in (west, east):
            agent.interrupt()


def reached(agent: Agent, path: str) -> Any:
    """An answer of another region, once it can be reached."""

    def probe() -> tuple[Any] | None:
        try:
            return (agent.get(path),)
        except ApiFailure as failure:
            assert "No path to region" in str(failure)
            return None

    return wait_for(f"an answer to {path}", probe)[0]


def test_a_request_is_answered_by_the_region_that_it_names(regions: tuple[Agent, Agent]) -> None:
    west, east = regions
    (node,) = reached(west, "/v1/nodes?region=east")
    assert node["Name"] == "srv-east"
    assert [each["Name"] for each in reached(east, "/v1/nodes?region=west")] == ["srv-west"]
    assert [each["Name"] for each in west.get("/v1/nodes?region=west")] == ["srv-west"]
    with pytest.raises(ApiFailure, match="No path to region"):
        west.get("/v1/nodes?region=mars")
    assert "srv-east" in west.cli("node", "status", "-region", "east").stdout
    assert "No path to region" in west.cli("node", "status", "-region", "mars").stderr
    members = west.cli("server", "members").stdout
    assert "srv-west.west" in members
    assert "srv-east.east" in members


def test_a_job_runs_in_the_region_that_it_names(regions: tuple[Agent, Agent], tmp_path: Path) -> None:
    west, east = regions
    reached(west, "/v1/jobs?region=east")
    job = raw_exec_job("far", "/bin/sh", "-c", "echo from afar; exec sleep 300") | {"Region": "east"}
    west.call("PUT", "/v1/jobs", {"Job": job})
    (alloc,) = east.running("far", 1)
    assert west.get("/v1/jobs") == []
    wait_for("its log", lambda: west.cli("alloc", "logs", "-region", "east", alloc["ID"]).stdout == "from afar\n")
    assert west.cli("job", "stop", "-region", "east", "-purge", "-detach", "far").returncode == 0
    wait_for("the end of the job", lambda: not east.get("/v1/jobs"))


def names(agent: Agent, path: str) -> list[str]:
    return [each["Name"] for each in agent.get(path)]


@pytest.mark.parametrize(("path", "one"), [("/v1/namespaces", "/v1/namespace"), ("/v1/node/pools", "/v1/node/pool")])
def test_what_all_regions_share_is_decided_in_one_and_copied(regions: tuple[Agent, Agent], path: str, one: str) -> None:
    west, east = regions
    reached(east, "/v1/jobs?region=west")
    east.call("PUT", one if one == "/v1/namespace" else path, {"Name": "shared", "Description": "made in the east"})
    assert "shared" in names(west, path), "a change is made in the authoritative region"
    wait_for("the copy", lambda: "shared" in names(east, path))
    west.call("PUT", f"{one}/shared", {"Name": "shared", "Description": "changed"})
    wait_for("the change", lambda: east.get(f"{one}/shared")["Description"] == "changed")
    east.call("DELETE", f"{one}/shared")
    wait_for("its end", lambda: "shared" not in names(west, path) and "shared" not in names(east, path))


def test_the_copies_go_on_after_the_authoritative_region_was_away(regions: tuple[Agent, Agent]) -> None:
    west, east = regions
    west.interrupt()
    assert east.get("/v1/jobs") == []
    with pytest.raises(ApiFailure, match="No path to region"):
        east.call("PUT", "/v1/namespace", {"Name": "lost"})
    west.start()
    west.call("PUT", "/v1/namespace", {"Name": "later"})
    wait_for("the copy", lambda: "later" in names(east, "/v1/namespaces"))
