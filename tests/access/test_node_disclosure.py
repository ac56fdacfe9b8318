"""Explanations to callers with and without node:read: names, attributes, metadata and datacenters of nodes.

One node runs the caller's job; the other one may only be named to callers who may read nodes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from yurt.access import Access, AllowAll, Authority, Capability, needs
from yurt.sdk.value import replace
from yurt.server.queueing.shared_reports import QueueReport
from yurt.server.views.queue import Place, PoolQueueRows
from yurt.structs.commands import RegisterNode, SetNodeStatus
from yurt.structs.node import HostVolumeInfo
from yurt.testing import factories
from yurt.testing.access import Callers, bootstrapped
from yurt.testing.access.world import TEAM, everything_in, rules_of
from yurt.testing.authorities import Grants
from yurt.testing.http_api import NODE_ID, job_document, ready_node

OTHER_ID = "77777777-2222-4333-8444-555555555555"
HIDDEN = ("hidden-name", "hidden-dc", "hidden_key", "hidden_value", "hidden.attribute")
READ_NODES = rules_of("node:read")
WHY_NOT = "/v1/yurt/job/why-not"
NODES_AVAILABLE = re.compile(r'"NodesAvailable": ?\{[^}]*\}')
"""The part of Nomad's placement metrics that counts nodes by datacenter, for all who may read the job."""


@pytest.fixture
async def callers() -> AsyncIterator[Callers]:
    async with bootstrapped() as found:
        assert (await found.put(f"/v1/namespace/{TEAM}", {"Name": TEAM})).status == 200
        own = ready_node()
        other = replace(
            own,
            id=OTHER_ID,
            name=HIDDEN[0],
            datacenter=HIDDEN[1],
            meta={HIDDEN[2]: HIDDEN[3]},
            attributes={**own.attributes, HIDDEN[4]: HIDDEN[3]},
            drivers={},
        )
        for node in (own, other):
            await found.api.server.replica.propose(RegisterNode(node=node))
            await found.api.server.replica.propose(SetNodeStatus(node_id=node.id, status="ready", updated_at=1))
        yield found


def job(memory_mb: int = 100, *targets: str, driver: str = "mock_driver", **changes: Any) -> dict[str, Any]:
    """A job with constraints on these targets."""
    made = job_document("web", Type="service", **({"Namespace": TEAM} | changes))
    task = made["TaskGroups"][0]["Tasks"][0]
    task |= {"Driver": driver, "Resources": {"CPU": 100, "MemoryMB": memory_mb}}
    made["Constraints"] = [{"LTarget": target, "RTarget": "x", "Operand": "="} for target in targets]
    return made


UNPLACED = {
    "memory": job(10_000),
    "attribute": job(100, "${attr.hidden.attribut}", "${meta.hidden_ke}"),
    "value": job(10_000, "${meta.rack}", driver="other"),
    "driver": job(100, driver="other", Datacenters=["hidden*"]),
    "datacenter": job(100, Datacenters=["nowhere"]),
}
"""Jobs that no node takes, by the reason."""


def named(text: str) -> list[str]:
    """The hidden texts in an answer, without what the job itself says and the counts by datacenter."""
    text = NODES_AVAILABLE.sub("", text.replace("hidden.attribut}", "").replace("hidden_ke}", ""))
    return [word for word in HIDDEN if word in text]


async def secrets(callers: Callers) -> tuple[str, str]:
    """The token of a caller who may do everything in the namespace, and of one who may read nodes besides."""
    rules = everything_in(TEAM)
    return await callers.secret_for(rules), await callers.secret_for(f"{rules}\n{READ_NODES}")


@pytest.mark.parametrize("reason", UNPLACED)
@pytest.mark.parametrize("path", [WHY_NOT, "/v1/job/web/plan", "/v1/validate/job", "/v1/jobs"])
async def test_an_unplaced_job_names_no_nodes_to_who_may_not_read_them(
    callers: Callers, path: str, reason: str
) -> None:
    plain, reader = await secrets(callers)
    hidden, shown = [await callers.put(path, {"Job": UNPLACED[reason]}, token=token) for token in (plain, reader)]
    assert (hidden.status, shown.status) == (200, 200), hidden.text
    assert named(hidden.text) == [] and "worker" not in hidden.text
    if path == WHY_NOT:
        assert "worker" in shown.text or named(shown.text)


async def test_a_change_says_what_to_do_without_the_node(callers: Callers) -> None:
    plain, reader = await secrets(callers)
    expected = {
        "memory": 'lower the memory of task "main" from 10000 to 8192 MB',
        "driver": 'make driver "other" available on a node',
        "datacenter": "add another datacenter",
    }
    for reason, text in expected.items():
        (group,) = (await callers.put(WHY_NOT, {"Job": UNPLACED[reason]}, token=plain)).json["Groups"]
        change = group["SmallestChange"]
        assert (change["Text"], change["NodeID"], change["NodeName"]) == (text, "", "")
        assert change["Places"] == 1
        assert [edit["Kind"] for edit in change["Edits"] or ()] == [reason] * (reason == "memory")
        assert not group["NearMisses"] and "nodes are not named: that needs node:read" in group["Notes"]
        (whole,) = (await callers.put(WHY_NOT, {"Job": UNPLACED[reason]}, token=reader)).json["Groups"]
        assert whole["SmallestChange"]["NodeName"] and whole["NearMisses"] and whole["Blockers"] == group["Blockers"]


async def test_shortages_of_one_node_need_the_right_to_read_nodes(callers: Callers) -> None:
    plain, reader = await secrets(callers)
    body = {"Job": UNPLACED["memory"], "NodeID": OTHER_ID}
    assert (await callers.put(WHY_NOT, body, token=plain)).status == 403
    (group,) = (await callers.put(WHY_NOT, body, token=reader)).json["Groups"]
    assert group["There"]["NodeName"] == HIDDEN[0]


async def running(callers: Callers) -> dict[str, Any]:
    """An allocation on the node `worker`, which could have been on the other node."""
    other = replace(callers.api.server.state.nodes[OTHER_ID], drivers=ready_node().drivers)
    await callers.api.server.replica.propose(RegisterNode(node=other))
    prefers = {"LTarget": "${node.unique.name}", "RTarget": "worker", "Operand": "=", "Weight": 100}
    assert (await callers.put("/v1/jobs", {"Job": job(Affinities=[prefers])})).status == 200
    path = f"/v1/job/web/allocations?namespace={TEAM}"
    for _ in range(200):
        answer = await callers.get(f"{path}&index=1&wait=100ms")
        if answer.json:
            found: dict[str, Any] = answer.json[0]
            assert found["NodeID"] == NODE_ID
            return found
    raise AssertionError("the job was not placed")


async def test_a_placed_allocation_names_its_own_node_and_no_other(callers: Callers) -> None:
    plain, reader = await secrets(callers)
    alloc = await running(callers)
    path = f"/v1/yurt/allocation/{alloc['ID']}/why?namespace={TEAM}"
    hidden, shown = [await callers.get(path, token=token) for token in (plain, reader)]
    assert [row["NodeName"] for row in hidden.json["Scores"]] == ["worker", ""]
    assert [row["NodeName"] for row in hidden.json["Now"]["Scores"]] == ["worker", ""]
    assert named(hidden.text) == [] and HIDDEN[0] in shown.json["Text"]
    assert "the next best, 77777777," in hidden.json["Text"]


async def test_what_is_stored_of_an_evaluation_names_no_nodes(callers: Callers) -> None:
    plain, _ = await secrets(callers)
    alloc = await running(callers)
    for path in (
        f"/v1/yurt/evaluation/{alloc['EvalID']}/replay",
        f"/v1/evaluation/{alloc['EvalID']}",
        f"/v1/allocation/{alloc['ID']}",
        "/v1/job/web/summary",
        "/v1/job/web/deployments",
        "/v1/evaluations",
        "/v1/queue/jobs",
        "/v1/yurt/jobs",
        "/v1/yurt/allocations",
        "/v1/yurt/overview",
        "/v1/jobs/statuses",
    ):
        answer = await callers.get(f"{path}?namespace={TEAM}", token=plain)
        assert answer.status == 200 and named(answer.text) == [], (path, answer.text)


async def test_a_blocked_evaluation_names_no_nodes(callers: Callers) -> None:
    plain, _ = await secrets(callers)
    assert (await callers.put("/v1/jobs", {"Job": UNPLACED["value"]})).status == 200
    path = f"/v1/evaluations?namespace={TEAM}&filter=Status==blocked"
    answer = await callers.get(path, token=plain)
    for _ in range(200):
        if answer.json:
            break
        answer = await callers.get(f"{path}&index=1&wait=100ms", token=plain)
    assert answer.json[0]["FailedTGAllocs"] and named(answer.text) == []


def test_a_queue_names_only_jobs_that_the_caller_may_list() -> None:
    waiting = factories.job(namespace="own")
    place = Place(
        entry=cast("Any", SimpleNamespace(job=waiting)),
        position=0,
        status="queued",
        reason="",
        waits_for=("other", "secret"),
        adjusted=None,
        expected_start=0,
        expected_by=0,
        latest_start=0,
    )
    report = QueueReport(1, (place, place._replace(waits_for=("own", "known"))))

    def named(authority: Authority) -> list[tuple[str, str] | None]:
        access = Access(authority=authority, need=needs.namespace(Capability.LIST_JOBS))
        return [each.waits_for for each in PoolQueueRows(cast("Any", None), access).visible(report)]

    assert named(Grants("own", Capability.LIST_JOBS)) == [None, ("own", "known")]
    assert named(AllowAll()) == [("other", "secret"), ("own", "known")]


async def with_volume(callers: Callers, *, read_only: bool) -> None:
    node = callers.api.server.state.nodes[NODE_ID]
    offered = {"data": HostVolumeInfo(path="/data", read_only=read_only)}
    await callers.api.server.replica.propose(RegisterNode(node=replace(node, host_volumes=offered)))


async def test_a_change_of_a_volume_says_what_to_do_without_the_node(callers: Callers) -> None:
    plain, reader = await secrets(callers)
    asking = job()
    asking["TaskGroups"][0]["Volumes"] = {"v": {"Type": "host", "Source": "data", "ReadOnly": False}}

    async def texts() -> list[str]:
        answers = [await callers.put(WHY_NOT, {"Job": asking}, token=token) for token in (plain, reader)]
        return [answer.json["Groups"][0]["SmallestChange"]["Text"] for answer in answers]

    assert await texts() == ['offer the host volume "data" on a node', 'offer the host volume "data" on node worker']
    await with_volume(callers, read_only=True)
    assert await texts() == [f'make the host volume "data" writable on {place}' for place in ("a node", "node worker")]


async def test_a_refused_volume_names_its_node_to_who_may_read_nodes(callers: Callers) -> None:
    plain, reader = await secrets(callers)
    await with_volume(callers, read_only=False)
    capability = {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}
    volume = {
        "Name": "data",
        "Namespace": TEAM,
        "NodeID": NODE_ID,
        "HostPath": "/x",
        "RequestedCapabilities": [capability],
    }

    async def refusal(token: str) -> str:
        answer = await callers.put("/v1/volume/host/register", {"Volume": volume}, token=token)
        assert answer.status == 500, "as Nomad's routes of volumes answer any problem"
        return answer.text

    problem = 'cannot have the volume: has a host volume "data" already'
    assert await refusal(plain) == f"node {NODE_ID[:8]} {problem}"
    assert await refusal(reader) == f"node worker ({NODE_ID[:8]}) {problem}"
