"""A login method; PUT creates or changes the row of its name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from yurt.testing.histories.acl.roles import PREREQUISITE
from yurt.testing.histories.acl.tokens import PutToken, ReadToken, RevokeToken, ShownToken, TokenModel
from yurt.testing.histories.history import Operation, Request
from yurt.testing.histories.kinds import PreparedRequest, put


def method_document(name: str, mark: str) -> dict[str, Any]:
    """A login method as a request body; its token name format contains the mark."""
    config = {"OIDCDiscoveryURL": "https://id.example", "OIDCClientID": "yurt", "OIDCClientSecret": mark}
    return {
        "Name": name, "Type": "OIDC", "TokenLocality": "local", "MaxTokenTTL": "1h",
        "TokenNameFormat": f"{mark}-${{auth_method_name}}", "Config": config,
    }  # fmt: skip


def prerequisites() -> tuple[PreparedRequest, ...]:
    """Requests with a management token that must succeed before the first one on roles or binding rules."""
    policy = {"Name": PREREQUISITE, "Rules": 'node { policy = "read" }'}
    return (
        put(f"/v1/acl/policy/{PREREQUISITE}", policy),
        put("/v1/acl/auth-method", method_document(PREREQUISITE, "m")),
    )


class AuthMethodKind:
    """A login method by OIDC."""

    name = "ACL auth method"

    def __init__(self) -> None:
        self.model = TokenModel()

    def key(self, number: int) -> str:
        """A name."""
        return f"method-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at = f"/v1/acl/auth-method/{key}"
        match request:
            case PutToken(mark=mark):
                return put("/v1/acl/auth-method", method_document(key, mark))
            case RevokeToken():
                return PreparedRequest("DELETE", at)
            case _:
                return PreparedRequest("GET", at)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        if document is None:
            return None
        mark = document["TokenNameFormat"].partition("-")[0]
        return ShownToken(document["ModifyIndex"], document["CreateIndex"], mark)

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        return rng.choices((PutToken(mark), RevokeToken(), ReadToken()), _WEIGHTS)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadToken(),)

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return ("/v1/acl/auth-methods",)


_WEIGHTS: Final = (6, 4, 6)
