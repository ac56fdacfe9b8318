"""Parses the text form of a need: the inverse of `needs.describe`.

The words mean the need as a whole; `submit-job or register-job` is one need in a namespace, whichever way the route
declared it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from yurt.access.needs import (
    ANONYMOUS,
    ANY_CAPABILITY,
    AUTHENTICATED,
    MANAGEMENT,
    OWN_NODE,
    WORKLOAD,
    AllOf,
    AnyOf,
    Area,
    AtLevel,
    Capability,
    EachRow,
    HostVolumeMountCapability,
    InNamespace,
    Leaf,
    Level,
    Need,
    NodePoolCapability,
    OnHostVolume,
    OperatorCapability,
    VariableCapability,
    describe,
    host_volume,
    namespace,
    node_pool,
    operator,
    variable,
)
from yurt.sdk.errors import Invalid

EACH_ROW: Final = "each row: "
DEPTH_MAX: Final = 8
LENGTH_MAX: Final = 2_000
_OR, _AND = " or ", " and "
_WORD: Final = re.compile(r"\(|\)| or | and |(?:(?!\(|\)| or | and ).)+")


def _leaves() -> Iterator[Leaf]:
    yield from (ANONYMOUS, AUTHENTICATED, MANAGEMENT, ANY_CAPABILITY, WORKLOAD, OWN_NODE)
    yield from map(namespace, Capability)
    yield from map(variable, VariableCapability)
    yield from map(node_pool, NodePoolCapability)
    yield from map(host_volume, HostVolumeMountCapability)
    yield from map(operator, OperatorCapability)
    for area in Area:
        for level in Level:
            yield AtLevel(area=area, level=level)


LEAVES: Final = {describe(leaf): leaf for leaf in _leaves()}
"""Every need of one word."""


def parse_need(text: str) -> Need:
    """The need in this text form; raises Invalid."""
    if len(text) > LENGTH_MAX:
        raise Invalid(f"a need holds at most {LENGTH_MAX} characters")
    return _NeedReader(text).whole()


class _NeedReader:
    """Reads words from left to right; `or` and `and` cannot be mixed without parentheses."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = _WORD.findall(text)
        self._at = 0

    def whole(self) -> Need:
        need = self._parts(0)
        if self._at < len(self._words):
            raise Invalid(f'"{self._text}": unexpected "{self._words[self._at].strip()}"')
        return need

    def _parts(self, depth: int) -> Need:
        """Needs up to a parenthesis; `each row` at their beginning is about all of them, elsewhere about the next."""
        if depth > DEPTH_MAX:
            raise Invalid(f"a need is nested at most {DEPTH_MAX} times")
        is_of_rows = self._skip_each_row()
        found = [self._one(depth)]
        joint = self._words[self._at] if self._at < len(self._words) else ""
        while joint in (_OR, _AND) and self._at < len(self._words) and self._words[self._at] == joint:
            self._at += 1
            found.append(self._one(depth))
        need = found[0] if len(found) == 1 else _joined(found, joint)
        return EachRow(need=need) if is_of_rows else need

    def _skip_each_row(self) -> bool:
        word = self._words[self._at] if self._at < len(self._words) else ""
        if not word.startswith(EACH_ROW):
            return False
        rest = word.removeprefix(EACH_ROW)
        if rest:
            self._words[self._at] = rest
        else:
            self._at += 1
        return True

    def _one(self, depth: int) -> Need:
        if self._skip_each_row():
            return EachRow(need=self._one(depth))
        word = self._words[self._at].strip() if self._at < len(self._words) else ""
        self._at += 1
        if word == "(":
            need = self._parts(depth + 1)
            if self._at >= len(self._words) or self._words[self._at] != ")":
                raise Invalid(f'"{self._text}": a parenthesis is not closed')
            self._at += 1
            return need
        if word not in LEAVES:
            near = get_close_matches(word, LEAVES, n=1)
            raise Invalid(f'"{word[:64]}" is not a right' + (f'; did you mean "{near[0]}"?' if near else ""))
        return LEAVES[word]


def _joined(parts: list[Need], joint: str) -> Need:
    if joint == _AND:
        return AllOf(needs=tuple(parts))
    spaces = [part for part in parts if isinstance(part, InNamespace)]
    volumes = [part for part in parts if isinstance(part, OnHostVolume)]
    if len(spaces) == len(parts):
        return namespace(*dict.fromkeys(each for part in spaces for each in part.capabilities))
    if len(volumes) == len(parts):
        return host_volume(*dict.fromkeys(each for part in volumes for each in part.capabilities))
    return AnyOf(needs=tuple(parts))
