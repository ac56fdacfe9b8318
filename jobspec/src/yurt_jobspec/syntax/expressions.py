"""Parses tokens to expressions: a recursive-descent parser with precedence climbing.

Each method consumes the tokens of one construct and returns its node. A construct that cannot be read raises
SyntaxProblem; the body parser catches it, records it and carries on at the next line, so that one run finds the
mistakes of all arguments. Recursion is bounded: brackets by the lexer, chains of unary operators and conditionals
here, and chains of binary operators are built without recursion.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import NoReturn

from yurt_jobspec.diagnostics import OffsetDiagnostic
from yurt_jobspec.numbers import parse_number

from . import lexer
from .lexer import (
    CLOSE_QUOTE,
    END,
    IDENT,
    MAX_NESTING,
    NEWLINE,
    NUMBER,
    OPEN_HEREDOC,
    OPEN_QUOTE,
    SEQUENCE_END,
    STRING,
    SURROGATE,
    Tokens,
)
from .nodes import (
    Attr,
    Binary,
    Conditional,
    Expr,
    For,
    FunctionCall,
    Index,
    LiteralValue,
    ObjectOf,
    Parentheses,
    RootVariable,
    Splat,
    Step,
    Traversal,
    TupleOf,
    Unary,
)

_WHOLE_VALUES = frozenset((STRING, NUMBER, IDENT))
_AFTER_VALUE = frozenset((NEWLINE, ",", "]", "}", ")", SEQUENCE_END, END))
"""Behind a string these mean that it is the whole expression."""
PRECEDENCE = {
    "||": 1,
    "&&": 2,
    "==": 3,
    "!=": 3,
    "<": 4,
    ">": 4,
    "<=": 4,
    ">=": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
}
KEYWORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
"""The words that are values, not references."""
_BARE_TEXT_SIGNS = frozenset({"/", ".", "*", "<", ">", "%"})
_BARE_TEXT_HINT = 'Write text between double quotes: "...".'
_LEGACY_INDEX = re.compile(r"\d+(?:\.\d+)?\Z")


class SyntaxProblem(Exception):
    """The current construct cannot be parsed."""

    def __init__(self, problem: OffsetDiagnostic) -> None:
        self.problem = problem
        super().__init__(problem.detail)


class ExpressionParser:
    """Parses expressions from a token list; `at` is the index of the next token."""

    def __init__(self, text: str, tokens: Tokens) -> None:
        self.text = text
        self.kinds = tokens.kinds
        self.starts = tokens.starts
        self.ends = tokens.ends
        self.at = 0
        self.depth = 0
        self.problems: list[OffsetDiagnostic] = []

    # Token access.

    def word(self, index: int | None = None) -> str:
        """The text of a token, by default the next one."""
        index = self.at if index is None else index
        return self.text[self.starts[index] : self.ends[index]]

    def is_word(self, word: str) -> bool:
        """Whether the next token is this identifier."""
        return self.kinds[self.at] == IDENT and self.word() == word

    def reject(self, summary: str, detail: str, *, index: int | None = None, hint: str | None = None) -> NoReturn:
        """Raise a SyntaxProblem at a token, by default the next one."""
        index = self.at if index is None else index
        raise SyntaxProblem(OffsetDiagnostic(summary, detail, self.starts[index], self.ends[index], hint))

    def expect(self, kind: str, summary: str, detail: str, *, hint: str | None = None) -> int:
        """Consume a token of this kind and return its index."""
        if self.kinds[self.at] != kind:
            self.reject(summary, detail, hint=hint)
        self.at += 1
        return self.at - 1

    def skip_newlines(self) -> None:
        while self.kinds[self.at] == NEWLINE:
            self.at += 1

    def enter(self) -> None:
        """Increase the nesting depth, up to its bound."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.reject("Nested too deeply", f"Expressions may be nested {MAX_NESTING} deep at most.")

    # Operators.

    def expression(self) -> Expr:
        """A complete expression; conditionals have the lowest precedence."""
        at = self.at
        start, kind = self.starts[at], self.kinds[at]
        if kind in _WHOLE_VALUES and self.kinds[at + 1] in _AFTER_VALUE:
            return self.value(kind)
        self.enter()
        node = self.binary(1)
        if self.kinds[self.at] == "?":
            self.at += 1
            yes = self.expression()
            detail = "The ':' and the value for the false case are missing: condition ? value : other value."
            self.expect(":", "Missing false expression in conditional", detail)
            no = self.expression()
            node = Conditional(node, yes, no, start, no.end)
        self.depth -= 1
        return node

    def binary(self, level: int) -> Expr:
        """Left-associative operators of at least this precedence."""
        left = self.term()
        while True:
            operator = self.kinds[self.at]
            precedence = PRECEDENCE.get(operator, 0)
            if precedence < level:
                return left
            self.at += 1
            right = self.binary(precedence + 1)
            left = Binary(operator, left, right, left.start, right.end)

    def term(self) -> Expr:
        """An operand: a unary operator, or a value with its attributes and indexes."""
        kind = self.kinds[self.at]
        if kind in ("-", "!"):
            return self.unary(kind)
        node = self.value(kind)
        if self.kinds[self.at] in (".", "["):
            return self.access(node)
        return node

    def unary(self, operator: str) -> Expr:
        start = self.starts[self.at]
        self.at += 1
        self.enter()
        operand = self.term()
        self.depth -= 1
        return Unary(operator, operand, start, operand.end)

    # Values.

    def value(self, kind: str) -> Expr:
        start, end = self.starts[self.at], self.ends[self.at]
        if kind == STRING:
            self.at += 1
            return LiteralValue(normalize(self.text[start + 1 : end - 1]), start, end, True)
        if kind == IDENT:
            return self.name(start, end)
        if kind == NUMBER:
            self.at += 1
            return LiteralValue(self.number(start, end), start, end)
        if kind in (OPEN_QUOTE, OPEN_HEREDOC):
            return self.template()
        if kind == "[":
            return self.tuple_or_for()
        if kind == "{":
            return self.object_or_for()
        if kind == "(":
            self.at += 1
            inner = self.expression()
            self.expect(")", "Unbalanced parentheses", "Expected a closing parenthesis to terminate the expression.")
            return Parentheses(inner, start, self.ends[self.at - 1])
        self.no_value(kind)

    def number(self, start: int, end: int) -> int | Decimal:
        try:
            return parse_number(self.text[start:end])
        except ValueError as error:
            raise SyntaxProblem(OffsetDiagnostic("Invalid number literal", str(error), start, end)) from None

    def no_value(self, kind: str) -> NoReturn:
        if kind == END:
            self.reject("Missing expression", "Expected the start of an expression, but found the end of the file.")
        if kind == NEWLINE:
            self.reject("Invalid expression", "Expected the start of an expression, but the line ends here.")
        detail = "Expected the start of an expression, but found an invalid expression token."
        self.reject("Invalid expression", detail, hint=_BARE_TEXT_HINT if kind in _BARE_TEXT_SIGNS else None)

    def name(self, start: int, end: int) -> Expr:
        name = self.text[start:end]
        self.at += 1
        if self.kinds[self.at] in ("(", "::"):
            return self.call(name, start)
        if name in KEYWORDS:
            return LiteralValue(KEYWORDS[name], start, end)
        return RootVariable(name, start, end)

    def call(self, name: str, start: int) -> Expr:
        while self.kinds[self.at] == "::":
            self.at += 1
            detail = "A function name belongs after '::'."
            index = self.expect(IDENT, "Missing function name", detail)
            name += "::" + self.word(index)
        name_end = self.ends[self.at - 1]
        self.expect("(", "Missing open parenthesis", "Function arguments stand in parentheses.")
        arguments: list[Expr] = []
        spread = False
        while self.kinds[self.at] != ")":
            arguments.append(self.expression())
            if self.kinds[self.at] == "...":
                self.at += 1
                spread = True
                if self.kinds[self.at] != ")":
                    self.reject(
                        "Missing closing parenthesis", "The expanded argument, marked with '...', must be the last one."
                    )
                break
            if self.kinds[self.at] == ",":
                self.at += 1
            elif self.kinds[self.at] != ")":
                self.reject(
                    "Missing argument separator",
                    "A comma is required to separate each function argument from the next.",
                )
        close = self.starts[self.at]
        self.at += 1
        return FunctionCall(name, tuple(arguments), spread, name_end, close, start, close + 1)

    def template(self) -> Expr:
        from .templates import parse_quoted

        return parse_quoted(self)

    # Attributes, indexes, splats.

    def access(self, source: Expr) -> Expr:
        steps = self.steps(source.start)
        return Traversal(source, steps, source.start, steps[-1].end) if steps else source

    def steps(self, origin: int) -> tuple[Step, ...]:
        steps: list[Step] = []
        while True:
            kind = self.kinds[self.at]
            if kind == ".":
                steps.extend(self.dotted(self.starts[self.at], origin))
            elif kind == "[":
                steps.append(self.bracketed(self.starts[self.at], origin))
            else:
                return tuple(steps)

    def dotted(self, start: int, origin: int) -> tuple[Step, ...]:
        self.at += 1
        kind, end = self.kinds[self.at], self.ends[self.at]
        if kind == IDENT:
            self.at += 1
            return (Attr(self.word(self.at - 1), start, end),)
        if kind == NUMBER and _LEGACY_INDEX.match(self.word()):
            self.at += 1
            return self.legacy_index(start)
        if kind == "*":
            self.at += 1
            return (self.attribute_splat(start, origin),)
        self.reject("Invalid attribute name", "An attribute name is required after a dot.")

    def legacy_index(self, start: int) -> tuple[Step, ...]:
        """`.0` and `.0.1`, which the lexer reads as a fraction."""
        begin = self.starts[self.at - 1]
        steps: list[Step] = []
        for part in self.word(self.at - 1).split("."):
            steps.append(Index(LiteralValue(int(part), begin, begin + len(part)), start, begin + len(part)))
            start, begin = begin + len(part), begin + len(part) + 1
        return tuple(steps)

    def attribute_splat(self, start: int, origin: int) -> Splat:
        """`.*` with the attribute steps that follow; a later index applies to the list of results."""
        end = self.ends[self.at - 1]
        steps: list[Step] = []
        while self.kinds[self.at] == ".":
            if self.kinds[self.at + 1] == "*":
                detail = "The result of an attribute splat cannot be splatted again; use the [*] form for that."
                self.reject("Nested splat expression not allowed", detail, index=self.at + 1)
            steps.extend(self.dotted(self.starts[self.at], origin))
        return Splat(tuple(steps), origin, start, end)

    def bracketed(self, start: int, origin: int) -> Step:
        self.at += 1
        if self.kinds[self.at] == "*":
            self.at += 1
            self.expect(
                "]",
                "Missing close bracket on splat index",
                "The star of a full splat must be followed by a closing bracket.",
            )
            end = self.ends[self.at - 1]
            self.enter()
            steps = self.steps(origin)
            self.depth -= 1
            return Splat(steps, origin, start, end)
        key = self.expression()
        self.expect("]", "Missing close bracket on index", "The index operator must end with a closing bracket (']').")
        return Index(key, start, self.ends[self.at - 1])

    # Collections.

    def tuple_or_for(self) -> Expr:
        start = self.starts[self.at]
        self.at += 1
        if self.is_word("for") and self.kinds[self.at + 1] == IDENT:
            return self.for_expression(start, "]")
        items: list[Expr] = []
        while self.kinds[self.at] != "]":
            items.append(self.expression())
            if self.kinds[self.at] == ",":
                self.at += 1
            elif self.kinds[self.at] != "]":
                self.missing_item_separator()
        self.at += 1
        return TupleOf(tuple(items), start, self.ends[self.at - 1])

    def missing_item_separator(self) -> NoReturn:
        if self.kinds[self.at] == END:
            self.reject("Unterminated list", "The closing bracket of this list is missing.")
        self.reject("Missing item separator", "Expected a comma to mark the beginning of the next item.")

    def object_or_for(self) -> Expr:
        start = self.starts[self.at]
        self.at += 1
        if self.is_word("for") and self.kinds[self.at + 1] == IDENT:
            return self.for_expression(start, "}")
        items: list[tuple[Expr, Expr]] = []
        self.skip_newlines()
        while self.kinds[self.at] != "}":
            items.append(self.object_item())
            kind = self.kinds[self.at]
            if kind in (",", NEWLINE):
                self.at += 1
                self.skip_newlines()
            elif kind == END:
                self.reject("Unterminated object", "The closing brace of this object is missing.")
            elif kind != "}":
                detail = "Expected a line end or a comma to mark the beginning of the next attribute."
                self.reject("Missing attribute separator", detail)
        self.at += 1
        return ObjectOf(tuple(items), start, self.ends[self.at - 1])

    def object_item(self) -> tuple[Expr, Expr]:
        key = self.object_key()
        if self.kinds[self.at] not in ("=", ":"):
            detail = "Expected an equals sign ('=') between the key and its value."
            self.reject("Missing attribute value", detail)
        self.at += 1
        return key, self.expression()

    def object_key(self) -> Expr:
        """An object key: a bare name is literal, anything else an expression."""
        following = self.kinds[self.at + 1] if self.kinds[self.at] != END else END
        if self.kinds[self.at] == IDENT and following in ("=", ":"):
            self.at += 1
            return LiteralValue(normalize(self.word(self.at - 1)), self.starts[self.at - 1], self.ends[self.at - 1])
        return self.expression()

    def for_expression(self, start: int, closer: str) -> Expr:
        self.at += 1
        key_name, value_name = self.for_names("for")
        collection = self.expression()
        self.expect(":", "Invalid 'for' expression", "For expression requires a colon after the collection expression.")
        key: Expr | None = None
        value = self.expression()
        if closer == "}":
            key = value
            detail = "An object 'for' expression requires '=>' between the key and the value."
            if self.kinds[self.at] != "=>":
                raise SyntaxProblem(OffsetDiagnostic("Invalid 'for' expression", detail, key.start, key.end))
            self.at += 1
            value = self.expression()
        elif self.kinds[self.at] == "=>":
            self.reject(
                "Invalid 'for' expression", "A list 'for' expression has no keys; use braces to make an object."
            )
        group = self.for_grouping(key)
        condition = None
        if self.is_word("if"):
            self.at += 1
            condition = self.expression()
        self.expect(closer, "Invalid 'for' expression", "Extra characters after the end of the 'for' expression.")
        return For(key_name, value_name, collection, key, value, condition, group, start, self.ends[self.at - 1])

    def for_grouping(self, key: Expr | None) -> bool:
        if self.kinds[self.at] != "...":
            return False
        if key is None:
            self.reject(
                "Invalid 'for' expression", "Grouping ellipsis (...) may be used only when the result is an object."
            )
        self.at += 1
        return True

    def for_names(self, what: str) -> tuple[str | None, str]:
        """The names of a `for`: `k, v in` or `v in`."""
        detail = f"The {what} keyword must be followed by the name of its variable."
        value_name = self.word(self.expect(IDENT, f"Invalid '{what}' expression", detail))
        key_name = None
        if self.kinds[self.at] == ",":
            self.at += 1
            key_name, value_name = value_name, self.word(self.expect(IDENT, f"Invalid '{what}' expression", detail))
        if not self.is_word("in"):
            self.reject(
                f"Invalid '{what}' expression", "The names must be followed by the word 'in' and the collection."
            )
        self.at += 1
        return key_name, value_name

    def finish(self) -> None:
        """Raise a SyntaxProblem unless all tokens are read."""
        self.skip_newlines()
        if self.kinds[self.at] != END:
            self.reject(
                "Extra characters after expression",
                "An expression was successfully parsed, but extra characters follow it.",
            )


def normalize(text: str) -> str:
    """Strings are kept in Unicode's composed form; half a surrogate pair, which only an escape in JSON can make, is no
    character.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", SURROGATE.sub("\ufffd", text))


__all__ = ["CLOSE_QUOTE", "SEQUENCE_END", "ExpressionParser", "SyntaxProblem", "lexer", "normalize"]
