"""The evaluations of a job, which are made, end by themselves, and are deleted by hand: requests and behaviour.

Whether an evaluation has ended yet is not modelled: one that exists may be called not safe to delete at any time. What
was deleted does not come back, and is deleted once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.job_requests import job_document
from yurt.testing.histories.kinds import PreparedRequest, job_records, put
from yurt.testing.histories.log_index import NEVER


class RegisterEvaluated(Request, frozen=True):
    """PUT /v1/jobs: an evaluation comes of it."""

    mark: str


class EvaluateRequest(Request, frozen=True):
    """PUT /v1/job/:id/evaluate."""


class DeleteEvaluation(Request, frozen=True):
    """DELETE /v1/evaluations with one id."""

    id: str


class ReadEvaluation(Read, frozen=True):
    """GET /v1/evaluation/:id."""

    id: str


class EvaluationBody(NamedTuple):
    """The body of a request that made an evaluation."""

    id: str


class EvaluationState(NamedTuple):
    """Whether there is a job, and the evaluations that somebody was told of and that exist."""

    is_there: bool = False
    known: frozenset[str] = frozenset()
    last: int = NEVER


class EvaluationModel:
    """The sequential behaviour of evaluations."""

    def initial(self) -> EvaluationState:
        """There is no job."""
        return EvaluationState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: EvaluationState, request: Any, answer: Reply | None) -> EvaluationState | None:
        """See `Model.step`."""
        if answer is None:
            return state if request.is_read else _unknown(state, request)
        exists = getattr(request, "id", "") in state.known
        if isinstance(request, ReadEvaluation):
            return state if exists == (not answer.is_refusal) else None
        if answer.is_refusal:
            return state if _is_reason(state, request, str(answer.body), exists=exists) else None
        if answer.index <= state.last:
            return None
        if isinstance(request, DeleteEvaluation):
            return state._replace(known=state.known - {request.id}, last=answer.index) if exists else None
        if isinstance(request, EvaluateRequest) and not state.is_there:
            return None
        return EvaluationState(True, state.known | {answer.body.id}, answer.index)


def _unknown(state: EvaluationState, request: Any) -> EvaluationState:
    if isinstance(request, DeleteEvaluation):
        return state._replace(known=state.known - {request.id})
    return state._replace(is_there=True) if isinstance(request, RegisterEvaluated) else state


def _is_reason(state: EvaluationState, request: Any, text: str, *, exists: bool) -> bool:
    if isinstance(request, DeleteEvaluation):
        return ("not found" in text and not exists) or ("not safe to delete" in text and exists)
    return isinstance(request, EvaluateRequest) and not state.is_there and "not found" in text


class EvaluationKind:
    """The evaluations of a batch job that wants no allocation."""

    name = "evaluations"

    def __init__(self) -> None:
        self.model = EvaluationModel()

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
            case _:
                return PreparedRequest("GET", f"/v1/evaluation/{request.id}")

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        return EvaluationBody(document["EvalID"]) if isinstance(request, RegisterEvaluated | EvaluateRequest) else None

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        bodies = [each.answer.body for each in past if each.answer is not None]
        known = [body.id for body in bodies if isinstance(body, EvaluationBody)]
        if not known:
            return RegisterEvaluated(mark)
        recent = rng.choice(known[-6:])
        requests = (RegisterEvaluated(mark), EvaluateRequest(), DeleteEvaluation(recent), ReadEvaluation(recent))
        return rng.choices(requests, _WEIGHTS)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return ()

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return job_records(key)


_WEIGHTS: Final = (1, 4, 7, 4)
