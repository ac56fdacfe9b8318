"""Drains of a node that runs allocations: requests, and their sequential behaviour.

Batch jobs run on the node until somebody stops them; each is registered once, so none comes back. Their allocations
hold up a drain, and nothing else ends them:

- a drain goes on as long as one of them is known to run. After that it may end by itself at any time;
- a node that drains or is ineligible gets no new allocation, but keeps those it has;
- a forced drain tells all allocations to go. What was registered before it may be gone from then on.

`LoadedState.holds` are the jobs whose allocation somebody has seen on the node: it must not disappear.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.kinds import PreparedRequest, put
from yurt.testing.histories.log_index import NEVER
from yurt.testing.histories.nodes import DEADLINE_NS, Drain, EndDrain, ReadNode, SetEligibility, ShownNode

FORCED_NS: Final = -1
"""The deadline of a drain that waits for nothing."""
LIVE: Final = ("pending", "running")


class ForceDrain(Request, frozen=True):
    """PUT /v1/node/:id/drain with a deadline that has passed."""


class RegisterBatch(Request, frozen=True):
    """PUT /v1/jobs: a job of one allocation that only this node can run."""

    mark: str


class StopBatch(Request, frozen=True):
    """DELETE /v1/job/:id."""

    mark: str


class ReadBatch(Read, frozen=True):
    """GET /v1/job/:id/allocations."""

    mark: str


class LoadedState(NamedTuple):
    """The node, and the jobs on it by mark."""

    is_eligible: bool | None = None
    """None until somebody has read it."""
    is_draining: bool = False
    registered: frozenset[str] = frozenset()
    """All jobs that there have been."""
    lasting: frozenset[str] = frozenset()
    """Those whose allocation no drain has marked for migration."""
    holds: frozenset[str] = frozenset()
    """Those of the lasting ones whose allocation was seen."""
    last: int = NEVER

    @property
    def may_be_drained(self) -> bool:
        """Whether the drain may have completed by itself."""
        return self.is_draining and not self.holds


class LoadedNodeModel:
    """The sequential behaviour of a node and the jobs on it."""

    def initial(self) -> LoadedState:
        """There are no jobs, and no client has read the node."""
        return LoadedState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: LoadedState, request: Any, answer: Reply | None) -> LoadedState | None:
        """See `Model.step`."""
        if answer is None:
            return state if request.is_read else (_after(state, request) or state)
        if answer.is_refusal:
            is_reason = state.is_draining and "draining" in str(answer.body)
            return state if is_reason and request == SetEligibility(is_eligible=True) else None
        if isinstance(request, ReadBatch):
            return _batch_read(state, request.mark, live=answer.body)
        if isinstance(request, ReadNode):
            return _node_read(state, answer.body)
        after = _after(state, request)
        return None if after is None or answer.index <= state.last else after._replace(last=answer.index)


def _after(state: LoadedState, request: Any) -> LoadedState | None:
    """The state after a request; None when it must be refused."""
    match request:
        case SetEligibility(is_eligible=True) if state.is_draining and not state.may_be_drained:
            return None
        case SetEligibility(is_eligible=True) | EndDrain(mark_eligible=True):
            return state._replace(is_eligible=True, is_draining=False)
        case SetEligibility():
            return state._replace(is_eligible=False)
        case EndDrain():
            return state._replace(is_draining=False)
        case Drain():
            return state._replace(is_eligible=False, is_draining=True)
        case ForceDrain():
            return state._replace(is_eligible=False, is_draining=True, lasting=frozenset(), holds=frozenset())
        case RegisterBatch(mark=mark):
            return state._replace(registered=state.registered | {mark}, lasting=state.lasting | {mark})
        case _:
            return state._replace(lasting=state.lasting - {request.mark}, holds=state.holds - {request.mark})


def _node_read(state: LoadedState, shown: ShownNode) -> LoadedState | None:
    is_same = state.is_eligible in (None, shown.is_eligible)
    is_known = shown.is_draining == state.is_draining or (state.may_be_drained and not shown.is_draining)
    found = state._replace(is_eligible=shown.is_eligible, is_draining=shown.is_draining)
    return found if is_same and is_known else None


def _batch_read(state: LoadedState, mark: str, *, live: int) -> LoadedState | None:
    if live > (mark in state.registered) or (not live and mark in state.holds):
        return None
    return state._replace(holds=state.holds | {mark}) if live and mark in state.lasting else state


class LoadedNodeKind:
    """One node, alone in its datacenter; all operations form one history."""

    name = "loaded node"

    def __init__(self, node_id: str, datacenter: str) -> None:
        self._node_id = node_id
        self._datacenter = datacenter
        self.model = LoadedNodeModel()

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
            case Drain() | ForceDrain():
                deadline = DEADLINE_NS if isinstance(request, Drain) else FORCED_NS
                return put(f"{at}/drain", {"NodeID": key, "DrainSpec": {"Deadline": deadline}})
            case EndDrain(mark_eligible=mark_eligible):
                return put(f"{at}/drain", {"NodeID": key, "DrainSpec": None, "MarkEligible": mark_eligible})
            case RegisterBatch(mark=mark):
                return put("/v1/jobs", {"Job": batch_document(self._job(mark), self._datacenter)})
            case StopBatch(mark=mark):
                return PreparedRequest("DELETE", f"/v1/job/{self._job(mark)}")
            case ReadBatch(mark=mark):
                return PreparedRequest("GET", f"/v1/job/{self._job(mark)}/allocations")
            case _:
                return PreparedRequest("GET", at)

    def _job(self, mark: str) -> str:
        return f"batch-{self._node_id[:8]}-{mark}"

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        match request:
            case ReadNode():
                return ShownNode(document["SchedulingEligibility"] == "eligible", document["DrainStrategy"] is not None)
            case ReadBatch():
                return sum(each["DesiredStatus"] == "run" and each["ClientStatus"] in LIVE for each in document)
            case _:
                return None

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`; several lanes share the node, so their marks must differ."""
        asked = [each.request for each in past]
        stopped = {each.mark for each in asked if isinstance(each, StopBatch)}
        begun = [each.mark for each in asked if isinstance(each, RegisterBatch)]
        live = [each for each in begun if each not in stopped]
        fresh = RegisterBatch(f"{mark}-{rng.randrange(10**9)}")
        if not live:
            return fresh
        latest = live[-1]
        requests = (
            SetEligibility(True), SetEligibility(False), Drain(), EndDrain(True), EndDrain(False), ReadNode(),
            ForceDrain(), fresh, StopBatch(live[0]), ReadBatch(latest), ReadBatch(rng.choice(begun)),
        )  # fmt: skip
        return rng.choices(requests, _WEIGHTS)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadNode(),)

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return f"/v1/node/{key}/allocations", "/v1/evaluations"


def batch_document(job_id: str, datacenter: str) -> dict[str, Any]:
    """A batch job of one small allocation that runs until it is stopped."""
    task = {
        "Name": "main", "Driver": "mock_driver", "Config": {"run_for": "12h"},
        "Resources": {"CPU": 1, "MemoryMB": 10}, "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 1},
    }  # fmt: skip
    group = {"Name": "main", "Count": 1, "Tasks": [task], "EphemeralDisk": {"SizeMB": 10}}
    return {"ID": job_id, "Name": job_id, "Type": "batch", "Datacenters": [datacenter], "TaskGroups": [group]}


_WEIGHTS: Final = (4, 2, 4, 3, 2, 6, 1, 3, 3, 6, 3)
