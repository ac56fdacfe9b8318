"""The overview's problems: certificates of agents that end, and of their authority once for all."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.readmodels.node_facts import NodeFacts, node_facts
from yurt.readmodels.overview import Agents, attention
from yurt.sdk.value import replace
from yurt.state.store import Snapshot
from yurt.structs.member import FAILED, Member
from yurt.structs.status import NODE_DOWN, NODE_READY
from yurt.testing import factories

DAY_S = 86_400
NOW_S = 1_800_000_000
SERVER = Member(name="a.global", region="global", datacenter="dc1", version="1", address="", rpc_addr="", http_addr="")


def node(days: float, *, authority: float = 900, status: str = NODE_READY) -> NodeFacts:
    return NodeFacts(
        id="n1", name="one", node_status=status, status="ready", certificate_ends=int(NOW_S + days * DAY_S),
        authority_ends=int(NOW_S + authority * DAY_S),
    )  # fmt: skip


def problems(nodes: list[NodeFacts], *servers: Member) -> list[tuple[Any, ...]]:
    found = attention((), nodes, Agents(NOW_S, servers))["Attention"]
    return [(each["Kind"], each["Name"], each["Status"]) for each in found]


@pytest.mark.parametrize(("days", "status"), [(31, ""), (29, "expiring"), (0, "expired"), (-3, "expired")])
def test_a_certificate_that_ends_within_a_month_is_a_problem(days: int, status: str) -> None:
    assert problems([node(days)]) == ([("node", "one", status)] if status else [])


def test_an_agent_without_a_certificate_and_one_that_is_down_are_none() -> None:
    assert problems([NodeFacts(node_status=NODE_READY, status="ready"), node(3, status=NODE_DOWN)]) == []


def test_servers_are_told_too_and_the_authority_once() -> None:
    server = replace(SERVER, certificate_ends=NOW_S + 5 * DAY_S, authority_ends=NOW_S + 2 * DAY_S)
    found = problems([node(500, authority=2), node(500, authority=2)], server)

    assert found == [("server", "a.global", "expiring"), ("authority", "of 3 agents", "expiring")]


def test_a_failed_server_is_a_problem_and_its_certificate_none() -> None:
    server = replace(SERVER, status=FAILED, certificate_ends=NOW_S + DAY_S, authority_ends=NOW_S + DAY_S)
    assert problems([], server) == [("server", "a.global", "failed")]


def test_the_version_of_agents_changes_with_servers_and_once_an_hour() -> None:
    before = Agents(NOW_S, (SERVER,)).version
    assert Agents(NOW_S + 3599, (SERVER,)).version == before != Agents(NOW_S + 3600, (SERVER,)).version
    assert Agents(NOW_S, (replace(SERVER, status=FAILED),)).version != before
    assert Agents(NOW_S, (replace(SERVER, certificate_ends=1),)).version != before


def test_many_nodes_whose_certificates_end_are_one_problem_for_each_status() -> None:
    several = [replace(node(days), id=f"n{number}") for number, days in enumerate([3, 2, 9, 4, -1, -2])]
    found = attention((), several, Agents(NOW_S))["Attention"]

    assert [(each["Kind"], each["Name"], each["Status"]) for each in found] == [
        ("node", "one", "expired"), ("node", "one", "expired"), ("nodes", "of 4 nodes", "expiring"),
    ]  # fmt: skip
    assert found[-1]["Reason"] == "the first of the agents' certificates ends 2027-01-17 08:00 UTC"


def test_the_reason_says_when_and_since_is_the_end() -> None:
    (found,) = attention((), [node(-1)], Agents(NOW_S))["Attention"]

    assert found["Reason"] == "the agent's certificate ended 2027-01-14 08:00 UTC"
    assert found["Since"] == (NOW_S - DAY_S) * 1_000_000_000


@pytest.mark.parametrize(("text", "seconds"), [("2027-01-15T08:00:00Z", NOW_S), ("soon", 0), ("", 0)])
def test_a_row_of_a_node_has_the_ends_of_its_attributes(text: str, seconds: int) -> None:
    row = node_facts(Snapshot.empty(), replace(factories.node(), attributes={"unique.tls.certificate_ends": text}))

    assert row.certificate_ends == seconds
