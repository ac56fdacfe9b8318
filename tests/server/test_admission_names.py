"""The names of nodes' attributes, metadata and datacenters in warnings about a job: who sees them, at which cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from yurt.rules.likeness import LENGTH_MAX
from yurt.sdk.value import replace
from yurt.server.resources.node_names import SCANS_MAX, NodeNames
from yurt.structs.commands import RegisterNode
from yurt.structs.node import Node
from yurt.testing import factories
from yurt.testing.access import bootstrapped
from yurt.testing.http_api import job_document, ready_node

JOBS = 'namespace "default" { capabilities = ["submit-job", "read-job"] }\n'
NODES = 'node { policy = "read" }\n'
SECRETS = ("customer_acme", "cpu.secretname", "dc-hidden")


class Rows:
    """Nodes, and how often all of them were asked for."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = nodes
        self.reads = 0

    def __len__(self) -> int:
        return len(self.nodes)

    def values(self) -> Iterator[Node]:
        self.reads += 1
        return iter(self.nodes)


def node(number: int) -> Node:
    return factories.node(attributes={"kernel.name": "linux", f"only.on{number}": "1"}, meta={"rack": "r1"})


def test_the_names_of_nodes_are_found_and_near_misses_named() -> None:
    names = NodeNames(Rows(*map(node, range(60))))

    assert names.has("attr.kernel.name") and names.has("meta.rack") and names.has("attr.only.on59")
    assert names.has("attr.rack") is False and names.has("meta.rak") is False
    assert names.nearest("meta.rak") == "meta.rack"
    assert names.nearest("attr.kernl.name") == "attr.kernel.name"
    assert names.nearest("meta.kernel.name") is None
    assert names.nearest("attr." + "x" * LENGTH_MAX) is None


def test_without_nodes_or_the_right_to_read_them_nothing_is_known() -> None:
    for names in (NodeNames(Rows()), NodeNames(None)):
        assert names.has("meta.rack") is None and names.nearest("meta.rak") is None


def test_the_nodes_are_read_a_few_times_however_many_names_are_asked_for() -> None:
    rows = Rows(*map(node, range(60)))
    names = NodeNames(rows)

    answers = [names.has(f"attr.a{number}") for number in (*range(SCANS_MAX), *range(1_000))]

    assert answers[:SCANS_MAX] == answers[SCANS_MAX : 2 * SCANS_MAX] == [False] * SCANS_MAX
    assert set(answers[2 * SCANS_MAX :]) == {None}
    assert rows.reads == SCANS_MAX + 1


def asking() -> dict[str, Any]:
    """A job that comes near to the names of the node in all ways."""
    job = job_document("web", Datacenters=["dc-hiden"])
    targets = ("${meta.customer_acm}", "${attr.cpu.secretnam}", "cpu.secretname")
    group = job["TaskGroups"][0]
    group["Constraints"] = [{"LTarget": target, "RTarget": "1", "Operand": "="} for target in targets]
    group["Tasks"][0]["Config"]["args"] = ["${meta.customer_acm}"]
    return job


@pytest.mark.parametrize(("rules", "shown"), [(JOBS, ()), (JOBS + NODES, SECRETS)])
async def test_warnings_name_what_nodes_have_to_those_who_may_read_nodes(rules: str, shown: tuple[str, ...]) -> None:
    async with bootstrapped() as callers:
        base = ready_node()
        changed = replace(
            base,
            datacenter="dc-hidden",
            meta={"customer_acme": "1"},
            attributes={**base.attributes, "cpu.secretname": "1"},
        )
        await callers.api.server.replica.propose(RegisterNode(node=changed))
        secret = await callers.secret_for(rules)
        for path in ("/v1/validate/job", "/v1/job/web/plan", "/v1/yurt/job/why-not", "/v1/jobs"):
            answer = await callers.put(path, {"Job": asking()}, token=secret)
            assert answer.status == 200, (path, answer.text)
            warnings = str(answer.json.get("Warnings"))
            assert "no node is in datacenter dc-hiden" in warnings
            told = warnings.replace("customer_acm}", "").replace('"cpu.secretname" is', "")
            assert [name for name in SECRETS if name in told] == list(shown), path
