"""Formats a file in the canonical layout, for `yurt fmt`.

The formatter works on tokens, never on the tree, so it cannot lose anything: comments, blank lines and the text of
strings and heredocs stay as they are. It decides three things only: indentation (two spaces for each bracket that was
open at the start of the line), the spaces between two tokens of a line, and the column of the equals signs and of
trailing comments in runs of lines. Formatting a formatted file changes nothing. A file with syntax errors is
refused.
"""

from __future__ import annotations

from typing import NamedTuple

from .diagnostics import SourceText, character_count
from .syntax.lexer import (
    CLOSE_HEREDOC,
    CLOSE_QUOTE,
    DIRECTIVE,
    END,
    IDENT,
    INTERPOLATION,
    LINE,
    NEWLINE,
    NUMBER,
    OPEN_HEREDOC,
    OPEN_QUOTE,
    SEQUENCE_END,
    STRING,
    SURROGATE,
    TEXT,
    tokenize,
)
from .syntax.parser import parse_file

_INDENT = "  "
_TEMPLATE = (TEXT, LINE, CLOSE_QUOTE, CLOSE_HEREDOC)
_WIDE = ("==", "!=", "<=", ">=", "<", ">", "&&", "||", "+", "-", "*", "/", "%", "?", "=>", "=")
_TIGHT_AFTER = ("(", "[", ".", "!", "::", INTERPOLATION, DIRECTIVE)
_TIGHT_BEFORE = (")", "]", ",", ".", "...", "::")
_OPERAND_END = (IDENT, NUMBER, STRING, CLOSE_QUOTE, CLOSE_HEREDOC, ")", "]", "}", SEQUENCE_END)


class _Item(NamedTuple):
    """A token or a comment, with its text."""

    kind: str
    text: str
    start: int
    end: int


class _Row(NamedTuple):
    """An output line; `name` stands before an equals sign to align, `comment` is the trailing comment."""

    depth: int
    name: str
    rest: str
    comment: str
    opens: bool = False
    """Does a bracket that was opened on the line stay open?"""


def format_source(source: str) -> str:
    """The source in the canonical layout; raises JobspecError for a syntax error."""
    if source.lstrip("\ufeff \t\r\n").startswith("{"):
        return _format_json(source)
    text = source.replace("\r\n", "\n")
    parse_file(SourceText("", text), is_lenient=True)
    rows = _Rows(text).read()
    lines = _aligned(rows)
    result = "\n".join(lines).strip("\n")
    return result + "\n" if result else ""


def _format_json(source: str) -> str:
    import json

    from .syntax.jsonsyntax import read_json

    read_json(SourceText("", source))
    text = json.dumps(json.loads(source), indent=2, ensure_ascii=False)
    return SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def _items(text: str) -> list[_Item]:
    """Tokens and comments in file order, with the line ends that the lexer drops inside brackets."""
    tokens = tokenize(text)
    items = [
        _Item(kind, text[start:end], start, end)
        for kind, start, end in zip(tokens.kinds, tokens.starts, tokens.ends, strict=True)
        if kind not in (NEWLINE, END)
    ]
    for comment in tokens.comments:
        body = text[comment.start : comment.end].rstrip("\n")
        items.append(
            _Item(
                "comment",
                body.rstrip() if not body.startswith("/*") else body,
                comment.start,
                comment.start + len(body),
            )
        )
    return sorted(items, key=lambda item: item.start)


class _Rows:
    """Groups items into rows: items on one line stay on one line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.rows: list[_Row] = []
        self.depth = 0
        self.inside = 0
        """How many quotes and heredocs are open."""

    def read(self) -> list[_Row]:
        items = _items(self.text)
        at, previous_end = 0, 0
        while at < len(items):
            stop = self.line_end(items, at)
            gap = self.text.count("\n", previous_end, items[at].start)
            if self.rows and gap > 1:
                self.rows.append(_Row(0, "", "", ""))
            self.add(items[at:stop])
            previous_end = items[stop - 1].end
            at = stop
        return self.rows

    def line_end(self, items: list[_Item], at: int) -> int:
        """The index after the last item of the line that begins at `at`."""
        inside = 0
        for index in range(at, len(items)):
            kind = items[index].kind
            if kind in (OPEN_QUOTE, OPEN_HEREDOC):
                inside += 1
            elif kind in (CLOSE_QUOTE, CLOSE_HEREDOC):
                inside -= 1
            following = items[index + 1] if index + 1 < len(items) else None
            if following is None or (inside == 0 and "\n" in self.text[items[index].end : following.start]):
                return index + 1
        return len(items)

    def add(self, items: list[_Item]) -> None:
        comment = ""
        if len(items) > 1 and items[-1].kind == "comment":
            comment = items[-1].text
            items = items[:-1]
        closers = 0
        for item in items:
            if item.kind not in ("}", ")", "]"):
                break
            closers += 1
        balance = _balance(items)
        depth = max(0, self.depth - closers)
        self.depth = max(0, self.depth + balance)
        name, rest = self.split(items, opens=balance > 0)
        self.rows.append(_Row(depth, name, rest, comment, balance > 0))

    def split(self, items: list[_Item], *, opens: bool) -> tuple[str, str]:
        """(`name`, rest) of an alignable `name = value`, otherwise ("", everything)."""
        if not opens and len(items) > 2 and items[0].kind in (IDENT, STRING) and items[1].kind == "=":
            return items[0].text, self.join(items[1:])
        return "", self.join(items)

    def join(self, items: list[_Item]) -> str:
        text = ""
        quoted = 0
        for index, item in enumerate(items):
            if index and not quoted and _space_between(items, index):
                text += " "
            elif quoted and index:
                text += self.text[items[index - 1].end : item.start]
            if item.kind in (OPEN_QUOTE, OPEN_HEREDOC):
                quoted += 1
            text += item.text
            if item.kind in (CLOSE_QUOTE, CLOSE_HEREDOC):
                quoted -= 1
        return text


def _balance(items: list[_Item]) -> int:
    """The number of opening minus closing brackets, template markers excluded."""
    opened = closed = quoted = 0
    for item in items:
        if item.kind in (OPEN_QUOTE, OPEN_HEREDOC):
            quoted += 1
        elif item.kind in (CLOSE_QUOTE, CLOSE_HEREDOC):
            quoted -= 1
        elif quoted:
            continue
        elif item.kind in ("{", "(", "["):
            opened += 1
        elif item.kind in ("}", ")", "]"):
            closed += 1
    return opened - closed


def _space_between(items: list[_Item], index: int) -> bool:
    before, after = items[index - 1], items[index]
    if "comment" in (before.kind, after.kind):
        return True
    if before.kind in _TEMPLATE or after.kind in _TEMPLATE:
        return before.kind in (CLOSE_QUOTE, CLOSE_HEREDOC) and after.kind not in (*_TIGHT_BEFORE, "[", ":")
    if after.kind in _TIGHT_BEFORE or before.kind in _TIGHT_AFTER:
        return False
    if before.kind == "{" and after.kind == "}":
        return False
    if after.kind in ("(", "["):
        return not _is_postfix(items, index)
    if after.kind == ":":
        return _conditional_colon(items, index)
    if before.kind == "-":
        return index > 1 and items[index - 2].kind in _OPERAND_END
    return not (before.kind == "*" and after.kind == "]")


def _is_postfix(items: list[_Item], index: int) -> bool:
    """Whether the bracket belongs to the name or value before it."""
    before = items[index - 1]
    if before.kind == IDENT and before.text in ("in", "if") and index > 1:
        return False
    return before.kind in _OPERAND_END and before.end == items[index].start


def _conditional_colon(items: list[_Item], index: int) -> bool:
    """Whether the colon is a conditional's, which has a space before it."""
    depth = 0
    for item in reversed(items[:index]):
        if item.kind in (")", "]", "}"):
            depth += 1
        elif item.kind in ("(", "[", "{"):
            if depth == 0:
                return False
            depth -= 1
        elif item.kind == "?" and depth == 0:
            return True
    return False


def _aligned(rows: list[_Row]) -> list[str]:
    """The lines, with aligned equals signs and trailing comments within each run of rows."""
    texts = [row.rest if not row.name else "" for row in rows]
    for start, stop in _runs(rows):
        width = max(character_count(rows[index].name) for index in range(start, stop))
        for index in range(start, stop):
            row = rows[index]
            texts[index] = row.name + " " * (width - character_count(row.name)) + " " + row.rest
    lines = [(_INDENT * row.depth + text if text else "") for row, text in zip(rows, texts, strict=True)]
    _align_comments(rows, lines)
    return lines


def _runs(rows: list[_Row]) -> list[tuple[int, int]]:
    """Runs of adjacent arguments of the same depth; an argument that leaves a bracket open is a run of its own."""
    runs: list[tuple[int, int]] = []
    start: int | None = None
    for index, row in enumerate(rows):
        if start is not None and (not row.name or row.depth != rows[start].depth):
            runs.append((start, index))
            start = None
        if row.name and start is None:
            start = index
    if start is not None:
        runs.append((start, len(rows)))
    return runs


def _align_comments(rows: list[_Row], lines: list[str]) -> None:
    start = 0
    while start < len(rows):
        stop = start
        while stop < len(rows) and rows[stop].comment and "\n" not in lines[stop]:
            stop += 1
        if stop > start:
            width = max(character_count(lines[index]) for index in range(start, stop))
            for index in range(start, stop):
                lines[index] += " " * (width - character_count(lines[index])) + " " + rows[index].comment
        elif rows[start].comment:
            lines[start] += " " + rows[start].comment
            stop = start + 1
        start = max(stop, start + 1)
