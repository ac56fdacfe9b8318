"""A deployment that operators pause, resume, promote and fail: requests, and their sequential behaviour.

A service job gets a first version and a second one, whose deployment is driven. Until the deployment is found the
requests only lead up to it; they may be repeated.

Operators change its status at once. The servers end it some time later, and an answer tells whether they have:

- as cancelled, when the job has a newer version or was purged. A registration that leads up to the deployment makes a
  newer version too, when a frozen server carries it out late;
- as failed, when its canary was called unhealthy;
- as successful, when its canary was promoted.

One that has ended never changes again, and one that goes on is what the requests made of it. Its failure takes the job
back to a stable version where the job asks for that, but not from a newer version.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Read, Reply, Request
from yurt.testing.histories.log_index import NEVER

FIRST, SECOND = "first", "second"
RUNNING, PAUSED, FAILED, CANCELLED, SUCCESSFUL = "running", "paused", "failed", "cancelled", "successful"
ENDED: Final = "ended"
"""The status of a deployment that an answer called ended, without saying how."""
WATCHED: Final = 1
"""The job version whose deployment is driven."""


class RegisterService(Request, frozen=True):
    """PUT /v1/jobs."""

    mark: str


class MarkStable(Request, frozen=True):
    """PUT /v1/job/:id/stable for the first version."""


class FindAllocations(Read, frozen=True):
    """GET /v1/job/:id/allocations; with an index, a blocking query."""

    after: int = 0


class FindDeployment(Read, frozen=True):
    """GET /v1/job/:id/deployment, the latest one; with an index, a blocking query."""

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
    """PUT /v1/deployment/promote/:id."""

    id: str


class SetHealth(Request, frozen=True):
    """PUT /v1/deployment/allocation-health/:id for the canary."""

    id: str
    canary: str
    is_healthy: bool


class Purge(Request, frozen=True):
    """DELETE /v1/job/:id?purge=true."""


class LatestDeployment(NamedTuple):
    """The latest deployment in a body."""

    id: str
    version: int
    status: str
    promoted: bool = False
    canary: str = ""
    health: tuple[int, int] = (0, 0)
    """How many allocations are healthy, and unhealthy."""


class JobBody(NamedTuple):
    """The job in a body."""

    version: int
    mark: str


class RolloutState(NamedTuple):
    """The job (version -1: it does not exist) and the deployment of its second version."""

    version: int = -1
    mark: str = ""
    is_stable: bool = False
    status: str = RUNNING
    is_purged: bool = False
    """The job was purged; one of the same name may have come after it."""
    promoted: bool = False
    is_healthy: bool | None = None
    """The canary; None until somebody has said so."""
    last: int = NEVER

    @property
    def is_active(self) -> bool:
        """The deployment has not ended, as far as an answer has shown."""
        return self.status in (RUNNING, PAUSED)

    @property
    def is_driven(self) -> bool:
        """A request on the deployment succeeds unless the servers have ended the deployment."""
        return self.is_active and self.version >= 0

    @property
    def is_left(self) -> bool:
        """The job has a newer version than the deployment's."""
        return self.is_purged or self.version > WATCHED

    @property
    def endings(self) -> tuple[str, ...]:
        """The states in which the servers may have ended the deployment."""
        reasons = ((CANCELLED, self.is_left), (FAILED, self.is_healthy is False), (SUCCESSFUL, self.promoted))
        return tuple(status for status, is_so in reasons if is_so)

    @property
    def health(self) -> tuple[int, int]:
        """The counts of healthy and unhealthy allocations in the deployment."""
        return int(self.is_healthy is True), int(self.is_healthy is False)


class DeploymentModel:
    """The sequential behaviour of the deployment and its job."""

    def __init__(self, *, has_canary: bool = False) -> None:
        self._has_canary = has_canary

    def initial(self) -> RolloutState:
        """The job does not exist."""
        return RolloutState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: RolloutState, request: Any, answer: Reply | None) -> RolloutState | None:
        """See `Model.step`."""
        if answer is not None and request.is_read:
            return _read(state, answer)
        after = self._after(state, request)
        if answer is None:
            return state if after is None else after
        if answer.is_refusal:
            return self._refused(state, request, str(answer.body))
        if after is None or answer.index <= state.last:
            return None
        if isinstance(request, Fail) and (answer.body is not None) != (after.version > state.version):
            return None
        return after._replace(last=answer.index)

    def _after(self, state: RolloutState, request: Any) -> RolloutState | None:
        """The state after a request; None when it must be refused."""
        match request:
            case RegisterService(mark=mark):
                is_same = state.version >= 0 and state.mark == mark
                return state if is_same else state._replace(version=state.version + 1, mark=mark)
            case MarkStable():
                return state._replace(is_stable=True) if state.version >= 0 else None
            case Pause(pause=pause) if state.is_driven:
                return state._replace(status=PAUSED if pause else RUNNING)
            case Purge():
                return state._replace(version=-1, mark="", is_purged=True)
            case SetHealth(is_healthy=is_healthy) if state.is_driven:
                return state._replace(is_healthy=is_healthy and state.is_healthy is not False)
            case Promote() if state.is_driven and not self._promotion_problem(state):
                return state._replace(promoted=True)
            case Fail() if state.is_driven:
                goes_back = state.is_stable and not state.is_left
                failed = state._replace(status=FAILED)
                return failed._replace(version=state.version + 1, mark=FIRST) if goes_back else failed
            case _:
                return None

    def _promotion_problem(self, state: RolloutState) -> str:
        if state.promoted or not self._has_canary:
            return "no canaries to promote"
        return "" if state.is_healthy else "has 0/1 healthy allocations"

    def _refused(self, state: RolloutState, request: Any, text: str) -> RolloutState | None:
        """The state that explains this refusal, with the deployment's end it reveals; None when none does."""
        if isinstance(request, MarkStable):
            return state if state.version < 0 and ("has no version" in text or "not found" in text) else None
        if "terminal" in text:
            is_reason = bool(state.endings) or not state.is_active
            return _ended(state) if is_reason else None
        if not state.is_active:
            return None
        if state.version < 0:
            return state if "not found" in text else None
        problem = self._promotion_problem(state) if isinstance(request, Promote) else ""
        return state if problem and problem in text else None


def _ended(state: RolloutState) -> RolloutState:
    return state._replace(status=ENDED) if state.is_active else state


def _read(state: RolloutState, answer: Reply) -> RolloutState | None:
    """The state that explains this read, with the deployment's end it reveals; None when the read contradicts it."""
    body = answer.body
    if answer.is_refusal:
        return state if state.version < 0 and answer.status == 404 else None
    if isinstance(body, JobBody):
        return state if (body.version, body.mark) == (state.version, state.mark) else None
    if state.is_purged or not isinstance(body, LatestDeployment) or body.version != WATCHED:
        return state
    if (body.promoted, body.health) != (state.promoted, state.health):
        return None
    may_end = state.is_active or state.status == ENDED
    if may_end and body.status in state.endings:
        return state._replace(status=body.status)
    return state if body.status == state.status else None
