"""Warns of texts that were probably meant as a variable of the file.

`"${image}"` and `"var.image"` are valid where the file declares `image`: the first is left to the node, the second is
plain text. So these are warnings. They come from the tree, where comments are gone and each name has its scope.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from yurt_jobspec.diagnostics import OffsetDiagnostic
from yurt_jobspec.findings import MAX_FINDINGS

from .nodes import (
    BlockNode,
    Body,
    Embedded,
    For,
    LiteralValue,
    RootVariable,
    TemplateExpr,
    TemplateFor,
    TemplateIf,
    Wrap,
)

_LOOKALIKE = re.compile(r"\$\{\s*([A-Za-z_][\w-]*)\s*\}|(?:var|local)\.([A-Za-z_][\w-]*)")
_QUOTED = re.compile(r"(var|local)\.([A-Za-z_][\w-]*)")

Scopes = Mapping[str, Mapping[str, object]]
"""The names of `var` and of `local`."""


class _Visit(NamedTuple):
    """A part of the tree, the names that a `for` or a dynamic block gives a value there, and the JSON string around."""

    value: Any
    bound: frozenset[str] = frozenset()
    string: Embedded | None = None


def mistaken_references(text: str, body: Body, scopes: Scopes) -> list[OffsetDiagnostic]:
    """The warnings, MAX_FINDINGS at most, in the order of the file."""
    names = {name for declared in scopes.values() for name in declared}
    if not names or all((match[1] or match[2]) not in names for match in _LOOKALIKE.finditer(text)):
        return []
    return sorted(islice(_mistaken(text, body, scopes), MAX_FINDINGS), key=lambda each: each.start)


def _mistaken(text: str, body: Body, scopes: Scopes) -> Iterator[OffsetDiagnostic]:
    waiting = [_Visit(body)]
    while waiting:
        visit = waiting.pop()
        value = visit.value
        if isinstance(value, LiteralValue):
            yield from _quoted(visit, scopes)
            continue
        for part in _template_parts(value):
            if isinstance(part, RootVariable) and part.name not in visit.bound:
                yield from _bare(text, part, visit.string, scopes)
        waiting.extend(reversed(list(_inner(visit))))


def _inner(visit: _Visit) -> Iterator[_Visit]:
    """The parts below one."""
    value, bound, string = visit
    if isinstance(value, For | TemplateFor):
        yield visit._replace(value=value.collection)
        inside = bound | {value.value_name} | ({value.key_name} if value.key_name else set())
        rest = (value.key, value.value, value.condition) if isinstance(value, For) else value.body
        yield from (_Visit(each, inside, string) for each in rest if isinstance(each, tuple))
        return
    if isinstance(value, Embedded):
        string = value
    if isinstance(value, BlockNode) and value.type == "dynamic":
        bound |= {label.text for label in value.labels} | _iterators(value.body)
    if isinstance(value, tuple):
        yield from (_Visit(each, bound, string) for each in value if isinstance(each, tuple))


def _iterators(body: Body) -> set[str]:
    """The name that a dynamic block gives its iterator."""
    values = [attribute.value for attribute in body.attributes if attribute.name == "iterator"]
    return {value.name for value in values if isinstance(value, RootVariable)}


def _template_parts(value: Any) -> tuple[Any, ...]:
    match value:
        case Wrap():
            return (value.inner,)
        case TemplateExpr():
            return value.parts
        case TemplateIf():
            return (*value.yes, *value.no)
        case TemplateFor():
            return tuple(
                part
                for part in value.body
                if not isinstance(part, RootVariable) or part.name not in (value.key_name, value.value_name)
            )
    return ()


def _bare(text: str, node: RootVariable, string: Embedded | None, scopes: Scopes) -> Iterator[OffsetDiagnostic]:
    scope = next((scope for scope, names in scopes.items() if node.name in names), None)
    if scope is None:
        return
    if string is None:
        start, end = text.rfind("${", 0, node.start), text.find("}", node.end) + 1
    else:
        start, end = string.start, string.end
    detail = f"The text ${{{node.name}}} is left to the node: it is not the value of {scope}.{node.name}."
    hint = f"Write ${{{scope}.{node.name}}} if that is meant."
    yield OffsetDiagnostic("Reference without its scope", detail, max(start, 0), max(end, node.end), hint)


def _quoted(visit: _Visit, scopes: Scopes) -> Iterator[OffsetDiagnostic]:
    value = visit.value
    match = _QUOTED.fullmatch(value.value) if value.quoted and isinstance(value.value, str) else None
    if match and match[2] in scopes.get(match[1], ()):
        place = visit.string or value
        detail = f"This is the text {match[0]}, not the value of the variable."
        hint = f"Write {match[0]} without quotes."
        yield OffsetDiagnostic("Reference between quotes", detail, place.start, place.end, hint)
