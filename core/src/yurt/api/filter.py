"""The filter language of list routes (go-bexpr), over rows in the shape of the API.

    expression := all ("or" all)*          all := one ("and" one)*         one := "not" one | "(" expression ")" | match
    match := selector ("==" | "!=" | "contains" | "not contains" | "matches" | "not matches") value
           | selector ("is empty" | "is not empty") | value ("in" | "not in") selector
    selector := name ("." name | "[" text "]")* | a JSON pointer in quotes

A value is compared as the type of the field that it meets. A selector's first name must be a field of the row;
a missing key further down matches nothing. Regular expressions run on an engine of linear time, and what they may do
to one row and to all rows is bounded, so that no expression holds up a server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from yurt.regexps import BadPattern, Regexp, SearchBudget, TooMuchWork
from yurt.sdk.errors import Invalid

EXPRESSION_MAX = 4096
DEPTH_MAX = 32
TERMS_MAX = 128
PATTERNS_MAX = 8
"""Regular expressions of one filter."""
MATCHED_TEXT_MAX = 4096
ROW_WORK_MAX, WORK_MAX = 10_000, 1_000_000
"""Places of the patterns' programs that may be looked at for one row, and for all rows: about 20 ms, and 2 s."""
TOO_COSTLY = (
    "error evaluating filter: its regular expressions take too much work on this list: "
    "write simpler ones, or narrow the list with a prefix or with another comparison before them"
)

Row = Mapping[str, Any]
Predicate = Callable[[Row], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|`[^`]*`)|(?P<op>==|!=|[()])"""
    r"""|(?P<word>[^\s()"`=!\[\]]+(?:\[(?:"[^"]*"|`[^`]*`|\d+)\][^\s()"`=!\[\]]*)*))""",
    re.VERBOSE,
)
_STEP = re.compile(r"""\.?([^.\[\]]+)|\[(?:"([^"]*)"|`([^`]*)`|(\d+))\]""")
_OPERATORS = ("is not empty", "is empty", "not contains", "not matches", "not in", "contains", "matches", "in")
_MISSING = object()


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def compile_filter(expression: str) -> Predicate:
    """The predicate that an expression stands for; raises Invalid for one that cannot be read."""
    if not expression.strip():
        return lambda row: True
    if len(expression) > EXPRESSION_MAX:
        raise _unreadable(f"longer than {EXPRESSION_MAX} characters")
    parser = _Parser(_tokens(expression))
    predicate = parser.alternatives(0)
    parser.expect_end()
    return parser.bounded(predicate)


def _unreadable(why: str) -> Invalid:
    return Invalid(f"failed to read filter expression: {why}")


def _tokens(expression: str) -> list[_Token]:
    tokens, position, end = [], 0, len(expression.rstrip())
    while position < end:
        match = _TOKEN.match(expression, position)
        if match is None or match.lastgroup is None:
            raise _unreadable(
                f"1:{position + 1} ({position}): no match found at {expression[position : position + 20]!r}"
            )
        tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.position = 0
        self._terms = 0
        self._patterns = 0
        self._budget = SearchBudget(ROW_WORK_MAX, WORK_MAX)

    def expect_end(self) -> None:
        """Nothing may follow."""
        if self.position < len(self.tokens):
            raise self._unexpected()

    def bounded(self, predicate: Predicate) -> Predicate:
        """The predicate, with the work of its regular expressions bounded row by row."""
        if not self._patterns:
            return predicate

        def holds(row: Row) -> bool:
            self._budget.renew()
            try:
                return predicate(row)
            except TooMuchWork:
                raise Invalid(TOO_COSTLY) from None

        return holds

    def alternatives(self, depth: int) -> Predicate:
        """One or more parts joined by `or`."""
        parts = [self._all(depth)]
        while self._take("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else lambda row: any(part(row) for part in parts)

    def _all(self, depth: int) -> Predicate:
        parts = [self._one(depth)]
        while self._take("and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else lambda row: all(part(row) for part in parts)

    def _one(self, depth: int) -> Predicate:
        if depth > DEPTH_MAX:
            raise _unreadable(f"nested deeper than {DEPTH_MAX} levels")
        if self._take("not"):
            inner = self._one(depth + 1)
            return lambda row: not inner(row)
        if self._take("("):
            inner = self.alternatives(depth + 1)
            if not self._take(")"):
                raise self._unexpected('")"')
            return inner
        return self._match()

    def _match(self) -> Predicate:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise _unreadable(f"more than {TERMS_MAX} comparisons")
        left = self._operand()
        operator = self._operator()
        if operator in ("in", "not in"):
            return _negated(operator, _contains(_selector(self._operand().text), _value(left)))
        steps = _selector(left.text)
        if operator.endswith("empty"):
            return _negated(operator, lambda row: _is_empty(_find(row, steps)))
        value = _value(self._operand())
        if operator in ("==", "!="):
            return _negated(operator, lambda row: _equals(_find(row, steps), value))
        if operator.endswith("contains"):
            return _negated(operator, _contains(steps, value))
        self._patterns += 1
        if self._patterns > PATTERNS_MAX:
            raise _unreadable(f"more than {PATTERNS_MAX} regular expressions")
        return _negated(operator, _matches(steps, value, self._budget))

    def _operator(self) -> str:
        for operator in ("==", "!=", *_OPERATORS):
            words = operator.split(" ")
            found = [token.text for token in self.tokens[self.position : self.position + len(words)]]
            if found == words:
                self.position += len(words)
                return operator
        raise self._unexpected("an operator")

    def _operand(self) -> _Token:
        if self.position >= len(self.tokens) or self.tokens[self.position].kind == "op":
            raise self._unexpected("a selector or a value")
        self.position += 1
        return self.tokens[self.position - 1]

    def _take(self, text: str) -> bool:
        if self.position < len(self.tokens) and self.tokens[self.position].text == text:
            self.position += 1
            return True
        return False

    def _unexpected(self, expected: str = "the end") -> Invalid:
        if self.position >= len(self.tokens):
            return _unreadable(f"the expression ends where {expected} is expected")
        token = self.tokens[self.position]
        return _unreadable(f"1:{token.at + 1} ({token.at}): found {token.text[:40]!r}, expected {expected}")


def _negated(operator: str, predicate: Predicate) -> Predicate:
    if operator == "!=" or "not" in operator.split(" "):
        return lambda row: not predicate(row)
    return predicate


def _value(token: _Token) -> str:
    if token.kind != "text":
        return token.text
    body = token.text[1:-1]
    return re.sub(r"\\(.)", r"\1", body) if token.text[0] == '"' else body


def _selector(text: str) -> tuple[str, ...]:
    if text[0] in '"`':
        steps = tuple(text[1:-1].lstrip("/").split("/" if text[1:2] == "/" else "."))
    else:
        steps = tuple(next(group for group in match.groups() if group is not None) for match in _STEP.finditer(text))
    if not steps or not all(steps):
        raise _unreadable(f"{text[:40]!r} is not a selector")
    return steps


def _find(row: Row, steps: tuple[str, ...]) -> Any:
    """The value that a selector leads to, or _MISSING; raises Invalid when its first step is no field of the row."""
    if steps[0] not in row:
        where = "/".join(steps)
        raise Invalid(
            f"error finding value in datum: /{where} at part 0: couldn't find key: "
            f'struct field with name "{steps[0][:64]}"'
        )
    value: Any = row
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(step, _MISSING)
        elif isinstance(value, list | tuple) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return _MISSING
    return value


def _is_empty(value: Any) -> bool:
    return value is _MISSING or value is None or (isinstance(value, str | list | tuple | Mapping) and not value)


def _equals(found: Any, value: str) -> bool:
    match found:
        case bool():
            return value in ("true", "True", "TRUE", "1", "t", "T") if found else value in _FALSE_TEXTS
        case int() | float():
            return _as_number(value) == found
        case str():
            return found == value
        case _:
            return False


_FALSE_TEXTS = ("false", "False", "FALSE", "0", "f", "F")


def _as_number(value: str) -> float:
    try:
        return int(value) if value.lstrip("-").isdigit() and len(value) < 32 else float(value)
    except ValueError:
        raise Invalid(f'error evaluating filter: "{value[:64]}" is not a number') from None


def _contains(steps: tuple[str, ...], value: str) -> Predicate:
    def holds(row: Row) -> bool:
        found = _find(row, steps)
        if isinstance(found, str | Mapping):
            return value in found
        return isinstance(found, list | tuple) and any(_equals(item, value) for item in found)

    return holds


def _matches(steps: tuple[str, ...], pattern: str, budget: SearchBudget) -> Predicate:
    try:
        regexp = Regexp(pattern, budget=budget)
    except BadPattern as error:
        raise Invalid(f"failed to compile regular expression {pattern[:64]!r}: {error}") from None

    def holds(row: Row) -> bool:
        found = _find(row, steps)
        return isinstance(found, str) and regexp.search(found[:MATCHED_TEXT_MAX])

    return holds
