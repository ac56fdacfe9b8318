"""Two regions with access control: what they share is written in one and copied, what is local stays, and no fault of
replication deletes anything or accepts anybody.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, ApiFailure, wait_for
from yurt.testing.real_cluster import RealCluster, ServerAgent

ROOT = "00000000-0000-4000-8000-00000000b007"
UNKNOWN = "00000000-0000-4000-8000-00000000dead"
READ_NODES = 'node { policy = "read" }'
PASSING = ("No path to region", "No cluster leader", "Permission denied")
"""What is told while regions have not found each other yet, or a copy has not arrived."""


class Regions:
    """West, which decides, and east, which copies."""

    def __init__(self, folder: Path) -> None:
        self.west, self.east = make_server(folder, "west"), make_server(folder, "east")
        joined = {"retry_join": [self.west.at("serf")], "retry_interval": "1s"}
        self.east.settings["server"]["server_join"] = joined

    def start(self) -> None:
        """Bootstrap in west, and have east replicate with a local management token of west."""
        self.west.start()
        retried(self.west, "POST", "/v1/acl/bootstrap", {"BootstrapSecret": ROOT})
        made = self.west.call("PUT", "/v1/acl/token", {"Name": "replication", "Type": "management"})
        self.replication = made
        self.start_east(made["SecretID"])
        wait_for("the first token in east", lambda: is_valid(self.east, ROOT))

    def start_east(self, replication_token: str) -> None:
        """Start east with this token, or start it again."""
        self.east.stop()
        self.east.settings["acl"]["replication_token"] = replication_token
        self.east.write_config()
        self.east.start()


def make_server(folder: Path, region: str) -> ServerAgent:
    settings = {"region": region, "acl": {"enabled": True}}
    cluster = RealCluster(folder / region, settings=settings, server={"authoritative_region": "west"})
    (server,) = cluster.add_servers(1)
    server.settings["acl"] = {"enabled": True}
    server.token = ROOT
    return server


def retried(agent: Agent, method: str, path: str, body: Any = None) -> Any:
    """A request, again while regions find each other."""

    def answer() -> tuple[Any] | None:
        try:
            return (agent.call(method, path, body),)
        except ApiFailure as failure:
            assert any(text in failure.text for text in PASSING), failure
            return None

    return wait_for(f"{method} {path}", answer)[0]


def is_valid(agent: Agent, secret: str) -> bool:
    """Whether a region accepts a token."""
    try:
        return bool(agent.call("GET", "/v1/acl/token/self", token=secret))
    except ApiFailure as failure:
        assert failure.status in (403, 500), failure
        return False


def reads_nodes(agent: Agent, secret: str) -> bool:
    """Whether a token may read nodes, of which there are none."""
    try:
        return bool(agent.call("GET", "/v1/nodes", token=secret) == [])
    except ApiFailure as failure:
        assert failure.status == 403, failure
        return False


def names(agent: Agent) -> list[str]:
    return [each["Name"] for each in agent.get("/v1/acl/policies")]


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Regions]:
    made = Regions(tmp_path_factory.mktemp("regions"))
    try:
        made.start()
        yield made
    finally:
        for agent in (made.east, made.west):
            agent.thaw() if agent.is_running else None
            agent.stop()


def test_what_is_written_in_either_region_is_made_in_west_and_copied(regions: Regions) -> None:
    west, east = regions.west, regions.east
    retried(east, "PUT", "/v1/acl/policy/nodes", {"Name": "nodes", "Rules": READ_NODES})
    assert "nodes" in names(west)
    role = retried(east, "PUT", "/v1/acl/role", {"Name": "readers", "Policies": [{"Name": "nodes"}]})
    body = {"Name": "shared", "Type": "client", "Roles": [{"ID": role["ID"]}], "Global": True}
    made = retried(east, "PUT", "/v1/acl/token", body)
    for agent in (west, east):
        wait_for("the token and its right", partial(reads_nodes, agent, made["SecretID"]))
    retried(east, "DELETE", f"/v1/acl/token/{made['AccessorID']}")
    assert not is_valid(west, made["SecretID"])
    wait_for("its end in east", lambda: not is_valid(east, made["SecretID"]))


def test_a_region_that_is_named_does_not_decide_about_global_tokens(regions: Regions) -> None:
    west, east = regions.west, regions.east
    body = {"Name": "named", "Type": "client", "Policies": ["nodes"], "Global": True}
    for agent in (west, east):
        made = retried(agent, "PUT", "/v1/acl/token?region=east", body)
        path = f"/v1/acl/token/{made['AccessorID']}"
        assert west.get(path)["Name"] == "named"
        changed = {**body, "AccessorID": made["AccessorID"], "Name": "changed"}
        retried(agent, "PUT", f"{path}?region=east", changed)
        assert west.get(path)["Name"] == "changed"
        wait_for("the copy", partial(east.try_get, path))
        assert west.get(f"{path}?region=east")["AccessorID"] == made["AccessorID"]
        retried(agent, "DELETE", f"{path}?region=east")
        assert west.try_get(path) is None


def test_local_tokens_stay_in_their_region(regions: Regions) -> None:
    west, east = regions.west, regions.east
    here = east.call("PUT", "/v1/acl/token", {"Name": "local", "Type": "management"})["SecretID"]
    retried(west, "PUT", "/v1/acl/policy/marker", {"Name": "marker", "Rules": READ_NODES})
    wait_for("a later copy", lambda: "marker" in names(east))
    assert is_valid(east, here) and not is_valid(west, here)
    assert is_valid(west, regions.replication["SecretID"]) and not is_valid(east, regions.replication["SecretID"])


def test_a_region_does_not_bootstrap_beside_the_authoritative_one(regions: Regions) -> None:
    with pytest.raises(ApiFailure, match="ACL bootstrap already done"):
        regions.east.call("POST", "/v1/acl/bootstrap")


def test_a_wrong_replication_token_is_told_and_deletes_nothing(regions: Regions) -> None:
    west, east = regions.west, regions.east
    regions.start_east(UNKNOWN)
    wait_for("the refusal", lambda: "which it refuses, must be the secret of a management token" in east.log_text())
    assert UNKNOWN not in east.log_text()
    assert is_valid(east, ROOT) and "nodes" in names(east)
    west.call("PUT", "/v1/acl/policy/later", {"Name": "later", "Rules": READ_NODES})
    regions.start_east(regions.replication["SecretID"])
    wait_for("the copy", lambda: "later" in names(east))


def test_a_paused_authority_is_waited_for_and_then_followed(regions: Regions) -> None:
    west, east = regions.west, regions.east
    made = west.call("PUT", "/v1/acl/token", {"Type": "client", "Policies": ["nodes"], "Global": True})
    wait_for("the copy", lambda: is_valid(east, made["SecretID"]))
    west.freeze()
    try:
        assert is_valid(east, ROOT) and is_valid(east, made["SecretID"])
        assert east.call("PUT", "/v1/acl/token", {"Type": "client", "Policies": ["nodes"]})["SecretID"]
    finally:
        west.thaw()
    retried(west, "DELETE", f"/v1/acl/token/{made['AccessorID']}")
    wait_for("its end in east", lambda: not is_valid(east, made["SecretID"]))


def test_an_authority_that_is_killed_is_followed_when_it_is_back(regions: Regions) -> None:
    west, east = regions.west, regions.east
    os.kill(west.pid, signal.SIGKILL)
    west.kill()
    assert "nodes" in names(east)
    with pytest.raises(ApiFailure, match="No path to region"):
        east.call("DELETE", "/v1/acl/policy/nodes")
    west.start()
    retried(west, "DELETE", "/v1/acl/policy/marker")
    wait_for("the deletion in east", lambda: "marker" not in names(east))
    assert "nodes" in names(east)
