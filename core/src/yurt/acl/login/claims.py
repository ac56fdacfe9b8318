"""Claim mappings: the claims of a token under the names that binding rules and token names use.

A mapping leads from a claim, or from a JSON pointer when it begins with "/", to a name. A claim that is missing or null
is left out. A claim that has no text (an object) ends the login: dropping it could make a condition with `not` hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from yurt.acl.login.refusals import not_accepted
from yurt.filters import MATCHED_TEXT_MAX
from yurt.structs.acl import ACLAuthMethodConfig

Claims = Mapping[str, object]
"""Decoded JSON."""

TEXT_MAX: Final = MATCHED_TEXT_MAX
"""The longest value, in characters; longer ones are refused, since selectors must not match a truncated value."""
ITEMS_MAX: Final = 1024
"""Items of one list."""


class MappedClaims(NamedTuple):
    """The claims that a login method uses."""

    values: Mapping[str, str]
    lists: Mapping[str, tuple[str, ...]]


def mapped_claims(config: ACLAuthMethodConfig, claims: Claims) -> MappedClaims:
    """The claims under their mapped names; raises PermissionDenied for one that cannot be read."""
    values: dict[str, str] = {}
    for claim, name in sorted(config.claim_mappings.items()):
        found = find_claim(claims, claim)
        if found is not None:
            values[name] = _text(claim, found)
    lists: dict[str, tuple[str, ...]] = {}
    for claim, name in sorted(config.list_claim_mappings.items()):
        found = find_claim(claims, claim)
        if found is not None:
            lists[name] = _texts(claim, found)
    return MappedClaims(values, lists)


def find_claim(claims: Claims, claim: str) -> object | None:
    """The value of a claim or at a JSON pointer; None when absent."""
    if not claim.startswith("/"):
        return claims.get(claim)
    found: object = claims
    for escaped in claim[1:].split("/"):
        step = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list):
            is_index = step.isascii() and step.isdigit() and len(step) < 6
            found = found[int(step)] if is_index and int(step) < len(found) else None
        else:
            return None
    return found


def _texts(claim: str, value: object) -> tuple[str, ...]:
    """A list of texts; one value is a list of one, and empty texts are dropped."""
    items = value if isinstance(value, list) else [value]
    if len(items) > ITEMS_MAX:
        raise not_accepted(f"claim '{claim}' has more than {ITEMS_MAX} items")
    return tuple(text for text in (_text(claim, item) for item in items) if text)


def _text(claim: str, value: object) -> str:
    match value:
        case str():
            text = value
        case bool():
            text = "true" if value else "false"
        case int() | float():
            text = _whole(claim, value)
        case list():
            text = msgspec.json.encode(value).decode()
        case _:
            kind = "null" if value is None else "object"
            raise not_accepted(f"error converting claim '{claim}' to string from unknown type {kind}")
    if len(text) > TEXT_MAX:
        raise not_accepted(f"claim '{claim}' is longer than {TEXT_MAX} characters")
    return text


def _whole(claim: str, number: float) -> str:
    try:
        return str(int(number))
    except (OverflowError, ValueError):
        raise not_accepted(f"claim '{claim}' is not a finite number") from None
