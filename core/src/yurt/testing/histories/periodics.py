"""A periodic job that is launched by request: requests, and their sequential behaviour.

A launch is named after its second, so a second one within it makes no child. No node runs the children: each of them
stays alive. The job prohibits overlaps, which forced launches ignore.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.job_requests import job_document
from yurt.testing.histories.kinds import PreparedRequest, job_records, put
from yurt.testing.histories.log_index import NEVER, agrees, unknown_after


class RegisterPeriodic(Request, frozen=True):
    """PUT /v1/jobs."""

    mark: str


class PurgePeriodic(Request, frozen=True):
    """DELETE /v1/job/:id?purge=true; the children remain."""


class Launch(Request, frozen=True):
    """PUT /v1/job/:id/periodic/force."""


class ReadLaunches(Read, frozen=True):
    """GET /v1/jobs with the children's prefix."""


class Launched(NamedTuple):
    """The body of a launch: whether it created a child."""

    is_new: bool


class PeriodicState(NamedTuple):
    """Whether the job exists, and the indexes at which its children were created."""

    is_there: bool = False
    children: tuple[int, ...] = ()
    last: int = NEVER


class PeriodicModel:
    """The sequential behaviour of a periodic job."""

    def initial(self) -> PeriodicState:
        """The job does not exist."""
        return PeriodicState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: PeriodicState, request: Any, answer: Reply | None) -> PeriodicState | None:
        """See `Model.step`."""
        if isinstance(request, ReadLaunches):
            return state if answer is None else _listed(state, answer)
        if answer is None:
            return self._after(state, request, unknown_after(state.last)) or state
        if answer.is_refusal:
            is_reason = isinstance(request, Launch) and not state.is_there and "not found" in str(answer.body)
            return state if is_reason else None
        if answer.index <= state.last:
            return None
        if isinstance(request, Launch) and not answer.body.is_new:
            return state._replace(last=answer.index) if state.is_there and state.children else None
        after = self._after(state, request, answer.index)
        return None if after is None else after._replace(last=answer.index)

    def _after(self, state: PeriodicState, request: Any, at: int) -> PeriodicState | None:
        match request:
            case RegisterPeriodic():
                return state._replace(is_there=True)
            case PurgePeriodic():
                return state._replace(is_there=False)
            case _ if not state.is_there:
                return None
            case _:
                return state._replace(children=tuple(sorted((*state.children, at))))


def _listed(state: PeriodicState, answer: Reply) -> PeriodicState | None:
    if answer.is_refusal:
        return None
    shown: frozenset[int] = answer.body
    known = {each for each in state.children if each >= 0}
    unknown = sorted((each for each in state.children if each < 0), reverse=True)
    rest = sorted(shown - known)
    if not known <= shown or len(rest) != len(unknown):
        return None
    if not all(agrees(stored, answered) for stored, answered in zip(unknown, rest, strict=True)):
        return None
    return state._replace(children=tuple(sorted(shown)))


class PeriodicKind:
    """A periodic batch job whose schedule never fires."""

    def __init__(self) -> None:
        self.name = "periodic job"
        self.model = PeriodicModel()

    def key(self, number: int) -> str:
        """A job id."""
        return f"periodic-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        match request:
            case RegisterPeriodic(mark=mark):
                schedule = {"Specs": ["0 0 30 2 *"], "Enabled": True, "ProhibitOverlap": True}
                return put("/v1/jobs", {"Job": job_document(key, (1,), {"version": mark}, Periodic=schedule)})
            case PurgePeriodic():
                return PreparedRequest("DELETE", f"/v1/job/{key}?purge=true")
            case Launch():
                return put(f"/v1/job/{key}/periodic/force")
            case _:
                return PreparedRequest("GET", f"/v1/jobs?prefix={key}/periodic-")

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        if isinstance(request, Launch):
            return Launched(bool(document["EvalID"]))
        return frozenset(row["CreateIndex"] for row in document) if isinstance(request, ReadLaunches) else None

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        requests = (RegisterPeriodic(mark), PurgePeriodic(), Launch(), ReadLaunches())
        return requests[0] if not past else rng.choices(requests, _WEIGHTS)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadLaunches(),)

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return job_records(key)


_WEIGHTS: Final = (4, 2, 8, 4)
