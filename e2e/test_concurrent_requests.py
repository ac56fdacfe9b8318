"""Concurrent requests over HTTP leave nothing that one request after another could not have left.

Random programs register, scale, stop, purge, revert and dispatch jobs, lock and write variables, make and delete
namespaces, node pools and volumes, promote canaries and drain nodes, many requests on few objects at a time. What the
clients were answered is checked against sequential models (`yurt.testing.histories`). A failure prints the operations
that no order explains, what the servers recorded of their objects, and the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.testing.agent import Agent, ApiFailure, wait_for
from yurt.testing.histories.clients import LoadShape
from yurt.testing.histories.deployment_requests import CanaryKind
from yurt.testing.histories.drains import LoadedNodeKind
from yurt.testing.histories.evaluations import BrokerKind
from yurt.testing.histories.faults import leader_faults
from yurt.testing.histories.programs import RequestProgram, run_program
from yurt.testing.nightly import cases, is_nightly, seed
from yurt.testing.real_cluster import RealCluster, real_cluster

IN_MEMORY = cases(3_000, 50_000)
ON_DISK = cases(3_000, 200_000)
ON_THREE_SERVERS = cases(1_500, 50_000)
WITH_NODES = 10_000 if is_nightly() else 600
WITH_PAUSES = 2_000 if is_nightly() else 300
"""Operations; on two cores an agent answers 400 to 800 a second, three servers 300."""
FAULT_EVERY_S = 10.0 if is_nightly() else 5.0
WIDE = LoadShape(lanes=12, width=6, bursts=10)
LONG = LoadShape(lanes=6, width=5, bursts=20)
"""It takes some requests until there is a canary."""
ONE_OBJECT = LoadShape(lanes=2, width=6, bursts=20)
UNLIMITED = {"limits": {"http_max_conns_per_client": 0}}
"""All requests come from one address, and those that a frozen server has pile up."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Agent]:
    """A server alone, with its log on disk."""
    agent = Agent(tmp_path, data_dir=tmp_path / "data", extra={"client": {"enabled": False}})
    try:
        _start(agent)
        yield agent
    finally:
        agent.interrupt()


def _start(agent: Agent) -> None:
    agent.spawn()
    wait_for("a leader", lambda: _leads(agent))


def _kill_and_start(agent: Agent) -> None:
    agent.kill()
    _start(agent)


def _leads(agent: Agent) -> bool:
    try:
        return bool(agent.get("/v1/status/leader"))
    except (OSError, ApiFailure):
        return False


async def test_an_agent_in_memory_answers_as_if_requests_came_one_by_one(dev_agent: Agent) -> None:
    program = RequestProgram(seed=seed(17), operations=IN_MEMORY, node_id=dev_agent.get("/v1/nodes")[0]["ID"])

    report = await run_program(program, [dev_agent.address])

    print(report, report.outcomes, sep="\n")
    assert report.is_clean, str(report)


async def test_an_agent_deletes_evaluations_only_at_positions_where_its_broker_is_paused(dev_agent: Agent) -> None:
    program = RequestProgram(seed=seed(21), operations=WITH_PAUSES, shape=ONE_OBJECT, kinds=(BrokerKind(),))

    report = await run_program(program, [dev_agent.address])

    print(report, report.outcomes, sep="\n")
    assert report.is_clean, str(report)


async def test_a_server_with_a_log_on_disk_answers_as_if_requests_came_one_by_one(server: Agent) -> None:
    program = RequestProgram(seed=seed(18), operations=ON_DISK)

    report = await run_program(program, [server.address], settle=lambda: _kill_and_start(server))

    print(report, report.outcomes, sep="\n")
    assert report.is_clean, str(report)


async def test_three_servers_answer_as_one_while_their_leader_is_killed_and_frozen(tmp_path: Path) -> None:
    program = RequestProgram(seed=seed(19), operations=ON_THREE_SERVERS, shape=WIDE)

    with real_cluster(tmp_path, settings=UNLIMITED) as cluster, leader_faults(cluster, every_s=FAULT_EVERY_S) as faults:
        addresses = [each.address for each in cluster.servers]
        report = await run_program(program, addresses, settle=faults.settle)
    print(f"faults: {', '.join(faults.done)}")
    assert faults.done
    print(report, report.outcomes, sep="\n")
    assert report.is_clean_but_for_faults, str(report)


def _in_datacenters(cluster: RealCluster) -> None:
    """Each client alone in a datacenter with its name."""
    for each in cluster.clients:
        each.settings["datacenter"] = each.name
        each.write_config()


async def test_canaries_and_drains_of_loaded_nodes_outlive_leaders(tmp_path: Path) -> None:
    with real_cluster(
        tmp_path, clients=3, prepare=_in_datacenters, settings=UNLIMITED, server={"heartbeat_grace": "1h"}
    ) as cluster:
        nodes = {each["Datacenter"]: each["ID"] for each in cluster.wait_leader().answer("/v1/nodes")}
        kinds = (CanaryKind("cli1"), LoadedNodeKind(nodes["cli2"], "cli2"), LoadedNodeKind(nodes["cli3"], "cli3"))
        program = RequestProgram(seed=seed(20), operations=WITH_NODES, shape=LONG, kinds=kinds)
        with leader_faults(cluster, every_s=FAULT_EVERY_S) as faults:
            report = await run_program(program, [each.address for each in cluster.servers])

    print(f"faults: {', '.join(faults.done)}", report, report.outcomes, sep="\n")
    assert faults.done
    assert report.is_clean_but_for_faults, str(report)
