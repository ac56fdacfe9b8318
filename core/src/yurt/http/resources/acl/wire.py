"""Shared bodies and answers of access control routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from yurt.api.encode import to_wire
from yurt.api.times import parse_rfc3339
from yurt.http.errors import Refused
from yurt.sdk.errors import Conflict, Invalid
from yurt.sdk.value import duration_text
from yurt.server.resources.acl_tokens import MadeToken
from yurt.structs.acl import ANONYMOUS, ACLAuthMethod, ACLToken

T = TypeVar("T")
RoleName = Callable[[str], str]
"""The name of a role by its id; "" for one that does not exist."""

ANONYMOUS_TOKEN: Final = ACLToken(accessor_id=ANONYMOUS, name="Anonymous Token", policies=(ANONYMOUS,))


async def refused(work: Awaitable[T]) -> T:
    """Await an operation; its refusal becomes 400 with its text."""
    try:
        return await work
    except (Invalid, Conflict) as error:
        raise Refused(400, str(error), reason=error.reason) from error


def token_wire(token: ACLToken, role_name: RoleName, *, secret: str) -> dict[str, Any]:
    """A token as the API shows it; links to deleted roles are omitted."""
    wire: dict[str, Any] = stub_wire(token, role_name)
    wire["SecretID"] = secret
    if token.expiration_ttl:
        wire["ExpirationTTL"] = duration_text(token.expiration_ttl)
    return wire


def made_wire(made: MadeToken) -> dict[str, Any]:
    """A new or changed token as it was stored, with its secret and the names that its roles had then."""
    return token_wire(made.token, lambda role_id: made.role_names.get(role_id, ""), secret=made.secret)


def stub_wire(token: ACLToken, role_name: RoleName) -> dict[str, Any]:
    """A token in a list."""
    wire: dict[str, Any] = to_wire(token)
    del wire["ExpirationTTL"]
    if not token.expiration_time:
        del wire["ExpirationTime"]
    named = [(link.id, role_name(link.id)) for link in token.roles]
    wire["Roles"] = [{"ID": role_id, "Name": name} for role_id, name in named if name] or None
    return wire


def method_wire(method: ACLAuthMethod) -> dict[str, Any]:
    """A login method as the API shows it: durations as texts."""
    wire: dict[str, Any] = to_wire(method)
    wire["MaxTokenTTL"] = duration_text(method.max_token_ttl)
    config = wire["Config"]
    for name in ("ExpirationLeeway", "NotBeforeLeeway", "ClockSkewLeeway") if config else ():
        config[name] = duration_text(config[name])
    return wire


def time_of(value: str | None, name: str) -> int:
    """A time of a body; raises Refused."""
    try:
        return parse_rfc3339(value) if value else 0
    except ValueError as error:
        raise Refused(400, f"{name}: {error}") from None
