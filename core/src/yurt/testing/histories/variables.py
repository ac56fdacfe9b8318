"""A variable with its lock: requests, and their sequential behaviour.

Locks last a day, so that none ends by itself while a history is recorded. A refusal with a JSON body (409) shows the
variable that was the reason.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.kinds import PreparedRequest, latest_index, put
from yurt.testing.histories.log_index import NEVER, agrees, lowest, unknown_after

TTL: Final = "24h"
UNTOLD: Final = "?"
"""The id of a lock that the server chose and no answer showed: no request names it."""


class Put(Request, frozen=True):
    """PUT /v1/var/:path with items; optionally with a check-and-set index (`cas`) or under a lock."""

    mark: str
    cas: int | None = None
    lock: str = ""


class Delete(Request, frozen=True):
    """DELETE /v1/var/:path."""

    cas: int | None = None


class Acquire(Request, frozen=True):
    """PUT ?lock-acquire; without a lock id the server creates one, without a mark the items stay."""

    mark: str = ""
    lock: str = ""


class Release(Request, frozen=True):
    """PUT ?lock-release."""

    lock: str


class Renew(Read, frozen=True):
    """PUT ?lock-renew, which changes no object."""

    lock: str


class ReadVariable(Read, frozen=True):
    """GET /v1/var/:path."""


class ShownVariable(NamedTuple):
    """A variable in a body; index 0 means that it does not exist."""

    at: int
    created: int
    mark: str
    lock: str = ""


class VariableState(NamedTuple):
    """A variable; `at` is NEVER when it does not exist."""

    at: int = NEVER
    created: int = NEVER
    mark: str = ""
    lock: str = ""
    last: int = NEVER


class VariableModel:
    """The sequential behaviour of a variable."""

    def initial(self) -> VariableState:
        """The variable does not exist."""
        return VariableState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index, which is the variable's own."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: VariableState, request: Any, answer: Reply | None) -> VariableState | None:
        """See `Model.step`."""
        if answer is None:
            found = state if request.is_read else _possible(state, request)
            return state if found is None or request.is_read else _after(found, request, unknown_after(_low(state)))
        if answer.is_refusal:
            return _refused(state, request, answer)
        if request.is_read:
            return _read(state, request, answer)
        found = _possible(state, request)
        if found is None or answer.index <= _low(found):
            return None
        after = _after(found, request, answer.index)._replace(last=answer.index)
        return after if isinstance(request, Delete) else _shown(after, _told(request, answer.body, after))


def _low(state: VariableState) -> int:
    return max(state.last, lowest(state.at))


def _possible(state: VariableState, request: Any) -> VariableState | None:
    """The state that meets the request's condition; None when no such state is possible."""
    if isinstance(request, Release):
        return state if state.lock and state.lock == request.lock else None
    if isinstance(request, Acquire):
        return state if not state.lock or state.lock == (request.lock or None) else None
    if state.lock != getattr(request, "lock", ""):
        return None
    if request.cas is None:
        return state
    return state._replace(at=request.cas) if agrees(state.at, request.cas) else None


def _after(state: VariableState, request: Any, at: int) -> VariableState:
    if isinstance(request, Delete):
        return VariableState(last=_low(state))
    created = at if state.at == NEVER else state.created
    written = state._replace(at=at, created=created)
    match request:
        case Put(mark=mark):
            return written._replace(mark=mark)
        case Acquire(mark=mark, lock=lock):
            return written._replace(mark=mark or state.mark, lock=lock or UNTOLD)
        case _:
            return written._replace(lock="")


def _shown(state: VariableState, shown: ShownVariable) -> VariableState | None:
    """The state, with the indexes and lock of the answer filled in; None when the answer contradicts it."""
    if state.at == NEVER:
        return state if shown.at == NEVER else None
    is_same = agrees(state.at, shown.at) and agrees(state.created, shown.created) and shown.mark == state.mark
    if not is_same or (shown.lock and state.lock not in (shown.lock, UNTOLD)):
        return None
    return state._replace(at=shown.at, created=shown.created, lock=shown.lock or state.lock)


def _told(request: Any, shown: ShownVariable, after: VariableState) -> ShownVariable:
    """What an answer tells; that to the release of a lock has no items."""
    return shown._replace(mark=after.mark) if isinstance(request, Release) and not shown.mark else shown


def _read(state: VariableState, request: Any, answer: Reply) -> VariableState | None:
    if isinstance(request, Renew):
        return state if state.lock == request.lock and agrees(state.at, answer.index) else None
    if state.at == NEVER or answer.index != answer.body.at:
        return None
    return _shown(state, answer.body)


def _refused(state: VariableState, request: Any, answer: Reply) -> VariableState | None:
    if answer.status == 404:
        return state if state.at == NEVER and isinstance(request, ReadVariable | Renew | Release) else None
    if answer.status != 409 or isinstance(request, ReadVariable):
        return None
    found = _shown(state, answer.body)
    if found is None:
        return None
    if isinstance(request, Renew):
        return found if found.lock != request.lock else None
    return found if _possible(found, request) is None else None


class VariableKind:
    """A variable of the default namespace."""

    name = "variable"

    def __init__(self) -> None:
        self.model = VariableModel()

    def key(self, number: int) -> str:
        """A path."""
        return f"histories/{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at = f"/v1/var/{key}"
        match request:
            case Put(mark=mark, cas=cas, lock=lock):
                stored = {"Lock": {"ID": lock}} if lock else {}
                return put(at if cas is None else f"{at}?cas={cas}", {"Path": key, "Items": {"mark": mark}, **stored})
            case Delete(cas=cas):
                return PreparedRequest("DELETE", at if cas is None else f"{at}?cas={cas}")
            case Acquire(mark=mark, lock=lock):
                lock_fields = {"TTL": TTL, "LockDelay": "0s"} | ({"ID": lock} if lock else {})
                items = {"Items": {"mark": mark}} if mark else {}
                return put(f"{at}?lock-acquire", {"Path": key, "Lock": lock_fields, **items})
            case Release(lock=lock):
                return put(f"{at}?lock-release", {"Path": key, "Lock": {"ID": lock}})
            case Renew(lock=lock):
                return put(f"{at}?lock-renew", {"Path": key, "Lock": {"ID": lock}})
            case _:
                return PreparedRequest("GET", at)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        if document is None or (isinstance(request, Delete) and "ModifyIndex" not in document):
            return None
        lock, items = document.get("Lock") or {}, document.get("Items") or {}
        return ShownVariable(
            document["ModifyIndex"], document["CreateIndex"], items.get("mark", ""), (lock or {}).get("ID", "")
        )

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        kind = rng.choices(list(_CHOICES), list(_CHOICES.values()))[0]
        index, lock = latest_index(past, rng), _lock_of(past)
        fresh = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        options: dict[str, Request] = {
            "put": Put(mark),
            "put new": Put(mark, cas=0),
            "put over": Put(mark, cas=index),
            "put locked": Put(mark, lock=lock or fresh),
            "delete": Delete(),
            "delete over": Delete(cas=index),
            "acquire": Acquire(mark if rng.random() < 0.5 else "", fresh if rng.random() < 0.5 else ""),
            "release": Release(lock or fresh),
            "renew": Renew(lock or fresh),
            "read": ReadVariable(),
        }
        return options[kind]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadVariable(),)

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return ()


_CHOICES: Final = {
    "put": 8, "put new": 10, "put over": 14, "put locked": 8, "delete": 5, "delete over": 5, "acquire": 4,
    "release": 10, "renew": 3, "read": 12,
}  # fmt: skip


def _lock_of(past: Sequence[Operation]) -> str:
    """The id of the lock that was answered last."""
    for each in reversed(past[-24:]):
        body = each.answer.body if each.answer is not None else None
        if isinstance(body, ShownVariable) and body.lock:
            return body.lock
    return ""
