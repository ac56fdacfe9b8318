"""Parses tokens to bodies: arguments and blocks.

A file is a body, and so is what stands between the braces of a block. A line that cannot be read becomes a problem
and the parser goes on with the next line of the same body, so that a file's mistakes are found together.
"""

from __future__ import annotations

from bisect import bisect_left

from yurt_jobspec.diagnostics import OffsetDiagnostic
from yurt_jobspec.suggestions import unit_hint, yaml_hint

from .expressions import ExpressionParser, SyntaxProblem, normalize
from .lexer import (
    CLOSE_QUOTE,
    CLOSING_KIND,
    DIRECTIVE,
    END,
    IDENT,
    INTERPOLATION,
    NEWLINE,
    NUMBER,
    OPEN_QUOTE,
    SEQUENCE_END,
    STRING,
    TEXT,
    Tokens,
)
from .nodes import AttributeNode, BlockNode, Body, Expr, Label

CLOSE_BLOCK = "Add a line with } where the block ends."
_CLOSERS = frozenset(CLOSING_KIND.values())


class BodyParser(ExpressionParser):
    """Reads bodies from a token list. Agent files are older than the language and are read leniently: argument names
    may be quoted, and a block may be written on one line.
    """

    def __init__(self, text: str, tokens: Tokens, *, is_lenient: bool) -> None:
        super().__init__(text, tokens)
        self.is_lenient = is_lenient
        self.unreadable = sorted(problem.start for problem in tokens.contained)
        """Where the lexer found what it could not read, and then went on with the next line."""

    def body(self, opening: int | None) -> Body:
        """The body up to its closing brace, or to the end of the file if `opening` is None."""
        attributes: dict[str, AttributeNode] = {}
        blocks: list[BlockNode] = []
        while True:
            self.skip_newlines()
            kind = self.kinds[self.at]
            if kind == END or (kind == "}" and opening is not None):
                break
            begin = self.at
            try:
                self.item(attributes, blocks)
            except SyntaxProblem as error:
                if not self.is_consequence(error.problem, self.starts[begin]):
                    self.problems.append(error.problem)
                self.depth = 0
                self.recover(begin, inside=opening is not None)
        if self.kinds[self.at] == END and opening is not None and not self.problems:
            detail = (
                "There is no closing brace for this block before the end of the file. "
                "This may be caused by incorrect brace nesting elsewhere in this file."
            )
            self.problems.append(
                OffsetDiagnostic(
                    "Unclosed configuration block", detail, self.starts[opening], self.ends[opening], CLOSE_BLOCK
                )
            )
        missing = self.starts[opening] if opening is not None else 0
        return Body(tuple(attributes.values()), tuple(blocks), missing, self.ends[self.at])

    def is_consequence(self, problem: OffsetDiagnostic, begin: int) -> bool:
        """Whether the lexer has reported an earlier mistake in the same item."""
        first = bisect_left(self.unreadable, begin)
        return first < len(self.unreadable) and self.unreadable[first] <= problem.start

    def items(self, attributes: dict[str, AttributeNode], blocks: list[BlockNode]) -> None:
        """All items up to the last token; raises SyntaxProblem at the first mistake."""
        self.skip_newlines()
        while self.kinds[self.at] != END:
            self.item(attributes, blocks)
            self.skip_newlines()

    def item(self, attributes: dict[str, AttributeNode], blocks: list[BlockNode]) -> None:
        kind = self.kinds[self.at]
        following = self.kinds[self.at + 1] if kind != END else END
        if kind != IDENT and not (self.is_lenient and kind == STRING and following in ("=", "{", STRING)):
            self.not_an_item(kind)
        if following == "=":
            self.add_attribute(attributes, self.attribute())
            self.end_of_argument()
        elif following in ("{", STRING, OPEN_QUOTE, IDENT):
            blocks.append(self.block())
            if not self.ends_item(self.kinds[self.at]):
                self.reject("Missing newline after block definition", "A block definition must end with a newline.")
        else:
            self.at += 1
            hint = "Write one '=' instead of '=='." if following == "==" else None
            hint = yaml_hint(self.text) if following == ":" else hint
            detail = "An argument or block definition is required here. To set an argument, use the equals sign '='."
            self.reject("Invalid argument or block", detail, hint=hint)

    def not_an_item(self, kind: str) -> None:
        if kind in (STRING, OPEN_QUOTE):
            start = self.starts[self.at]
            hint = 'A map with such keys is written as an argument: name = { "key" = value }.'
            raise SyntaxProblem(
                OffsetDiagnostic("Invalid argument name", "Argument names must not be quoted.", start, start + 1, hint)
            )
        self.reject("Argument or block definition required", "An argument or block definition is required here.")

    def add_attribute(self, attributes: dict[str, AttributeNode], attribute: AttributeNode) -> None:
        if attribute.name in attributes:
            detail = f'The argument "{attribute.name}" was already set. Each argument may be set only once.'
            first = self.text.count("\n", 0, attributes[attribute.name].start) + 1
            hint = f"Leave out this line or line {first}."
            place = (attribute.start, attribute.name_end)
            self.problems.append(OffsetDiagnostic("Attribute redefined", detail, *place, hint))
            return
        attributes[attribute.name] = attribute

    def attribute(self) -> AttributeNode:
        name, start, name_end = self.word().strip('"'), self.starts[self.at], self.ends[self.at]
        self.at += 2
        value: Expr = self.expression()
        return AttributeNode(name, value, start, name_end, value.end)

    def end_of_argument(self) -> None:
        kind = self.kinds[self.at]
        if self.ends_item(kind):
            return
        if kind == ",":
            detail = "Argument definitions must be separated by newlines, not commas."
            self.reject("Unexpected comma after argument", detail)
        hint = "Write } on a line of its own." if kind == "}" else self.unit_hint()
        self.reject("Missing newline after argument", "An argument definition must end with a newline.", hint=hint)

    def unit_hint(self) -> str | None:
        """The correct form of `memory = 256M` or `memory = 1 GB`, when a unit follows a number."""
        at = self.at
        if (*self.kinds[at - 3 : at + 1],) != (IDENT, "=", NUMBER, IDENT):
            return None
        if self.ends[at - 1] != self.starts[at] and self.kinds[at + 1] in ("=", "{"):
            return None  # The next argument or block, on the same line.
        return unit_hint(self.word(at - 3), self.word(at - 1) + self.word(at))

    def ends_item(self, kind: str) -> bool:
        """Whether the next item may begin here; lenient files need no separator on one line, or a comma."""
        if kind == "," and self.is_lenient:
            self.at += 1
        return kind in (NEWLINE, END) or (self.is_lenient and kind in (",", "}", IDENT, STRING))

    # Blocks.

    def block(self) -> BlockNode:
        start, type_name = self.starts[self.at], self.word().strip('"')
        self.at += 1
        labels = self.labels()
        opening = self.at
        self.at += 1
        is_single = self.kinds[self.at] != NEWLINE and not self.is_lenient
        body = self.single_line_body(opening) if is_single else self.body(opening)
        end = self.ends[self.at]
        if self.kinds[self.at] == "}":
            self.at += 1
        return BlockNode(type_name, labels, body, self.starts[opening], start, end)

    def labels(self) -> tuple[Label, ...]:
        labels: list[Label] = []
        while True:
            kind, start, end = self.kinds[self.at], self.starts[self.at], self.ends[self.at]
            if kind == "{":
                return tuple(labels)
            if kind == IDENT:
                labels.append(Label(self.word(), start, end))
                self.at += 1
            elif kind == STRING:
                labels.append(Label(normalize(self.text[start + 1 : end - 1]), start, end))
                self.at += 1
            elif kind == OPEN_QUOTE:
                labels.append(self.quoted_label(start))
            elif kind == "=":
                detail = (
                    'The equals sign "=" indicates an argument definition, and must not be used when defining a block.'
                )
                self.reject("Invalid block definition", detail)
            else:
                detail = 'The content of a block stands between "{" and "}", starting on the line of the block header.'
                self.reject("Invalid block definition", detail)

    def quoted_label(self, start: int) -> Label:
        from .templates import parse_quoted

        index = self.at + 1
        while self.kinds[index] == TEXT:
            index += 1
        if self.kinds[index] in (INTERPOLATION, DIRECTIVE):
            sign = self.word(index)[0]
            detail = (
                "Template sequences are not allowed in this string. "
                f'To include a literal "{sign}", double it (as "{sign}{sign}") to escape it.'
            )
            place = OffsetDiagnostic("Invalid string literal", detail, self.starts[index], self.starts[index] + 2)
            self.problems.append(place)
            depth = 1
            while self.kinds[index] != END:
                depth += (self.kinds[index] == OPEN_QUOTE) - (self.kinds[index] == CLOSE_QUOTE)
                if not depth:
                    break
                index += 1
            self.at = index if self.kinds[index] == END else index + 1
            return Label("", start, self.ends[index])
        value = parse_quoted(self)
        text = getattr(value, "value", "")
        return Label(str(text), start, value.end)

    def single_line_body(self, opening: int) -> Body:
        """`type { name = value }`, or an empty block; after a mistake, read up to the brace."""
        try:
            return self.single_argument(opening)
        except SyntaxProblem as error:
            if not self.is_consequence(error.problem, self.starts[opening]):
                self.problems.append(error.problem)
            self.depth = 0
            self.recover(opening + 1, inside=True)
            return self.body(opening)

    def single_argument(self, opening: int) -> Body:
        missing = self.starts[opening]
        if self.kinds[self.at] == "}":
            return Body((), (), missing, self.ends[self.at])
        if self.kinds[self.at] != IDENT or self.kinds[self.at + 1] != "=":
            return self.not_single_line(opening)
        attribute = self.attribute()
        if self.kinds[self.at] == "}":
            return Body((attribute,), (), missing, self.ends[self.at])
        summary = "Invalid single-argument block definition"
        if self.kinds[self.at] == NEWLINE:
            detail = (
                "An argument on the line of the opening brace makes a single-line block, "
                "which must be closed on the same line, right behind the argument."
            )
            self.reject(summary, detail, hint="Begin a new line behind the opening brace.")
        detail = "A single-line block holds one argument only. Write several arguments on lines of their own."
        self.reject(summary, detail)

    def not_single_line(self, opening: int) -> Body:
        if self.kinds[self.at] == END:
            return self.body(opening)
        if self.kinds[self.at] in (STRING, OPEN_QUOTE):
            self.not_an_item(STRING)
        detail = "A single-line block can contain only a single argument. Begin a new line after the opening brace."
        self.reject("Invalid single-argument block definition", detail)

    def recover(self, begin: int, *, inside: bool) -> None:
        """Skip to the end of the line, and over whatever was opened since a token; `inside` a block its brace ends the
        skip too.
        """
        opened: list[str] = []
        for index in range(begin, self.at):
            self.track(opened, self.kinds[index])
        while self.kinds[self.at] != END:
            kind = self.kinds[self.at]
            if kind == NEWLINE and not opened:
                return
            if not self.track(opened, kind) and inside and kind == "}":
                return
            self.at += 1

    @staticmethod
    def track(opened: list[str], kind: str) -> bool:
        """Note what a token opens or closes; False for a closing one that closes nothing. A brace may be the end of a
        sequence in which something else was left open.
        """
        if kind in CLOSING_KIND:
            opened.append(CLOSING_KIND[kind])
            return True
        meant = (kind, SEQUENCE_END) if kind == "}" else (kind,)
        if kind not in _CLOSERS or not opened:
            return kind not in _CLOSERS
        last = next((at for at in range(len(opened) - 1, -1, -1) if opened[at] in meant), -1)
        if last >= 0:
            del opened[last:]
        return last >= 0
