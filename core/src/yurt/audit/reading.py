"""Reads from an audit log the needs of a token's requests, from which a policy can be suggested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from yurt.access import ANYWHERE, Need, Scope
from yurt.access.need_texts import parse_need
from yurt.access.needs import MANAGEMENT, EachRow, is_scoped
from yurt.audit.settings import COMPLETE
from yurt.sdk.errors import Invalid

EVERYWHERE: Final = "*"


class AuditedDecision(NamedTuple):
    """A decision as recorded in a line."""

    need: Need
    scope: Scope
    is_allowed: bool


class AuditedLine(NamedTuple):
    """One completed request, from which a policy can be derived."""

    accessor_id: str
    operation: str
    endpoint: str
    namespace: str
    is_refused: bool
    decisions: tuple[AuditedDecision, ...]
    omitted: int


class Needs(NamedTuple):
    """The needs of a token's requests."""

    requests: int
    needs: tuple[tuple[Need, Scope], ...]
    unplaced: tuple[str, ...]
    """Requests about a missing object: its location, and so the need, is unknown."""
    omitted: int
    """Decisions that the log does not hold because one request had too many."""


def read_lines(lines: Iterable[str]) -> Iterator[AuditedLine]:
    """The completed requests; raises Invalid with the number of a line that is not from an audit log."""
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            payload = msgspec.json.decode(text)["payload"]
            if payload["stage"] == COMPLETE:
                yield _line(payload)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, Invalid) as error:
            why = str(error) if isinstance(error, Invalid) else "it is not a line of an audit log"
            raise Invalid(f"line {number}: {why}") from None


def callers(lines: Iterable[AuditedLine]) -> Counter[str]:
    """The number of requests by accessor id."""
    return Counter(line.accessor_id for line in lines)


def needs_of(lines: Iterable[AuditedLine], accessor_id: str, *, with_refused: bool = False) -> Needs:
    """The needs of a token's requests: the satisfied ones, and with `with_refused` also the others."""
    found: dict[tuple[Need, Scope], None] = {}
    unplaced: dict[str, None] = {}
    requests = omitted = 0
    for line in lines:
        if line.accessor_id != accessor_id or (line.is_refused and not with_refused):
            continue
        requests += 1
        omitted += line.omitted
        for need, scope in _needs(line, with_refused):
            if scope is None:
                unplaced[f"{line.operation} {line.endpoint}"] = None
            else:
                found[need, scope] = None
    return Needs(requests, tuple(found), tuple(unplaced), omitted)


def _needs(line: AuditedLine, with_refused: bool) -> Iterator[tuple[Need, Scope | None]]:
    """The needs with their scopes; None where no decision recorded the object's location."""
    counted = [each for each in line.decisions if each.is_allowed or (with_refused and line.is_refused)]
    placed = {each.need for each in counted if each.scope != ANYWHERE}
    for at, (need, scope, _) in enumerate(counted):
        if need == MANAGEMENT and at > 0:
            continue  # The handler looked whether it may show more, which a management token may.
        if scope != ANYWHERE or not is_scoped(need) or isinstance(need, EachRow):
            yield need, scope
        elif need not in placed:
            yield need, (ANYWHERE if line.namespace == EVERYWHERE else None)


def _line(payload: Mapping[str, Any]) -> AuditedLine:
    asked = payload["request"]
    return AuditedLine(
        accessor_id=str(payload["auth"]["accessor_id"]),
        operation=str(asked["operation"]),
        endpoint=str(asked["endpoint"]),
        namespace=str(asked["namespace"]["id"]),
        is_refused=payload["response"]["result"] == "refused",
        decisions=tuple(map(_decision, payload["decisions"])),
        omitted=int(payload.get("decisions_omitted", 0)),
    )


def _decision(made: Mapping[str, Any]) -> AuditedDecision:
    places = {name: str(made[name]) for name in Scope._fields if made.get(name) is not None}
    return AuditedDecision(parse_need(str(made["need"])), Scope(**places), bool(made["allowed"]))
