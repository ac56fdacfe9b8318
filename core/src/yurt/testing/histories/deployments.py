"""A deployment that operators pause, resume and fail: requests, and their sequential behaviour.

A service job without a node gets a first version, which is marked stable, and a second one. The second one's deployment
waits for allocations that nobody can place, so only requests change it. When it fails, its job goes back to the first
version. Until the deployment is found the requests only lead up to it; they may be repeated.

A newer version of the job, or a purge, makes the scheduler cancel the deployment some time later. A registration that
leads up to the deployment makes a newer version too, when a frozen server carries it out late. From then on an answer
tells whether the deployment was cancelled before it: a cancelled one never changes again, and one that was not is what
the requests made of it. Its failure no longer takes the job back.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Answer, Operation, Read, Request
from yurt.testing.histories.job_requests import job_document
from yurt.testing.histories.kinds import Prepared, job_records, put
from yurt.testing.histories.log_index import NEVER

FIRST, SECOND = "first", "second"
RUNNING, PAUSED, FAILED, CANCELLED = "running", "paused", "failed", "cancelled"
WATCHED: Final = 1
"""The job version whose deployment is driven."""


class RegisterService(Request, frozen=True):
    """PUT /v1/jobs."""

    mark: str


class MarkStable(Request, frozen=True):
    """PUT /v1/job/:id/stable for the first version."""


class FindDeployment(Read, frozen=True):
    """GET /v1/job/:id/deployment: the latest one; with an index, when something changed since then."""

    after: int = 0


class ReadService(Read, frozen=True):
    """GET /v1/job/:id."""


class Pause(Request, frozen=True):
    """PUT /v1/deployment/pause/:id."""

    id: str
    pause: bool


class Fail(Request, frozen=True):
    """PUT /v1/deployment/fail/:id."""

    id: str


class Promote(Request, frozen=True):
    """PUT /v1/deployment/promote/:id; the deployment has no canaries."""

    id: str


class Purge(Request, frozen=True):
    """DELETE /v1/job/:id?purge=true."""


class Found(NamedTuple):
    """The latest deployment in a body."""

    id: str
    version: int
    status: str


class Service(NamedTuple):
    """The job in a body."""

    version: int
    mark: str


class DeploymentState(NamedTuple):
    """The job (version -1: there is none) and the deployment of its second version."""

    version: int = -1
    mark: str = ""
    is_stable: bool = False
    status: str = RUNNING
    is_purged: bool = False
    """The job was purged; one of the same name may have come after it."""
    last: int = NEVER

    @property
    def is_active(self) -> bool:
        """The deployment has not ended."""
        return self.status in (RUNNING, PAUSED)

    @property
    def is_left(self) -> bool:
        """The job has left the deployment behind: the scheduler cancels it at some time, or has."""
        return self.is_purged or self.version > WATCHED


class DeploymentModel:
    """The sequential behaviour of the deployment and its job."""

    def initial(self) -> DeploymentState:
        """There is no job."""
        return DeploymentState()

    def written_at(self, request: Any, answer: Answer) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: DeploymentState, request: Any, answer: Answer | None) -> DeploymentState | None:
        """See `Model.step`."""
        if answer is not None and request.is_read:
            return _read(state, answer)
        if answer is not None and answer.is_refusal:
            return _refused(state, request, str(answer.body))
        after = _after(state, request)
        if answer is None:
            return state if after is None else after
        if after is None or answer.index <= state.last:
            return None
        if isinstance(request, Fail) and (answer.body is not None) != (after.version > state.version):
            return None
        return after._replace(last=answer.index)


def _after(state: DeploymentState, request: Any) -> DeploymentState | None:
    """The state after a request; None when it must be refused."""
    is_driven = state.is_active and state.version >= 0
    match request:
        case RegisterService(mark=mark):
            is_same = state.version >= 0 and state.mark == mark
            return state if is_same else state._replace(version=state.version + 1, mark=mark)
        case MarkStable():
            return state._replace(is_stable=True) if state.version >= 0 else None
        case Pause(pause=pause) if is_driven:
            return state._replace(status=PAUSED if pause else RUNNING)
        case Purge():
            return state._replace(version=-1, mark="", is_purged=True)
        case Fail() if is_driven:
            goes_back = state.is_stable and not state.is_left
            failed = state._replace(status=FAILED)
            return failed._replace(version=state.version + 1, mark=FIRST) if goes_back else failed
        case _:
            return None


def _refused(state: DeploymentState, request: Any, text: str) -> DeploymentState | None:
    """The state, cancelled where the refusal tells that; None when nothing in it is a reason for this refusal."""
    if isinstance(request, MarkStable):
        return state if state.version < 0 and ("has no version" in text or "not found" in text) else None
    if "terminal" in text:
        return _cancelled(state) if state.is_active else state
    if not state.is_active:
        return None
    is_reason = "not found" in text if state.version < 0 else isinstance(request, Promote) and "no canaries" in text
    return state if is_reason else None


def _cancelled(state: DeploymentState) -> DeploymentState | None:
    return state._replace(status=CANCELLED) if state.is_left else None


def _read(state: DeploymentState, answer: Answer) -> DeploymentState | None:
    """The state, cancelled where the read shows that; None when it shows what is not so."""
    body = answer.body
    if answer.is_refusal:
        return state if state.version < 0 and answer.status == 404 else None
    if isinstance(body, Service):
        return state if (body.version, body.mark) == (state.version, state.mark) else None
    if state.is_purged or body is None or body.version != WATCHED or body.status == state.status:
        return state
    return _cancelled(state) if body.status == CANCELLED and state.is_active else None


class DeploymentKind:
    """A deployment of a service job."""

    name = "deployment"

    def __init__(self) -> None:
        self.model = DeploymentModel()

    def key(self, number: int) -> str:
        """A job id."""
        return f"service-{number}"

    def prepare(self, key: str, request: Any) -> Prepared:
        """See `Kind.prepare`."""
        match request:
            case RegisterService(mark=mark):
                update = {"MaxParallel": 1, "AutoRevert": True}
                return put("/v1/jobs", {"Job": job_document(key, (2,), {"mark": mark}, Type="service", Update=update)})
            case MarkStable():
                return put(f"/v1/job/{key}/stable", {"JobID": key, "JobVersion": 0, "Stable": True})
            case FindDeployment(after=after):
                return Prepared("GET", f"/v1/job/{key}/deployment" + (f"?index={after}&wait=500ms" if after else ""))
            case Pause(id=found, pause=pause):
                return put(f"/v1/deployment/pause/{found}", {"DeploymentID": found, "Pause": pause})
            case Fail(id=found):
                return put(f"/v1/deployment/fail/{found}")
            case Purge():
                return Prepared("DELETE", f"/v1/job/{key}?purge=true")
            case Promote(id=found):
                return put(f"/v1/deployment/promote/{found}", {"DeploymentID": found, "All": True})
            case _:
                return Prepared("GET", f"/v1/job/{key}")

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        match request:
            case FindDeployment():
                found = document or None
                return found and Found(found["ID"], found["JobVersion"], found["Status"])
            case ReadService():
                return Service(document["Version"], document["Meta"]["mark"])
            case Fail():
                return document["RevertedJobVersion"]
            case _:
                return None

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        done = [each for each in past if each.answer is not None and not each.answer.is_refusal]
        made = {each.request.mark for each in done if isinstance(each.request, RegisterService)}
        if FIRST not in made:
            return RegisterService(FIRST)
        if not any(isinstance(each.request, MarkStable) for each in done):
            return MarkStable()
        if SECOND not in made:
            return RegisterService(SECOND)
        answers = [each.answer for each in done if each.answer is not None]
        told = (each.body for each in answers if isinstance(each.body, Found))
        found = next((body.id for body in told if body.version == WATCHED), "")
        if not found:
            return FindDeployment(max(each.index for each in answers))
        requests = (
            Pause(found, True), Pause(found, False), Fail(found), Promote(found), FindDeployment(), ReadService(),
            Purge(), RegisterService(mark),
        )  # fmt: skip
        return rng.choices(requests, _WEIGHTS)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return FindDeployment(), ReadService()

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return job_records(key)


_WEIGHTS: Final = (6, 5, 2, 1, 4, 4, 1, 1)
