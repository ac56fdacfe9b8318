"""The evaluations of a job, which requests create and delete and which end by themselves: requests and behaviour.

Whether an evaluation has ended yet is not modelled: one that exists may be called not safe to delete at any time. What
was deleted does not come back, and is deleted once.

Evaluations are deleted only while the broker is paused, for all jobs at once. `EvaluationKind` leaves the broker alone:
any deletion may be refused for it. `BrokerKind` pauses it as well, so no program has both it and another kind that
writes the scheduler's configuration or waits for the scheduler.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.configurations import SCHEDULER
from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.job_requests import job_document
from yurt.testing.histories.kinds import PreparedRequest, job_records, put
from yurt.testing.histories.log_index import NEVER

PAUSED_SHARE: Final = 0.6
"""Changes of the broker that pause it: more are deleted then."""


class RegisterEvaluated(Request, frozen=True):
    """PUT /v1/jobs, which creates an evaluation."""

    mark: str


class EvaluateRequest(Request, frozen=True):
    """PUT /v1/job/:id/evaluate."""


class DeleteEvaluation(Request, frozen=True):
    """DELETE /v1/evaluations with one id."""

    id: str


class ReadEvaluation(Read, frozen=True):
    """GET /v1/evaluation/:id."""

    id: str


class PauseBroker(Request, frozen=True):
    """PUT of the scheduler configuration that pauses or resumes the broker."""

    is_paused: bool


class ReadBroker(Read, frozen=True):
    """GET of the scheduler's configuration: whether the broker is paused."""


class EvaluationBody(NamedTuple):
    """The body of an answer that names a created evaluation."""

    id: str


class EvaluationState(NamedTuple):
    """Whether the job exists, and the existing evaluations whose ids an answer has shown."""

    is_there: bool = False
    known: frozenset[str] = frozenset()
    last: int = NEVER
    is_paused: bool | None = None
    """None: others pause the broker, at any time."""


class EvaluationModel:
    """The sequential behaviour of evaluations and, with `owns_broker`, of the broker's pause."""

    def __init__(self, *, owns_broker: bool = False) -> None:
        self._is_paused = False if owns_broker else None

    def initial(self) -> EvaluationState:
        """The job does not exist."""
        return EvaluationState(is_paused=self._is_paused)

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: EvaluationState, request: Any, answer: Reply | None) -> EvaluationState | None:
        """See `Model.step`."""
        if answer is None:
            return state if request.is_read else _unknown(state, request)
        if isinstance(request, ReadEvaluation):
            return state if (request.id in state.known) == (not answer.is_refusal) else None
        if isinstance(request, ReadBroker):
            return state if answer.body == state.is_paused else None
        if answer.is_refusal:
            return state if _is_reason(state, request, str(answer.body)) else None
        return _written(state, request, answer) if answer.index > state.last else None


def _written(state: EvaluationState, request: Any, answer: Reply) -> EvaluationState | None:
    after = state._replace(last=answer.index)
    match request:
        case DeleteEvaluation(id=found):
            may_delete = state.is_paused is not False and found in state.known
            return after._replace(known=state.known - {found}) if may_delete else None
        case PauseBroker(is_paused=is_paused):
            return after._replace(is_paused=is_paused)
        case EvaluateRequest() if not state.is_there:
            return None
        case _:
            return after._replace(is_there=True, known=state.known | {answer.body.id})


def _unknown(state: EvaluationState, request: Any) -> EvaluationState:
    match request:
        case DeleteEvaluation(id=found) if state.is_paused is not False:
            return state._replace(known=state.known - {found})
        case PauseBroker(is_paused=is_paused):
            return state._replace(is_paused=is_paused)
        case RegisterEvaluated():
            return state._replace(is_there=True)
        case _:
            return state


def _is_reason(state: EvaluationState, request: Any, text: str) -> bool:
    if isinstance(request, EvaluateRequest):
        return not state.is_there and "not found" in text
    if not isinstance(request, DeleteEvaluation):
        return False
    if "must be paused" in text:
        return not state.is_paused
    exists = request.id in state.known
    is_fitting = ("not found" in text and not exists) or ("not safe to delete" in text and exists)
    return is_fitting and state.is_paused is not False


class EvaluationKind:
    """The evaluations of a batch job with a count of 0."""

    name = "evaluations"

    def __init__(self) -> None:
        self.model = EvaluationModel()
        self._weights = (1, 4, 7, 4, 0, 0)

    def key(self, number: int) -> str:
        """A job id."""
        return f"evaluated-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        match request:
            case RegisterEvaluated(mark=mark):
                return put("/v1/jobs", {"Job": job_document(key, (0,), {"mark": mark})})
            case EvaluateRequest():
                return put(f"/v1/job/{key}/evaluate", {"JobID": key})
            case DeleteEvaluation(id=found):
                return put("/v1/evaluations", {"EvalIDs": [found]})._replace(method="DELETE")
            case PauseBroker(is_paused=is_paused):
                return put(SCHEDULER, {"PauseEvalBroker": is_paused})
            case ReadBroker():
                return PreparedRequest("GET", SCHEDULER)
            case _:
                return PreparedRequest("GET", f"/v1/evaluation/{request.id}")

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        if isinstance(request, ReadBroker):
            return document["SchedulerConfig"]["PauseEvalBroker"]
        return EvaluationBody(document["EvalID"]) if isinstance(request, RegisterEvaluated | EvaluateRequest) else None

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        bodies = [each.answer.body for each in past if each.answer is not None]
        known = [body.id for body in bodies if isinstance(body, EvaluationBody)]
        if not known:
            return RegisterEvaluated(mark)
        recent = rng.choice(known[-6:])
        requests = (
            RegisterEvaluated(mark), EvaluateRequest(), DeleteEvaluation(recent), ReadEvaluation(recent),
            PauseBroker(rng.random() < PAUSED_SHARE), ReadBroker(),
        )  # fmt: skip
        return rng.choices(requests, self._weights)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return ()

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return job_records(key)


class BrokerKind(EvaluationKind):
    """The evaluations of one job, and the pause of the cluster's broker; all operations form one history."""

    name = "paused broker"

    def __init__(self) -> None:
        super().__init__()
        self.model = EvaluationModel(owns_broker=True)
        self._weights = (1, 4, 7, 3, 5, 2)

    def key(self, number: int) -> str:
        """A fixed job id: a cluster has one broker."""
        return "evaluated-under-pause"

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadBroker(),)
