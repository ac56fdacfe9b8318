"""A policy and the token that holds it: requests, their uses, and their sequential behaviour."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.acl.tokens import DENIED, EXISTS, secret_of, token_document
from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.kinds import PreparedRequest, put
from yurt.testing.histories.log_index import NEVER, agrees, lowest, unknown_after

READS_NODES: Final = 'node { policy = "read" }'
READS_NOTHING: Final = 'node { policy = "deny" }'


class PutPolicy(Request, frozen=True):
    """PUT /v1/acl/policy/:name: the policy grants or denies reading nodes."""

    mark: str
    grants: bool


class DeletePolicy(Request, frozen=True):
    """DELETE /v1/acl/policy/:name."""


class PutHolder(Request, frozen=True):
    """PUT /v1/acl/token: the token that holds the policy."""

    mark: str


class RevokeHolder(Request, frozen=True):
    """DELETE /v1/acl/token/:accessor."""


class ReadPolicy(Read, frozen=True):
    """GET /v1/acl/policy/:name with a management token."""


class UsePolicy(Read, frozen=True):
    """GET /v1/nodes as the holder."""


class ShownPolicy(NamedTuple):
    """A policy in a body."""

    at: int
    mark: str


class PolicyState(NamedTuple):
    """A policy (`at` is NEVER when it does not exist), and whether its token exists."""

    at: int = NEVER
    mark: str = ""
    grants: bool = False
    has_holder: bool = False
    last: int = NEVER


class PolicyModel:
    """The sequential behaviour of a policy and of the rights that follow from it."""

    def initial(self) -> PolicyState:
        """Neither the policy nor the token exists."""
        return PolicyState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: PolicyState, request: Any, answer: Reply | None) -> PolicyState | None:
        """See `Model.step`."""
        low = max(state.last, lowest(state.at))
        if answer is None:
            return state if request.is_read else (_policy_after(state, request, unknown_after(low)) or state)
        if isinstance(request, UsePolicy):
            may = state.has_holder and state.at != NEVER and state.grants
            return state if may is not answer.is_refusal and answer.status in (200, DENIED) else None
        if isinstance(request, ReadPolicy):
            return _policy_shown(state, answer)
        if answer.is_refusal:
            is_raced = isinstance(request, PutHolder) and (EXISTS in str(answer.body)) is state.has_holder
            return state if is_raced or _policy_after(state, request, NEVER) is None else None
        after = _policy_after(state, request, answer.index) if answer.index > low else None
        return None if after is None else after._replace(last=answer.index)


def _policy_after(state: PolicyState, request: Any, at: int) -> PolicyState | None:
    """The state after a request; None when it must be refused."""
    match request:
        case PutPolicy(mark=mark, grants=grants):
            return state._replace(at=at, mark=mark, grants=grants)
        case DeletePolicy():
            low = max(state.last, lowest(state.at))
            return None if state.at == NEVER else PolicyState(has_holder=state.has_holder, last=low)
        case PutHolder():
            return state._replace(has_holder=True)
        case _:
            return state._replace(has_holder=False) if state.has_holder else None


def _policy_shown(state: PolicyState, answer: Reply) -> PolicyState | None:
    if answer.is_refusal:
        return state if answer.status == 404 and state.at == NEVER else None
    shown: ShownPolicy = answer.body
    is_same = state.at != NEVER and agrees(state.at, shown.at) and state.mark == shown.mark
    return state._replace(at=shown.at) if is_same else None


class PolicyKind:
    """A policy, and one token that holds it."""

    name = "ACL policy"

    def __init__(self) -> None:
        self.model = PolicyModel()

    def key(self, number: int) -> str:
        """A policy's name, which begins the ids of its holder."""
        return f"{number:08x}-policy"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at, holder = f"/v1/acl/policy/{key}", f"{key[:8]}-2222-4222-8222-00000000ac1d"
        match request:
            case PutPolicy(mark=mark, grants=grants):
                rules = READS_NODES if grants else READS_NOTHING
                return put(at, {"Name": key, "Description": mark, "Rules": rules})
            case DeletePolicy():
                return PreparedRequest("DELETE", at)
            case PutHolder(mark=mark):
                secret = {"SecretID": secret_of(holder)}
                return put("/v1/acl/token", token_document(holder, mark, (key,)) | secret)
            case RevokeHolder():
                return PreparedRequest("DELETE", f"/v1/acl/token/{holder}")
            case UsePolicy():
                return PreparedRequest("GET", "/v1/nodes?per_page=1", token=secret_of(holder))
            case _:
                return PreparedRequest("GET", at)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        is_policy = isinstance(request, ReadPolicy)
        return ShownPolicy(document["ModifyIndex"], document["Description"]) if is_policy else None

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        options: dict[str, Request] = {
            "grant": PutPolicy(mark, grants=True),
            "deny": PutPolicy(mark, grants=False),
            "delete": DeletePolicy(),
            "holder": PutHolder(mark),
            "revoke": RevokeHolder(),
            "read": ReadPolicy(),
            "use": UsePolicy(),
        }
        return options[rng.choices(list(_POLICY_CHOICES), list(_POLICY_CHOICES.values()))[0]]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadPolicy(), UsePolicy())

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return ()


_POLICY_CHOICES: Final = {"grant": 6, "deny": 4, "delete": 3, "holder": 6, "revoke": 2, "read": 4, "use": 14}
