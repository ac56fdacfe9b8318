"""A parameterized job and its children: requests, and their sequential behaviour.

Each dispatch gives its child a mark of its own, so a list of children tells which dispatches made one. An idempotency
token has one child as long as that child is known, whichever dispatch made it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.job_requests import job_document
from yurt.testing.histories.kinds import PreparedRequest, job_records, put
from yurt.testing.histories.log_index import NEVER, agrees, unknown_after

TOKENS: Final = ("one", "two", "three")


class RegisterParent(Request, frozen=True):
    """PUT /v1/jobs."""

    mark: str


class StopParent(Request, frozen=True):
    """DELETE /v1/job/:id; the children remain."""

    purge: bool


class Dispatch(Request, frozen=True):
    """PUT /v1/job/:id/dispatch."""

    mark: str
    token: str = ""


class ReadChildren(Read, frozen=True):
    """GET /v1/jobs with the children's prefix."""


class Dispatched(NamedTuple):
    """The body of a dispatch: the child, its index, and whether this dispatch created it."""

    child: str
    at: int
    is_new: bool


class DispatchedChild(NamedTuple):
    """A dispatched job; `name` is "" until an answer shows its id."""

    mark: str
    token: str
    name: str
    at: int


class ParentState(NamedTuple):
    """The parent (None: it does not exist), whether it is stopped, and its children."""

    is_stopped: bool | None = None
    children: frozenset[DispatchedChild] = frozenset()
    last: int = NEVER


class DispatchModel:
    """The sequential behaviour of a parameterized job."""

    def initial(self) -> ParentState:
        """The job does not exist."""
        return ParentState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index, unless an idempotency token matched and nothing was written."""
        if answer.is_refusal or request.is_read:
            return None
        is_found = isinstance(answer.body, Dispatched) and not answer.body.is_new
        return None if is_found else answer.index

    def step(self, state: ParentState, request: Any, answer: Reply | None) -> ParentState | None:
        """See `Model.step`."""
        if isinstance(request, ReadChildren):
            return state if answer is None else _listed(state, answer)
        if answer is None:
            after = _after(state, request, "", unknown_after(state.last))
            return state if after is None else after
        if answer.is_refusal:
            return state if isinstance(request, Dispatch) and _may_refuse(state, str(answer.body)) else None
        if isinstance(request, Dispatch):
            return _dispatched(state, request, answer)
        after = _after(state, request, "", answer.index) if answer.index > state.last else None
        return None if after is None else after._replace(last=answer.index)


def _may_refuse(state: ParentState, text: str) -> bool:
    return (state.is_stopped is None and "not found" in text) or (state.is_stopped is True and "stopped" in text)


def _child_of(state: ParentState, token: str) -> DispatchedChild | None:
    return next((each for each in state.children if token and each.token == token), None)


def _after(state: ParentState, request: Any, name: str, at: int) -> ParentState | None:
    match request:
        case RegisterParent():
            return state._replace(is_stopped=False)
        case StopParent(purge=purge):
            return state._replace(is_stopped=None if purge or state.is_stopped is None else True)
        case Dispatch(mark=mark, token=token):
            if state.is_stopped is not False or _child_of(state, token) is not None:
                return None
            return state._replace(children=state.children | {DispatchedChild(mark, token, name, at)})
        case _:
            return None


def _dispatched(state: ParentState, request: Dispatch, answer: Reply) -> ParentState | None:
    reply: Dispatched = answer.body
    known = _child_of(state, request.token)
    if state.is_stopped is not False:
        return None
    if known is not None or not reply.is_new:
        is_same = (
            known is not None and not reply.is_new and known.name in ("", reply.child) and agrees(known.at, reply.at)
        )
        return _renamed(state, known, reply.child, reply.at) if known is not None and is_same else None
    is_new = all(each.name != reply.child for each in state.children)
    if not is_new or reply.at != answer.index or answer.index <= state.last:
        return None
    after = _after(state, request, reply.child, answer.index)
    return None if after is None else after._replace(last=answer.index)


def _renamed(state: ParentState, child: DispatchedChild, name: str, at: int) -> ParentState:
    return state._replace(children=state.children - {child} | {child._replace(name=name, at=at)})


def _listed(state: ParentState, answer: Reply) -> ParentState | None:
    if answer.is_refusal:
        return None
    shown: dict[str, tuple[str, int]] = answer.body
    if len(shown) != len(state.children):
        return None
    for each in state.children:
        name, at = shown.get(each.mark, ("", NEVER))
        if each.name not in ("", name) or not agrees(each.at, at):
            return None
        state = _renamed(state, each, name, at)
    return state


class DispatchKind:
    """A parameterized batch job."""

    name = "parameterized job"

    def __init__(self) -> None:
        self.model = DispatchModel()

    def key(self, number: int) -> str:
        """A job id."""
        return f"parent-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at = f"/v1/job/{key}"
        match request:
            case RegisterParent(mark=mark):
                options = {"ParameterizedJob": {"MetaOptional": ["mark"]}}
                return put("/v1/jobs", {"Job": job_document(key, (1,), {"version": mark}, **options)})
            case StopParent(purge=purge):
                return PreparedRequest("DELETE", f"{at}?purge=true" if purge else at)
            case Dispatch(mark=mark, token=token):
                asked = f"?idempotency_token={token}" if token else ""
                return put(f"{at}/dispatch{asked}", {"Meta": {"mark": mark}})
            case _:
                return PreparedRequest("GET", f"/v1/jobs?meta=true&prefix={key}/dispatch-")

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        if isinstance(request, Dispatch):
            return Dispatched(document["DispatchedJobID"], document["JobCreateIndex"], bool(document["EvalID"]))
        if isinstance(request, ReadChildren):
            return {row["Meta"]["mark"]: (row["ID"], row["CreateIndex"]) for row in document}
        return None

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        kind = rng.choices(list(_CHOICES), list(_CHOICES.values()))[0]
        options: dict[str, Request] = {
            "register": RegisterParent(mark),
            "stop": StopParent(purge=False),
            "purge": StopParent(purge=True),
            "dispatch": Dispatch(mark),
            "dispatch once": Dispatch(mark, rng.choice(TOKENS)),
            "read": ReadChildren(),
        }
        return RegisterParent(mark) if not past else options[kind]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadChildren(),)

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return job_records(key)


_CHOICES: Final = {"register": 6, "stop": 3, "purge": 1, "dispatch": 4, "dispatch once": 12, "read": 5}
