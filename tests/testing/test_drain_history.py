"""The model of a node that runs allocations against a real server, and against answers that no server may give."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from yurt.testing.histories.checker import check
from yurt.testing.histories.clients import Clients
from yurt.testing.histories.drains import (
    ForceDrain,
    LoadedNodeKind,
    LoadedNodeModel,
    ReadBatch,
    RegisterBatch,
    StopBatch,
)
from yurt.testing.histories.history import Operation, Reply, Request
from yurt.testing.histories.nodes import Drain, EndDrain, ReadNode, SetEligibility, ShownNode
from yurt.testing.histories.report import report_on
from yurt.testing.http_api import NODE_ID, add_ready_node, serving

REFUSED = Reply(500, 0, "can not set a draining node as eligible")
LOADED: Sequence[tuple[Request, Reply]] = (
    (RegisterBatch("a"), Reply(200, 5)),
    (ReadBatch("a"), Reply(200, 6, 1)),
    (Drain(), Reply(200, 7)),
)
LOST: dict[str, Sequence[tuple[Request, Reply]]] = {
    "a drain ends while an allocation runs": [(ReadNode(), Reply(200, 8, ShownNode(False, False)))],
    "a node that drains is made eligible": [(SetEligibility(True), Reply(200, 8))],
    "a drain makes its node eligible": [
        (StopBatch("a"), Reply(200, 8)), (ReadNode(), Reply(200, 9, ShownNode(True, False))),
    ],
    "a drain stops a batch job": [(ReadBatch("a"), Reply(200, 8, 0))],
    "an allocation is started twice": [(EndDrain(True), Reply(200, 8)), (ReadBatch("a"), Reply(200, 9, 2))],
    "a drain comes back": [
        (EndDrain(False), Reply(200, 8)), (ReadNode(), Reply(200, 9, ShownNode(False, True))),
    ],
    "a drain is refused when it ended": [
        (StopBatch("a"), Reply(200, 8)), (ReadNode(), Reply(200, 9, ShownNode(False, False))),
        (SetEligibility(True), REFUSED),
    ],
    "a drain that began anew is lost": [
        (EndDrain(True), Reply(200, 8)), (Drain(), Reply(200, 9)), (ReadNode(), Reply(200, 9, ShownNode(False, False))),
    ],
}  # fmt: skip


def one_by_one(pairs: Sequence[tuple[Request, Reply]]) -> list[Operation]:
    return [
        Operation(at, at, NODE_ID, request, invoked=at * 10, returned=at * 10 + 5, answer=answer)
        for at, (request, answer) in enumerate(pairs)
    ]


@pytest.mark.parametrize("name", LOST)
def test_a_lost_drain_or_allocation_has_no_order_that_explains_it(name: str) -> None:
    assert check(LoadedNodeModel(), one_by_one(LOADED)).is_linearizable

    assert not check(LoadedNodeModel(), one_by_one([*LOADED, *LOST[name]])).is_linearizable


@pytest.mark.parametrize("end", [StopBatch("a"), ForceDrain()])
def test_a_drain_ends_when_its_allocations_are_told_to_go(end: Request) -> None:
    after = (
        (end, Reply(200, 8)),
        (ReadBatch("a"), Reply(200, 9, 0)),
        (ReadNode(), Reply(200, 9, ShownNode(False, False))),
    )

    assert check(LoadedNodeModel(), one_by_one([*LOADED, *after])).is_linearizable


async def test_the_model_explains_a_loaded_node_under_concurrent_requests() -> None:
    async with serving(heartbeat_grace_s=600.0) as api:
        await add_ready_node(api)
        kind = LoadedNodeKind(NODE_ID, "*")
        clients = Clients([str(api.client.make_url("")).rstrip("/")], [kind], seed=3)

        await clients.run(600)

    report = report_on(clients.recorded)
    assert report.is_clean, str(report)
    assert clients.outcomes["loaded node Drain 200"] > 10
