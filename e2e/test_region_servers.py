"""Two regions of three servers each, joined over mutual TLS: any of them may die, and each answers for both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import ApiFailure, wait_for, yurt
from yurt.testing.real_cluster import RealCluster, ServerAgent

LIMIT_S = 60.0
WEST = tuple(f"srv{number}.west" for number in (1, 2, 3))
EAST = tuple(f"srv{number}.east" for number in (1, 2, 3))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates of servers of both regions."""
    folder = tmp_path_factory.mktemp("keys")
    for words in (["ca", "create"], *(["cert", "create", "-server", "-region", name] for name in ("west", "east"))):
        yurt("tls", *words, cwd=folder).check_returncode()
    return folder


def settings_of(region: str, keys: Path, *, certificate: str = "") -> dict[str, Any]:
    pair = {
        "cert_file": f"{keys}/{certificate or region}-server-nomad.pem",
        "key_file": f"{keys}/{certificate or region}-server-nomad-key.pem",
    }
    return {"region": region, "tls": {"rpc": True, "ca_file": f"{keys}/nomad-agent-ca.pem", **pair}}


def make_region(folder: Path, region: str, keys: Path) -> RealCluster:
    """Three servers of a region; west decides for both."""
    cluster = RealCluster(folder / region, settings=settings_of(region, keys), server={"authoritative_region": "west"})
    cluster.add_servers(3)
    return cluster


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[tuple[RealCluster, RealCluster]]:
    """West and east, each with a leader; one server of the east has joined one of the west."""
    folder = tmp_path_factory.mktemp("r")
    west, east = (make_region(folder, region, keys) for region in ("west", "east"))
    try:
        west.start()
        east.start()
        west.wait_leader()
        east.wait_leader()
        joined = east.servers[0].cli("server", "join", west.servers[0].at("serf"))
        assert joined.returncode == 0, joined.stderr
        for cluster in (west, east):
            cluster.wait_statuses(dict.fromkeys((*WEST, *EAST), "alive"))
        yield west, east
    finally:
        east.close()
        west.close()


def names(agent: ServerAgent, path: str = "/v1/namespaces") -> set[str]:
    return {each["Name"] for each in agent.try_get(path) or ()}


def apply_namespace(agent: ServerAgent, name: str) -> None:
    """A change through any server of either region, tried again while there is no leader."""

    def done() -> bool:
        try:
            agent.call("PUT", "/v1/namespace", {"Name": name})
        except (ApiFailure, OSError):
            return False
        return True

    wait_for(f"namespace {name} to be stored", done, LIMIT_S)


def wait_everywhere(name: str, *clusters: RealCluster) -> None:
    for cluster in clusters:
        for each in cluster.running_servers:
            wait_for(f"{name} on {each.full_name}", lambda each=each: has_name(each, name), LIMIT_S)


def has_name(agent: ServerAgent, name: str) -> bool:
    found = agent.try_get("/v1/namespaces?stale")
    return bool(found) and name in {each["Name"] for each in found}


def test_every_server_lists_both_regions_and_their_leaders(regions: tuple[RealCluster, RealCluster]) -> None:
    west, east = regions
    leaders = {cluster.wait_leader().full_name for cluster in regions}
    for each in (*west.servers, *east.servers):
        assert each.get("/v1/regions") == ["east", "west"]
        assert set(listed_members(each)) == {*WEST, *EAST}
        wait_for(f"both leaders on {each.full_name}", lambda each=each: leading(each) == leaders)


def listed_members(agent: ServerAgent) -> dict[str, bool]:
    """Servers by name, and whether the command line shows them as leaders."""
    shown = agent.cli("server", "members").stdout.splitlines()
    return {line.split()[0]: "true" in line for line in shown[1:] if line.strip()}


def leading(agent: ServerAgent) -> set[str]:
    return {name for name, leads in listed_members(agent).items() if leads}


def test_whichever_server_of_the_other_region_dies_requests_are_answered(
    regions: tuple[RealCluster, RealCluster],
) -> None:
    west, east = regions
    asked = east.followers()[0]
    for victim in west.servers:
        wait_for("an answer", lambda: asked.try_get("/v1/jobs?region=west") is not None, LIMIT_S)
        victim.kill()
        wait_for(
            f"an answer without {victim.full_name}", lambda: asked.try_get("/v1/jobs?region=west") is not None, LIMIT_S
        )
        asked.change("namespace", "apply", "-region", "west", f"without-{victim.name}")
        victim.start()
        west.wait_leader()
    wait_everywhere("without-srv3", west, east)


def test_copies_go_on_through_changes_of_leaders_on_both_sides(regions: tuple[RealCluster, RealCluster]) -> None:
    west, east = regions
    for number, cluster in enumerate((west, east, west, east)):
        leader = cluster.wait_leader()
        leader.kill()
        apply_namespace(east.running_servers[0], f"round-{number}")
        wait_everywhere(f"round-{number}", west, east)
        leader.start()
        cluster.wait_leader()
    east.wait_leader().call("PUT", "/v1/node/pools", {"Name": "gpu"})
    for each in (*west.servers, *east.servers):
        wait_for("the pool", lambda each=each: "gpu" in names(each, "/v1/node/pools"), LIMIT_S)
    wait_for("the same namespaces", lambda: names(west.wait_leader()) == names(east.wait_leader()) != set(), LIMIT_S)


def test_a_region_without_any_server_is_told_and_found_again(regions: tuple[RealCluster, RealCluster]) -> None:
    west, east = regions
    west.power_off()
    asked = east.wait_leader()
    assert asked.get("/v1/jobs") == []
    with pytest.raises(ApiFailure, match="No path to region"):
        wait_for("the end of the region", lambda: asked.get("/v1/jobs?region=west") is None, 30)
    west.start()
    west.wait_leader()
    apply_namespace(east.followers()[0], "again")
    wait_everywhere("again", west, east)


def test_a_server_with_the_certificate_of_another_region_does_not_start(keys: Path, tmp_path: Path) -> None:
    stranger = ServerAgent(tmp_path / "x", "stranger", settings_of("west", keys, certificate="east"))
    stranger.settings |= {"server": {"enabled": True, "bootstrap_expect": 3}, "client": {"enabled": False}}
    stranger.write_config()
    done = stranger.cli("agent", "-config", str(stranger.config))
    assert done.returncode == 1
    assert "speak to server.west.nomad only, and cert_file names server.east.nomad" in done.stderr
