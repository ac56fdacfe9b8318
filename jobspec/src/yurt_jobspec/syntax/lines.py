"""Fast path: parses the most common kinds of lines without a lexer.

Such a line opens a block, closes it, is a block as a whole (`port "http" { to = 8080 }`), or sets an argument to a
value, a list of values or a heredoc. A value is a number, a reference (`var.name`), or a text that holds nothing but
references (`"${var.name}-${NOMAD_ALLOC_INDEX}"`). One match of a regular expression knows the line and its parts. Any
other item is cut out by the lexer and read by the parser of bodies, and then the next line is tried again.

Nothing here knows what a mistake is. Where a text is not plainly right the reading ends without a result, and the
caller has the whole file read by tokens, which tells all that is wrong. What must hold: a body read here is the very
body that those tokens would have given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from yurt_jobspec.numbers import parse_number

from .bodies import BodyParser
from .expressions import KEYWORDS, SyntaxProblem, normalize
from .lexer import MAX_NESTING, SURROGATE, start_of, tokenize_item
from .nodes import (
    Attr,
    AttributeNode,
    BlockNode,
    Body,
    Expr,
    Label,
    LiteralValue,
    RootVariable,
    TemplateExpr,
    TemplatePart,
    Traversal,
    TupleOf,
    Wrap,
)


def _all_of(pattern: str) -> str:
    """A possessive sequence of the patterns: no backtracking.

    Not `(?:...)*+`: before Python 3.11.5 the characters of an iteration that failed half-way stay consumed (gh-106052).
    """
    return rf"(?>(?:{pattern})*)"


_NAME = r"[A-Za-z_][A-Za-z0-9_-]*+"
_REFERENCE = _NAME + _all_of(rf"\.{_NAME}")
_NUMBER = r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_SEQUENCE = rf"\$\{{[ \t]*+{_REFERENCE}[ \t]*+\}}"
_TEXT = r'[^"\\$%\n]*+'
_SIGNS = r"[$%]++(?!\{)"
_PLAIN = '"' + _TEXT + _all_of(_SIGNS + _TEXT) + '"'
_STRING = '"' + _TEXT + _all_of(f"(?:{_SIGNS}|{_SEQUENCE}){_TEXT}") + '"'
_VALUE = rf"(?:{_STRING}|{_REFERENCE}|{_NUMBER})"
_GAP = _all_of(r"[ \t]|\r?\n")
_COMMENT = r"(?:\#|//)[^\n]*"
_LINE_END = rf"[ \t]*+(?:{_COMMENT})?(?:\r?\n|\Z)"
_SILENT_LINES = _all_of(rf"[ \t]*+(?:{_COMMENT})?\r?\n")
_LIST = rf"\[{_GAP}(?:{_VALUE}{_GAP}" + _all_of(f",{_GAP}{_VALUE}{_GAP}") + rf"(?:,{_GAP})?)?\]"
_LINE = re.compile(
    rf"""{_SILENT_LINES}[ \t]*+(?:                           # lines that say nothing
    ({_NAME})[ \t]*+(?:                                      # 1 name
        =[ \t]*+(?:
            ({_VALUE}){_LINE_END}                             # 2 its value
          | ({_LIST}){_LINE_END}                              # 3 its list of values
          | (<<-?{_NAME}[ \t]*\r?\n)                         # 4 the introduction of its heredoc
        )
      | ({_PLAIN})?[ \t]*+(\{{)(?:                           # 5 label and 6 brace of the block it opens
            {_LINE_END}
          | [ \t]*+(?:({_NAME})[ \t]*+=[ \t]*+({_VALUE})[ \t]*+)?(\}}){_LINE_END}   # 7 name, 8 value, 9 end on the line
        )
    )
  | (\}}){_LINE_END}                                          # 10 the end of a block
  | ((?:{_COMMENT})?\Z)                                      # 11 the end of the file
  | ()                                                       # 12 another item
    )""",
    re.VERBOSE,
)
_END, _OTHER = 11, 12
_EACH_VALUE = re.compile(_VALUE)
_EACH_SEQUENCE = re.compile(_SEQUENCE.replace(_REFERENCE, f"({_REFERENCE})"))
_INDENTATION = re.compile(r"^[ \t]*+(?=[^\S\n]*+\S)", re.MULTILINE)
"""That of a line which holds anything else."""


class _Unclear(Exception):
    """The fast path does not apply: the text is not in the simple form."""


class _Outer(NamedTuple):
    """The partly read enclosing body, and the head of the current block."""

    attributes: dict[str, AttributeNode]
    blocks: list[BlockNode]
    type: str
    labels: tuple[Label, ...]
    open: int
    start: int


class _LineReader:
    def __init__(self, text: str, *, is_lenient: bool) -> None:
        self.text = text
        self.is_lenient = is_lenient
        self.attributes: dict[str, AttributeNode] = {}
        self.blocks: list[BlockNode] = []
        self.outer: list[_Outer] = []

    def run(self) -> Body:
        text, match = self.text, _LINE.match
        at = start_of(text)
        while True:
            found = match(text, at)
            assert found is not None
            kind = found.lastindex
            if kind == _OTHER:
                at = self.item(found.end())
            elif kind != _END:
                at = _READERS[kind](self, found)
            elif self.outer:
                raise _Unclear
            else:
                return Body(tuple(self.attributes.values()), tuple(self.blocks), 0, len(text))

    # What a line may say; each method returns the offset behind it.

    def value(self, found: re.Match[str]) -> int:
        self.add(found, _value(self.text, *found.span(2)))
        return found.end()

    def values(self, found: re.Match[str]) -> int:
        text = self.text
        start, end = found.span(3)
        items = [_value(text, *each.span()) for each in _EACH_VALUE.finditer(text, start, end)]
        self.add(found, TupleOf(tuple(items), start, end))
        return found.end()

    def heredoc(self, found: re.Match[str]) -> int:
        start, inner = found.span(4)
        introduction = found[4]
        closing = _closing(introduction.strip("<- \t\r\n")).search(self.text, inner)
        text = "" if closing is None else normalize(self.text[inner : closing.start()])
        if closing is None or "${" in text or "%{" in text:
            return self.item(found.start(1))
        if introduction.startswith("<<-"):
            text = _without_indentation(text)
        self.add(found, TemplateExpr((text,) if text else (), inner, start, closing.end()))
        return closing.end()

    def add(self, found: re.Match[str], value: Expr) -> None:
        name = found[1]
        if name in self.attributes:
            raise _Unclear
        self.attributes[name] = AttributeNode(name, value, *found.span(1), value.end)

    def open(self, found: re.Match[str]) -> int:
        self.outer.append(
            _Outer(self.attributes, self.blocks, found[1], _labels(found), found.start(6), found.start(1))
        )
        if len(self.outer) >= MAX_NESTING:
            raise _Unclear
        self.attributes, self.blocks = {}, []
        return found.end()

    def whole(self, found: re.Match[str]) -> int:
        brace, end = found.start(6), found.end(9)
        attributes: tuple[AttributeNode, ...] = ()
        if found[7] is not None:
            value = _value(self.text, *found.span(8))
            attributes = (AttributeNode(found[7], value, *found.span(7), value.end),)
        body = Body(attributes, (), brace, end)
        self.blocks.append(BlockNode(found[1], _labels(found), body, brace, found.start(1), end))
        return found.end()

    def close(self, found: re.Match[str]) -> int:
        if not self.outer:
            raise _Unclear
        end = found.end(10)
        attributes, blocks, type_name, labels, brace, start = self.outer.pop()
        body = Body(tuple(self.attributes.values()), tuple(self.blocks), brace, end)
        blocks.append(BlockNode(type_name, labels, body, brace, start, end))
        self.attributes, self.blocks = attributes, blocks
        return found.end()

    def item(self, at: int) -> int:
        """Any other item at an offset, read by the token parser."""
        tokens = tokenize_item(self.text, at, len(self.outer))
        parser = BodyParser(self.text, tokens, is_lenient=self.is_lenient)
        if parser.is_word("for"):
            raise _Unclear  # whether a for expression begins here is seen from the brace before it
        parser.items(self.attributes, self.blocks)
        if tokens.problems or parser.problems:
            raise _Unclear
        return tokens.ends[-1]


_READERS: dict[int | None, Callable[[_LineReader, re.Match[str]], int]] = {
    2: _LineReader.value,
    3: _LineReader.values,
    4: _LineReader.heredoc,
    6: _LineReader.open,
    9: _LineReader.whole,
    10: _LineReader.close,
}
"""By the last part that a line has."""


def read_body(text: str, *, is_lenient: bool) -> Body | None:
    """The body of a file in native syntax; None when the token parser must read the whole file."""
    if not text.isascii() and SURROGATE.search(text):
        return None
    try:
        return _LineReader(text, is_lenient=is_lenient).run()
    except (_Unclear, SyntaxProblem, ValueError, RecursionError):
        return None


def _labels(found: re.Match[str]) -> tuple[Label, ...]:
    label = found[5]
    return () if label is None else (Label(normalize(label[1:-1]), *found.span(5)),)


def _value(text: str, start: int, end: int) -> Expr:
    """The value between these offsets."""
    first = text[start]
    if first == '"':
        return _string(text, start, end)
    if first.isdecimal():
        return LiteralValue(parse_number(text[start:end]), start, end)
    return _reference(text[start:end], start)


def _string(text: str, start: int, end: int) -> Expr:
    """The string between these offsets, quotes included."""
    inner = text[start + 1 : end - 1]
    if "${" not in inner:
        return LiteralValue(normalize(inner), start, end, True)
    parts: list[TemplatePart] = []
    at = start + 1
    for found in _EACH_SEQUENCE.finditer(text, at, end):
        if found.start() > at:
            parts.append(normalize(text[at : found.start()]))
        parts.append(_reference(found[1], found.start(1)))
        at = found.end()
    if at < end - 1:
        parts.append(normalize(text[at : end - 1]))
    elif len(parts) == 1 and not isinstance(parts[0], str):
        return Wrap(parts[0], start, end)
    return TemplateExpr(tuple(parts), start + 1, start, end)


def _reference(text: str, start: int) -> Expr:
    """`name`, or `name.attribute` of any length, at an offset."""
    name, *attributes = text.split(".")
    end = start + len(name)
    root: Expr = LiteralValue(KEYWORDS[name], start, end) if name in KEYWORDS else RootVariable(name, start, end)
    if not attributes:
        return root
    steps: list[Attr] = []
    for attribute in attributes:
        begin, end = end, end + 1 + len(attribute)
        steps.append(Attr(attribute, begin, end))
    return Traversal(root, tuple(steps), start, end)


@lru_cache(maxsize=64)
def _closing(mark: str) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*+{re.escape(mark)}(?=[ \t]*+\r?(?:\n|\Z))", re.MULTILINE)


def _without_indentation(text: str) -> str:
    """Remove the common indentation of a heredoc's lines; blank lines do not count."""
    least = min(map(len, _INDENTATION.findall(text)), default=0)
    return re.sub(rf"^[ \t]{{0,{least}}}", "", text, flags=re.MULTILINE) if least else text
