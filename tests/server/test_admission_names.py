"""The names of nodes' attributes, metadata and datacenters in warnings about a job: who sees them, at which cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from yurt.rules.likeness import LENGTH_MAX
from yurt.sdk.value import replace
from yurt.server.config import ServerConfig
from yurt.server.resources.admission import admit, admitted
from yurt.server.resources.node_names import NO_NODES, CommonNames, NodeNames, sample_of
from yurt.state import Snapshot, Tables
from yurt.structs.commands import RegisterNode
from yurt.structs.constraint import Constraint
from yurt.structs.job import Job
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


def test_all_nodes_are_read_once_for_any_number_of_names() -> None:
    rows = Rows(*map(node, range(60)))
    names = NodeNames(rows)

    answers = [names.has(f"attr.a{number}") for number in range(1_000)]

    assert set(answers) == {False}
    assert rows.reads == 2, "one read for the common names, one for the others"


def test_the_common_names_are_collected_anew_only_after_a_change() -> None:
    first, changed = (tuple(map(node, range(60))), tuple(map(node, range(1, 61))))
    sample = sample_of(Rows(*first))
    assert sample_of(Rows(*first)) is sample
    assert "attr.only.on50" in sample_of(Rows(*changed)).names and "attr.only.on50" not in sample.names


def test_a_name_that_only_other_nodes_may_have_is_left_open() -> None:
    names = CommonNames(sample_of(Rows(*map(node, range(60)))))
    assert names.has("attr.kernel.name") is True and not names.has_open_names
    assert names.has("attr.only.on59") is None and names.has_open_names
    unread = CommonNames(NO_NODES)
    assert unread.has("attr.kernel.name") is None and not unread.has_open_names


def job_with(*targets: str, env: tuple[str, ...] = (), datacenter: str = "*") -> Job:
    """A job with constraints on these targets, and variables with these values."""
    base = factories.job()
    (group,) = base.task_groups
    task = replace(group.tasks[0], env={f"E{number}": value for number, value in enumerate(env)})
    return replace(
        base,
        datacenters=(datacenter,),
        constraints=tuple(Constraint(l_target=target, operand="=", r_target="x") for target in targets),
        task_groups=(replace(group, tasks=(task,)),),
    )


KNOWN = job_with("${attr.kernel.name}", "${node.class}", "${meta.rack}", env=("${NOMAD_TASK_DIR}/x", "${HOME}"))
DOUBTFUL = {
    "attribute": job_with("${attr.kernel.nam}"),
    "field": job_with("${node.clas}"),
    "variable": job_with(env=("${NOMAD_ALOC_DIR}",)),
    "datacenter": job_with(datacenter="elsewhere"),
}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that were called in threads."""
    found: list[str] = []

    async def to_thread(work: Any, *args: Any, **named: Any) -> Any:
        found.append(work.__name__)
        return work(*args, **named)

    monkeypatch.setattr("yurt.server.resources.admission.asyncio.to_thread", to_thread)
    return found


def state_of(count: int) -> Snapshot:
    edit = Snapshot.empty().edit(2)
    for number in range(count):
        made = node(number)
        edit.put(Tables.nodes, made.id, made)
    return edit.commit()


async def test_a_job_whose_names_are_common_compares_none_on_the_event_loop(
    threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.rules.references.nearest", None)
    monkeypatch.setattr("yurt.server.resources.node_names.nearest", None)
    found = await admitted(state_of(60), KNOWN, ServerConfig(name="s"), reads_nodes=True)
    assert threads == [] and not [text for text in found.warnings if "${" in text]


@pytest.mark.parametrize("reason", DOUBTFUL)
async def test_unknown_names_are_looked_for_beside_the_event_loop(threads: list[str], reason: str) -> None:
    state, config = state_of(60), ServerConfig(name="s")
    found = await admitted(state, DOUBTFUL[reason], config, reads_nodes=True)
    assert threads == ["admit"] and found == admit(state, DOUBTFUL[reason], config, reads_nodes=True)


async def test_a_name_of_few_nodes_is_looked_for_beside_the_event_loop(threads: list[str]) -> None:
    state = state_of(60)
    *_, last = state.nodes.values()
    (name,) = last.attributes.keys() - {"kernel.name"}
    found = await admitted(state, job_with(f"${{attr.{name}}}"), ServerConfig(name="s"), reads_nodes=True)
    assert threads == ["admit"] and not [text for text in found.warnings if name in text]


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
