"""Roles and binding rules, rows whose ids the servers choose: requests, and their sequential behaviour.

A role's name has one role at a time; binding rules have no names, so each creation makes another one. A creation of
unknown outcome leaves a role whose id no answer showed, or a rule that nobody asks about.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.kinds import PreparedRequest, put
from yurt.testing.histories.log_index import NEVER, agrees, lowest, unknown_after

UNTOLD: Final = "?"
"""The id of a row that no answer showed."""
EXISTS: Final = "already exists"
PREREQUISITE: Final = "prerequisite"
"""The policy that roles give, and the login method that binding rules belong to."""


class CreateRow(Request, frozen=True):
    """PUT /v1/acl/role, or /v1/acl/binding-rule."""

    mark: str


class ChangeRow(Request, frozen=True):
    """PUT with the id in the path."""

    id: str
    mark: str


class DeleteRow(Request, frozen=True):
    """DELETE with the id in the path."""

    id: str


class ReadRow(Read, frozen=True):
    """GET with the id in the path."""

    id: str


class ReadNamed(Read, frozen=True):
    """GET /v1/acl/role/name/:name."""


class AclRow(NamedTuple):
    """A row in a state or in an answer."""

    id: str
    at: int
    created: int
    mark: str


class RowsState(NamedTuple):
    """The rows of one object, by id."""

    rows: tuple[AclRow, ...] = ()
    last: int = NEVER

    @property
    def low(self) -> int:
        """A lower bound for the index of the next change."""
        return max((self.last, *(lowest(row.at) for row in self.rows)))

    def row(self, row_id: str) -> AclRow | None:
        """The row with this id."""
        return next((row for row in self.rows if row.id == row_id), None)

    def with_row(self, row: AclRow, *, instead_of: str) -> RowsState:
        """The state with a row in the place of the one with that id."""
        return self._replace(rows=tuple(sorted((*(each for each in self.rows if each.id != instead_of), row))))

    def without(self, row_id: str) -> RowsState:
        """The state without a row."""
        return RowsState(tuple(row for row in self.rows if row.id != row_id), self.low)


class RowsModel:
    """The sequential behaviour of rows whose ids the servers choose."""

    def __init__(self, *, is_named: bool) -> None:
        """`is_named`: names are unique, so that at most one row exists at a time."""
        self._is_named = is_named

    def initial(self) -> RowsState:
        """No row exists."""
        return RowsState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: RowsState, request: Any, answer: Reply | None) -> RowsState | None:
        """See `Model.step`."""
        if answer is None:
            return state if request.is_read else self._unknown(state, request)
        if answer.is_refusal:
            return state if self._may_refuse(state, request, answer) else None
        if request.is_read:
            return _shown(state, answer.body, row_id=getattr(request, "id", ""))
        if answer.index <= state.low:
            return None
        match request:
            case CreateRow(mark=mark):
                is_possible = not (self._is_named and state.rows) and state.row(answer.body.id) is None
                made = AclRow(answer.body.id, answer.index, answer.index, mark)
                after = state.with_row(made, instead_of=made.id) if is_possible and answer.body == made else None
            case ChangeRow(id=row_id, mark=mark):
                known = state.row(row_id)
                changed = None if known is None else known._replace(at=answer.index, mark=mark)
                after = None
                if changed is not None and agrees(changed.created, answer.body.created):
                    changed = changed._replace(created=answer.body.created)
                    after = state.with_row(changed, instead_of=row_id) if answer.body == changed else None
            case _:
                after = state.without(request.id) if state.row(request.id) is not None else None
        return None if after is None else after._replace(last=answer.index)

    def _may_refuse(self, state: RowsState, request: Any, answer: Reply) -> bool:
        """Whether the state explains a refusal: the name is taken or the row does not exist."""
        match request:
            case CreateRow():
                return self._is_named and bool(state.rows) and EXISTS in str(answer.body)
            case ReadNamed():
                return answer.status == 404 and not state.rows
        return answer.status in (400, 404, 500) and state.row(request.id) is None

    def _unknown(self, state: RowsState, request: Any) -> RowsState:
        """The state after a change that took effect although no client learned its outcome."""
        at = unknown_after(state.low)
        match request:
            case CreateRow(mark=mark):
                is_asked_about = self._is_named and not state.rows
                return state.with_row(AclRow(UNTOLD, at, at, mark), instead_of=UNTOLD) if is_asked_about else state
            case ChangeRow(id=row_id, mark=mark):
                known = state.row(row_id)
                return state if known is None else state.with_row(known._replace(at=at, mark=mark), instead_of=row_id)
        return state.without(request.id) if state.row(request.id) is not None else state


def _shown(state: RowsState, shown: AclRow, *, row_id: str) -> RowsState | None:
    """The state, with the index and id of the answer filled in; None when the answer contradicts it."""
    known = state.row(shown.id) or state.row(UNTOLD)
    if known is None or shown.id != (row_id or shown.id) or known.mark != shown.mark:
        return None
    is_same = agrees(known.at, shown.at) and agrees(known.created, shown.created)
    return state.with_row(shown, instead_of=known.id) if is_same else None


class RowKind:
    """Roles or binding rules whose description is the mark."""

    def __init__(self, name: str, path: str, document: Callable[[str, str], dict[str, Any]], *, is_named: bool) -> None:
        """`document` makes a body without an id from a name and a mark."""
        self.name = name
        self.model = RowsModel(is_named=is_named)
        self._path = path
        self._document = document
        self._is_named = is_named

    def key(self, number: int) -> str:
        """A name."""
        return f"{self._path}-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at = f"/v1/acl/{self._path}"
        match request:
            case CreateRow(mark=mark):
                return put(at, self._document(key, mark))
            case ChangeRow(id=row_id, mark=mark):
                return put(f"{at}/{row_id}", self._document(key, mark) | {"ID": row_id})
            case DeleteRow(id=row_id):
                return PreparedRequest("DELETE", f"{at}/{row_id}")
            case ReadRow(id=row_id):
                return PreparedRequest("GET", f"{at}/{row_id}")
            case _:
                return PreparedRequest("GET", f"{at}/name/{key}")

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        if document is None:
            return None
        return AclRow(document["ID"], document["ModifyIndex"], document["CreateIndex"], document["Description"])

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        bodies = [each.answer.body for each in past if each.answer is not None]
        known = list(dict.fromkeys(body.id for body in bodies if isinstance(body, AclRow)))
        if not known:
            return CreateRow(mark)
        row_id = known[-1] if rng.random() < _LATEST else rng.choice(known)
        requests: list[Request] = [CreateRow(mark), ChangeRow(row_id, mark), DeleteRow(row_id), ReadRow(row_id)]
        if self._is_named:
            requests[-1] = rng.choice((ReadRow(row_id), ReadNamed()))
        return rng.choices(requests, _WEIGHTS)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadNamed(),) if self._is_named else ()

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return (f"/v1/acl/{self._path}s",)


def role_kind() -> RowKind:
    """Roles."""
    return RowKind("ACL role", "role", _role, is_named=True)


def binding_rule_kind() -> RowKind:
    """Binding rules."""
    return RowKind("ACL binding rule", "binding-rule", _binding_rule, is_named=False)


def _role(name: str, mark: str) -> dict[str, Any]:
    return {"Name": name, "Description": mark, "Policies": [{"Name": PREREQUISITE}]}


def _binding_rule(name: str, mark: str) -> dict[str, Any]:
    return {"AuthMethod": PREREQUISITE, "Description": mark, "BindType": "policy", "BindName": name}


_WEIGHTS: Final = (4, 4, 3, 5)
_LATEST: Final = 0.8
