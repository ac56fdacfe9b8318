"""A template's text as tokens.

Outside the delimiters all is text; `{{- ` and ` -}}` trim the adjacent white space. Inside, white space only
separates: a token remembers whether some stood before it, because `.A .B` are two operands and `.A.B` is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from yurt.gotemplate.limits import TEXT_MAX
from yurt.gotemplate.source import TemplateText

BLANK = " \t\r\n"
KEYWORDS = frozenset(("block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template", "with"))
_WORD = re.compile(r"\w+")
_VARIABLE = re.compile(r"\$\w*")
_FIELD = re.compile(r"\.\w+")
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+"
    r"|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?)"
)
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_CHARACTER = re.compile(r"'(?:[^'\\\n]|\\.)+'")
_RAW = re.compile(r"`[^`]*`")
_PLACED = (":=", "=", "|", ",", "(", ")")


class Token(NamedTuple):
    """One token. Kinds: text, left, right, end, word, keyword, variable, field, dot, number, quoted, character, raw,
    and the punctuation marks themselves.
    """

    kind: str
    at: int
    text: str
    is_spaced: bool = False


def tokens(source: TemplateText, *, left: str, right: str) -> Iterator[Token]:
    """The tokens of a template, ended by one of kind `end`; raises TemplateError."""
    text, at = source.text, 0
    if len(text) > TEXT_MAX:
        raise source.error(0, f"the template is longer than {TEXT_MAX} characters")
    is_trimmed = False
    while True:
        opening = text.find(left, at)
        stop = len(text) if opening < 0 else opening
        piece = text[at:stop].lstrip(BLANK) if is_trimmed else text[at:stop]
        if opening < 0:
            if piece:
                yield Token("text", at, piece)
            yield Token("end", len(text), "end of the template")
            return
        inside = opening + len(left)
        if text.startswith("-", inside) and text[inside + 1 : inside + 2] in BLANK and inside + 1 < len(text):
            piece, inside = piece.rstrip(BLANK), inside + 2
        if piece:
            yield Token("text", at, piece)
        if text.startswith("/*", inside):
            at, is_trimmed = _comment(source, opening, inside, right)
            continue
        yield Token("left", opening, left)
        action = _Action(source, inside, right)
        yield from action
        at, is_trimmed = action.at, action.is_trimmed


def _comment(source: TemplateText, opening: int, inside: int, right: str) -> tuple[int, bool]:
    """Where the text goes on after a comment, and whether it is trimmed."""
    closing = source.text.find("*/", inside + 2)
    if closing < 0:
        raise source.error(opening, "unclosed comment")
    after, is_trimmed = _closed(source.text, closing + 2, right)
    if after < 0:
        raise source.error(opening, f"comment ends before closing delimiter: put {right} directly after */")
    return after, is_trimmed


def _closed(text: str, at: int, right: str) -> tuple[int, bool]:
    """Past the closing delimiter when one stands at `at` (else -1), and whether it trims."""
    if text[at : at + 1] in BLANK and text.startswith("-" + right, at + 1):
        return at + 2 + len(right), True
    return (at + len(right), False) if text.startswith(right, at) else (-1, False)


class _Action:
    """The tokens inside one pair of delimiters; `at` and `is_trimmed` hold afterwards."""

    def __init__(self, source: TemplateText, at: int, right: str) -> None:
        self.source = source
        self.at = at
        self.right = right
        self.is_trimmed = False
        self._open: list[int] = []

    def __iter__(self) -> Iterator[Token]:
        text, is_spaced = self.source.text, True
        while True:
            after, is_trimmed = _closed(text, self.at, self.right)
            if after >= 0:
                if self._open:
                    raise self.source.error(self._open[-1], "unclosed left paren")
                yield Token("right", self.at, self.right, is_spaced)
                self.at, self.is_trimmed = after, is_trimmed
                return
            if self.at >= len(text):
                raise self.source.error(self.at, f"unclosed action: {self.right} is missing")
            if text[self.at] in BLANK:
                self.at, is_spaced = self.at + 1, True
                continue
            token = self._token(is_spaced)
            yield token
            self.at, is_spaced = token.at + len(token.text), False

    def _token(self, is_spaced: bool) -> Token:
        text, at = self.source.text, self.at
        first = text[at]
        if first in "\"'`":
            return self._quoted(first, is_spaced)
        number = _NUMBER.match(text, at)
        if number is not None:
            if text[number.end() : number.end() + 1].isalnum():
                end = _WORD.match(text, number.end())
                raise self.source.error(at, f'bad number syntax: "{text[at : end.end() if end else at]}"')
            return Token("number", at, number.group(), is_spaced)
        for kind, pattern in (("field", _FIELD), ("variable", _VARIABLE), ("word", _WORD)):
            match = pattern.match(text, at)
            if match is not None:
                word = match.group()
                return Token("keyword" if kind == "word" and word in KEYWORDS else kind, at, word, is_spaced)
        if first == ".":
            return Token("dot", at, first, is_spaced)
        for mark in _PLACED:
            if text.startswith(mark, at):
                self._count(mark)
                return Token(mark, at, mark, is_spaced)
        raise self.source.error(at, f"unexpected {first!r} in action")

    def _count(self, mark: str) -> None:
        if mark == "(":
            self._open.append(self.at)
        elif mark == ")":
            if not self._open:
                raise self.source.error(self.at, "unexpected right paren")
            self._open.pop()

    def _quoted(self, first: str, is_spaced: bool) -> Token:
        kind, pattern, name = {
            '"': ("quoted", _QUOTED, "quoted string"),
            "'": ("character", _CHARACTER, "character constant"),
            "`": ("raw", _RAW, "raw quoted string"),
        }[first]
        match = pattern.match(self.source.text, self.at)
        if match is None:
            raise self.source.error(self.at, f"unterminated {name}")
        return Token(kind, self.at, match.group(), is_spaced)
