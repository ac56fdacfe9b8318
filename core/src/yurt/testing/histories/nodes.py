"""A node's eligibility and drain: requests, and their sequential behaviour.

A drain ends by itself when no allocation is left to wait for, at any later moment; the node stays ineligible then.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.kinds import PreparedRequest, put
from yurt.testing.histories.log_index import NEVER

DEADLINE_NS: Final = 3_600 * 10**9


class SetEligibility(Request, frozen=True):
    """PUT /v1/node/:id/eligibility."""

    is_eligible: bool


class Drain(Request, frozen=True):
    """PUT /v1/node/:id/drain with a deadline of an hour."""


class EndDrain(Request, frozen=True):
    """PUT /v1/node/:id/drain without a strategy."""

    mark_eligible: bool


class ReadNode(Read, frozen=True):
    """GET /v1/node/:id."""


class ShownNode(NamedTuple):
    """The node in a body."""

    is_eligible: bool
    is_draining: bool


class NodeState(NamedTuple):
    """The node; its eligibility is None until a client has read it."""

    is_eligible: bool | None = None
    may_drain: bool = False
    """A drain has begun and may go on still."""
    last: int = NEVER


class NodeModel:
    """The sequential behaviour of a node."""

    def initial(self) -> NodeState:
        """No client has read the node."""
        return NodeState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: NodeState, request: Any, answer: Reply | None) -> NodeState | None:
        """See `Model.step`."""
        if answer is None:
            return state if request.is_read else _after(state, request)
        if answer.is_refusal:
            is_reason = state.may_drain and "draining" in str(answer.body)
            return state if is_reason and request == SetEligibility(is_eligible=True) else None
        if not request.is_read:
            return _after(state, request)._replace(last=answer.index) if answer.index > state.last else None
        shown: ShownNode = answer.body
        is_same = state.is_eligible in (None, shown.is_eligible) and (state.may_drain or not shown.is_draining)
        return state._replace(is_eligible=shown.is_eligible, may_drain=shown.is_draining) if is_same else None


def _after(state: NodeState, request: Any) -> NodeState:
    match request:
        case SetEligibility(is_eligible=True):
            return state._replace(is_eligible=True, may_drain=False)
        case SetEligibility():
            return state._replace(is_eligible=False)
        case Drain():
            return state._replace(is_eligible=False, may_drain=True)
        case EndDrain(mark_eligible=True):
            return state._replace(is_eligible=True, may_drain=False)
        case _:
            return state._replace(may_drain=False)


class NodeKind:
    """One existing node; all operations form one history."""

    name = "node"

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self.model = NodeModel()

    def key(self, number: int) -> str:
        """A fixed name: there is only one node."""
        return self._node_id

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at = f"/v1/node/{key}"
        match request:
            case SetEligibility(is_eligible=is_eligible):
                requested = "eligible" if is_eligible else "ineligible"
                return put(f"{at}/eligibility", {"NodeID": key, "Eligibility": requested})
            case Drain():
                return put(f"{at}/drain", {"NodeID": key, "DrainSpec": {"Deadline": DEADLINE_NS}})
            case EndDrain(mark_eligible=mark_eligible):
                return put(f"{at}/drain", {"NodeID": key, "DrainSpec": None, "MarkEligible": mark_eligible})
            case _:
                return PreparedRequest("GET", at)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        if not isinstance(request, ReadNode):
            return None
        return ShownNode(document["SchedulingEligibility"] == "eligible", document["DrainStrategy"] is not None)

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        requests = (
            SetEligibility(True), SetEligibility(False), Drain(), EndDrain(True), EndDrain(False), ReadNode(),
        )  # fmt: skip
        return rng.choices(requests, _WEIGHTS)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadNode(),)

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return ()


_WEIGHTS: Final = (4, 3, 3, 2, 2, 5)
