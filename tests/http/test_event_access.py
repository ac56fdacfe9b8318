"""What a reader of the event stream is told: each change is decided about by its topic and where its row lies."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from yurt.access import Access, Actor, Capability, Decision, Need, Scope, needs
from yurt.access.needs import Leaf, VariableCapability
from yurt.sdk.errors import PermissionDenied
from yurt.server.log.event_buffer import Event, EventBuffer
from yurt.server.views.events import NEEDS, EventFilter, Subscription
from yurt.state import TABLES, Change
from yurt.structs.commands import RegisterJob
from yurt.structs.node import Node
from yurt.structs.variable import EncryptedVariable
from yurt.testing import factories
from yurt.testing.authorities import Grants
from yurt.testing.events import events_of
from yurt.testing.http_api import serving

OWN, OTHER = "own", "other"
NAMESPACES = (OWN, OTHER)


def subscribed(grants: Grants, topic: str, namespace: str = OWN) -> Subscription:
    return Subscription(EventBuffer(), Access(authority=grants), EventFilter(((topic, "*"),), namespace), NAMESPACES)


LEAVES: dict[str, Capability | VariableCapability | Leaf] = {
    **dict.fromkeys(("Job", "Evaluation", "Allocation", "Deployment", "Service", "CSIPlugin"), Capability.READ_JOB),
    "CSIVolume": Capability.CSI_READ_VOLUME,
    "HostVolume": Capability.HOST_VOLUME_READ,
    "Variable": VariableCapability.LIST,
    "Node": needs.NODE_READ,
    "Operator": needs.OPERATOR_READ,
    **dict.fromkeys(
        ("NodePool", "ACLPolicy", "ACLToken", "ACLRole", "ACLAuthMethod", "ACLBindingRule", "*"), needs.MANAGEMENT
    ),
}


@pytest.mark.parametrize("topic", sorted(NEEDS))
def test_a_topic_opens_with_its_own_right_and_with_no_other(topic: str) -> None:
    for leaf in set(LEAVES.values()):
        grants = Grants(OWN)
        if isinstance(leaf, Capability | VariableCapability):
            grants.capabilities = frozenset({leaf})
        else:
            grants.elsewhere = frozenset({leaf})
        if leaf == LEAVES[topic]:
            subscribed(grants, topic)
        else:
            with pytest.raises(PermissionDenied):
                subscribed(grants, topic)


def test_every_topic_of_a_table_has_a_need() -> None:
    assert {table.topic.name for table in TABLES.values() if table.topic is not None} <= set(LEAVES)
    assert set(LEAVES) == set(NEEDS)


def test_all_namespaces_take_the_right_in_each_of_them() -> None:
    grants = Grants(OWN, Capability.READ_JOB)
    subscribed(grants, "Job")
    for namespace in (OTHER, "*"):
        with pytest.raises(PermissionDenied):
            subscribed(grants, "Job", namespace)


def told(changes: tuple[Change, ...], authority: Any) -> list[str]:
    found = events_of(7, changes, RegisterJob.event_type, access=Access(authority=authority))
    return [f"{event['Topic']} {event['Namespace']} {event['Key']}" for event in found]


def test_a_row_elsewhere_is_not_told() -> None:
    jobs = [factories.job(namespace=name) for name in NAMESPACES]
    variables = [EncryptedVariable(namespace=name, path="p") for name in NAMESPACES]
    changes = (
        *(Change("jobs", job.key, None, job) for job in jobs),
        *(Change("variables", each.key, None, each) for each in variables),
        Change("nodes", "n", None, Node(id="n")),
    )
    assert told(changes, Grants(OWN, Capability.READ_JOB)) == [f"Job {OWN} web"]
    assert told(changes, Grants(OWN, VariableCapability.LIST)) == [f"Variable {OWN} p"]
    everything = Grants(OWN)
    everything.elsewhere = frozenset({needs.NODE_READ})
    assert told(changes, everything) == ["Node  n"]


class OneNodePool:
    """Everybody may read the nodes of one pool; what else a change needs is not asked."""

    def recall(self, actor: Actor, need: Need, scope: Scope) -> None:
        return None

    def fixed(self, actor: Actor, need: Need) -> OneNodePool:
        return self

    def preparation(self, actor: Actor) -> None:
        return None

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        return scope.node_pool == "gpu"

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        return Decision(is_allowed=self.allows(actor, need, scope), reason="the pool")

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        return False

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> None:
        return None

    def standing(self, actor: Actor) -> None:
        return None


def test_a_node_is_decided_about_in_its_pool() -> None:
    nodes = [Node(id=pool, node_pool=pool) for pool in ("gpu", "default")]
    assert told(tuple(Change("nodes", node.id, None, node) for node in nodes), OneNodePool()) == ["Node  gpu"]


async def test_a_refused_stream_is_403_and_no_empty_stream() -> None:
    async with serving(authority=Grants(OWN, Capability.READ_JOB)) as api:
        for query in ("topic=Node", f"namespace={OWN}&topic=Job&topic=Node", "topic=Job", f"namespace={OWN}"):
            answer = await api.get(f"/v1/event/stream?{query}")
            assert (answer.status, answer.text) == (403, "Permission denied"), query


async def test_a_stream_ends_when_its_reader_loses_the_right() -> None:
    grants = Grants(OWN, Capability.READ_JOB)
    async with serving(authority=grants) as api:
        job = factories.job(namespace=OWN)
        index = api.server.state.index + 1
        async with api.client.get(f"/v1/event/stream?namespace={OWN}&topic=Job&index={index}") as response:
            assert await response.content.readline() == b"{}\n"
            api.server.log.events.add(Event(index, (Change("jobs", job.key, None, job),), RegisterJob.event_type))
            assert json.loads(await response.content.readline())["Index"] == index
            grants.capabilities = frozenset()
            api.server.log.events.add(Event(index + 1, (Change("jobs", job.key, None, job),), RegisterJob.event_type))
            last = json.loads(await response.content.readline())
    assert last == {"Error": "subscription closed by server, client should resubscribe: Permission denied"}


async def test_a_reader_is_told_that_events_are_missing() -> None:
    async with serving() as api, api.client.get("/v1/event/stream?topic=Node&index=999") as response:
        assert await response.content.readline() == b"{}\n"
        api.server.log.events.break_off(api.server.state.index)
        last = json.loads(await response.content.readline())
    assert last["Error"].startswith("subscription closed by server, client should resubscribe: this server fetched")


async def test_a_reader_gets_the_events_of_a_burst_that_is_larger_than_the_buffer() -> None:
    async with serving(event_buffer_size=10) as api, api.client.get("/v1/event/stream?topic=Job") as response:
        assert await response.content.readline() == b"{}\n"
        await asyncio.gather(*(api.register(f"job-{number}") for number in range(60)))
        keys: set[str] = set()
        async with asyncio.timeout(30):
            while len(keys) < 60:
                line = json.loads(await response.content.readline())
                assert "Error" not in line, line
                keys |= {event["Key"] for event in line["Events"]}


async def test_a_reader_that_resumes_learns_where_the_stream_begins() -> None:
    async with serving(event_buffer_size=2) as api:
        for number in range(5):
            await api.call("PUT", "/v1/namespace", {"Name": f"team-{number}"})
        index = api.server.state.index
        async with api.client.get("/v1/event/stream?index=1") as response:
            assert response.headers["X-Yurt-Oldest-Index"] == str(index - 1)
