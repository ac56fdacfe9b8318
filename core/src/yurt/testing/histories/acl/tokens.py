"""A token: requests, its uses, and its sequential behaviour.

A use shows the secret of a token and asks for something that the token decides. It is a read of what access control
stores: after a revocation was answered, no use may succeed, and after a token was answered, none may fail.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.kinds import PreparedRequest, put
from yurt.testing.histories.log_index import NEVER, agrees, lowest, unknown_after

DENIED: Final = 403
EXISTS: Final = "exists"
"""What a refusal says where a token was made meanwhile."""


class PutToken(Request, frozen=True):
    """PUT /v1/acl/token with both ids: creates or changes the token."""

    mark: str


class ChangeToken(Request, frozen=True):
    """PUT /v1/acl/token/:accessor: changes the token."""

    mark: str


class RevokeToken(Request, frozen=True):
    """DELETE /v1/acl/token/:accessor."""


class ReadToken(Read, frozen=True):
    """GET /v1/acl/token/:accessor with a management token."""


class UseToken(Read, frozen=True):
    """GET /v1/acl/token/self with the token's own secret."""


class ShownToken(NamedTuple):
    """A token in a body."""

    at: int
    created: int
    mark: str


class TokenState(NamedTuple):
    """A token; `at` is NEVER when it does not exist."""

    at: int = NEVER
    created: int = NEVER
    mark: str = ""
    last: int = NEVER


class TokenModel:
    """The sequential behaviour of a token."""

    def initial(self) -> TokenState:
        """The token does not exist."""
        return TokenState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: TokenState, request: Any, answer: Reply | None) -> TokenState | None:
        """See `Model.step`."""
        low = max(state.last, lowest(state.at))
        if answer is None:
            return state if request.is_read else (_after(state, request, unknown_after(low)) or state)
        if answer.is_refusal:
            return state if _may_refuse(state, request, answer) else None
        if request.is_read:
            return _shown(state, answer.body)
        after = _after(state, request, answer.index) if answer.index > low else None
        if after is None or isinstance(request, RevokeToken):
            return None if after is None else after._replace(last=answer.index)
        return _shown(after._replace(last=answer.index), answer.body)


def _may_refuse(state: TokenState, request: Any, answer: Reply) -> bool:
    """Whether the state explains a refusal: the token does not exist, or two requests raced to create it."""
    is_there = state.at != NEVER
    if isinstance(request, UseToken):
        return answer.status == DENIED and not is_there
    if isinstance(request, PutToken) and EXISTS in str(answer.body):
        return is_there
    return answer.status in (400, 404, 500) and not is_there


def _after(state: TokenState, request: Any, at: int) -> TokenState | None:
    """The state after a request; None when it must be refused."""
    is_there = state.at != NEVER
    match request:
        case PutToken(mark=mark):
            return state._replace(at=at, created=state.created if is_there else at, mark=mark)
        case ChangeToken(mark=mark):
            return state._replace(at=at, mark=mark) if is_there else None
        case _:
            return TokenState(last=max(state.last, lowest(state.at))) if is_there else None


def _shown(state: TokenState, shown: ShownToken) -> TokenState | None:
    """The state, with the indexes of the answer filled in; None when the answer contradicts it."""
    is_same = agrees(state.at, shown.at) and agrees(state.created, shown.created) and shown.mark == state.mark
    return state._replace(at=shown.at, created=shown.created) if state.at != NEVER and is_same else None


class TokenKind:
    """A client token whose name is the mark."""

    name = "ACL token"

    def __init__(self) -> None:
        self.model = TokenModel()

    def key(self, number: int) -> str:
        """An accessor id."""
        return f"{number:08x}-0000-4000-8000-00000000ac1d"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at = f"/v1/acl/token/{key}"
        match request:
            case PutToken(mark=mark):
                return put("/v1/acl/token", token_document(key, mark) | {"SecretID": secret_of(key)})
            case ChangeToken(mark=mark):
                return put(at, token_document(key, mark))
            case RevokeToken():
                return PreparedRequest("DELETE", at)
            case UseToken():
                return PreparedRequest("GET", "/v1/acl/token/self", token=secret_of(key))
            case _:
                return PreparedRequest("GET", at)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        return None if document is None else _token_of(document)

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        options: dict[str, Request] = {
            "put": PutToken(mark),
            "change": ChangeToken(mark),
            "revoke": RevokeToken(),
            "read": ReadToken(),
            "use": UseToken(),
        }
        return options[rng.choices(list(_TOKEN_CHOICES), list(_TOKEN_CHOICES.values()))[0]]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadToken(), UseToken())

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return ()


_TOKEN_CHOICES: Final = {"put": 6, "change": 4, "revoke": 6, "read": 4, "use": 12}


def secret_of(key: str) -> str:
    """The secret of an object's token."""
    return f"{key[:8]}-1111-4111-8111-00005ec2e700"


def token_document(accessor_id: str, mark: str, policies: Sequence[str] = ("none",)) -> dict[str, Any]:
    """A client token as a body."""
    return {"AccessorID": accessor_id, "Name": mark, "Type": "client", "Policies": list(policies)}


def _token_of(document: Any) -> ShownToken:
    return ShownToken(document["ModifyIndex"], document["CreateIndex"], document["Name"])
