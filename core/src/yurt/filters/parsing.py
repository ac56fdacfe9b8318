"""The parser of the filter language (go-bexpr): an expression becomes a predicate over rows in the shape of the API.

    expression := all ("or" all)*          all := one ("and" one)*
    one := "not" one | "(" expression ")" | loop | match
    loop := ("any" | "all") selector "as" name ["," name] "{" expression "}"
    match := selector ("==" | "!=" | "contains" | "not contains" | "matches" | "not matches") value
           | selector ("is empty" | "is not empty" | "is nil" | "is not nil") | value ("in" | "not in") selector
    selector := name ("." name | "[" text "]")* | a JSON pointer in quotes

A name after a list is looked for in each of its objects: a comparison holds where it does for one of them.

The name of a loop stands for each item of a list or each key of a map; of two names the first stands for the index or
key and the second for the value. `_` takes none. Length, depth, comparisons and patterns of an expression are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Set

import msgspec

from yurt.filters.evaluation import Loop, Predicate, Row, contains, equals, find, is_empty, is_nil, matches
from yurt.regexps import SearchBudget, TooMuchWork
from yurt.sdk.errors import Invalid

EXPRESSION_MAX = 4096
DEPTH_MAX = 32
TERMS_MAX = 128
PATTERNS_MAX = 8
"""Regular expressions of one filter."""
ROW_WORK_MAX, WORK_MAX = 10_000, 1_000_000
"""Places of the patterns' programs and comparisons in loops, for one row and for all rows: about 20 ms, and 2 s."""
TOO_COSTLY = (
    "error evaluating filter: its regular expressions and loops take too much work on this list: "
    "write simpler ones, or narrow the list with a prefix or with another comparison before them"
)

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|`[^`]*`)|(?P<op>==|!=|[(){},])"""
    r"""|(?P<word>[^\s(){},"`=!\[\]]+(?:\[(?:"(?:[^"\\]|\\.)*"|`[^`]*`|\d+)\][^\s(){},"`=!\[\]]*)*))""",
    re.VERBOSE,
)
_STEP = re.compile(r"""\.?([^.\[\]]+)|\[(?:"((?:[^"\\]|\\.)*)"|`([^`]*)`|(\d+))\]""")
_OPERATORS = (
    "is not empty",
    "is empty",
    "is not nil",
    "is nil",
    "not contains",
    "not matches",
    "not in",
    "contains",
    "matches",
    "in",
)


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    at: int


def compile_filter(expression: str, *, fields: Set[str] | None = None) -> Predicate:
    """The predicate that an expression stands for; raises Invalid for one that cannot be read.

    With `fields`, a selector has to begin with one of them: what no row has is then a mistake in the expression.
    """
    if not expression.strip():
        return lambda row: True
    if len(expression) > EXPRESSION_MAX:
        raise _unreadable(f"longer than {EXPRESSION_MAX} characters")
    parser = _Parser(_tokens(expression), fields)
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

    def __init__(self, tokens: list[_Token], fields: Set[str] | None) -> None:
        self.tokens = tokens
        self._fields = fields
        self._loops = 0
        self._loop_depth = 0
        self.position = 0
        self._terms = 0
        self._patterns = 0
        self._budget = SearchBudget(ROW_WORK_MAX, WORK_MAX)

    def expect_end(self) -> None:
        """Nothing may follow."""
        if self.position < len(self.tokens):
            raise self._unexpected()

    def bounded(self, predicate: Predicate) -> Predicate:
        """The predicate, with the work of its regular expressions and loops bounded row by row."""
        if not self._patterns and not self._loops:
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
        return self._loop(depth) if self._at_loop() else self._match()

    def _at_loop(self) -> bool:
        # `any` and `all` may also be names of fields: only `as` makes a loop of them.
        words = [token.text for token in self.tokens[self.position : self.position + 3]]
        return len(words) == 3 and words[0] in ("any", "all") and words[2] == "as"

    def _loop(self, depth: int) -> Predicate:
        is_all = self._operand().text == "all"
        steps = self._selector(self._operand())
        self._expect("as")
        names = [self._name()]
        if self._take(","):
            names.append(self._name())
        self._expect("{")
        outer, terms = self._fields, self._terms
        if outer is not None:
            self._fields = {*outer, *names}
        self._loops += 1
        self._loop_depth += 1
        inner = self.alternatives(depth + 1)
        self._loop_depth -= 1
        self._fields = outer
        self._expect("}")
        cost = max(1, self._terms - terms)
        return Loop(steps, tuple(names), inner, is_all=is_all, cost=cost, budget=self._budget)

    def _name(self) -> str:
        token = self._operand()
        if token.kind != "word" or not token.text.isidentifier():
            raise _unreadable(f"{token.text[:40]!r} is not a name for the items of a collection")
        return token.text

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(f'"{text}"')

    def _match(self) -> Predicate:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise _unreadable(f"more than {TERMS_MAX} comparisons")
        left = self._operand()
        operator = self._operator()
        if operator in ("in", "not in"):
            return _negated(operator, contains(self._selector(self._operand()), _value(left), self._loop_budget()))
        steps = self._selector(left)
        if operator.endswith("nil"):
            return _negated(operator, lambda row: is_nil(find(row, steps)))
        if operator.endswith("empty"):
            return _negated(operator, lambda row: is_empty(find(row, steps)))
        value = _value(self._operand())
        if operator in ("==", "!="):
            return _negated(operator, lambda row: equals(find(row, steps), value))
        if operator.endswith("contains"):
            return _negated(operator, contains(steps, value, self._loop_budget()))
        self._patterns += 1
        if self._patterns > PATTERNS_MAX:
            raise _unreadable(f"more than {PATTERNS_MAX} regular expressions")
        return _negated(operator, matches(steps, value, self._budget))

    def _loop_budget(self) -> SearchBudget | None:
        """What a look through a list costs: nothing once for a row, but a loop may do it for each of its items."""
        return self._budget if self._loop_depth else None

    def _selector(self, token: _Token) -> tuple[str, ...]:
        steps = _steps(token.text)
        if self._fields is not None and steps[0] not in self._fields:
            names = ", ".join(sorted(self._fields))
            raise _unreadable(f"1:{token.at + 1} ({token.at}): {steps[0][:40]!r} is not one of {names}")
        return steps

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


def _step(match: re.Match[str]) -> str:
    name, quoted, raw, number = match.groups()
    if quoted is not None:
        return re.sub(r"\\(.)", r"\1", quoted)
    return str(next(each for each in (name, raw, number) if each is not None))


def _steps(text: str) -> tuple[str, ...]:
    if text[0] in '"`':
        steps = tuple(text[1:-1].lstrip("/").split("/" if text[1:2] == "/" else "."))
    else:
        steps = tuple(_step(match) for match in _STEP.finditer(text))
    if not steps or not all(steps):
        raise _unreadable(f"{text[:40]!r} is not a selector")
    return steps
