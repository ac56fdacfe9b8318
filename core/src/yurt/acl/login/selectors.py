"""Selectors of binding rules: filters over `value` (name to text) and `list` (name to texts)."""

from __future__ import annotations

from typing import Final

from yurt.acl.login.claims import MappedClaims
from yurt.filters import Predicate, Row, compile_filter

FIELDS: Final = frozenset({"value", "list"})


def compile_selector(selector: str) -> Predicate:
    """The compiled selector; an empty one matches all claims. Raises Invalid for an unreadable one."""
    return compile_filter(selector, fields=FIELDS)


def selector_row(claims: MappedClaims) -> Row:
    """Mapped claims as selectors see them."""
    return {"value": claims.values, "list": claims.lists}
