"""Parses quoted strings and heredocs with sequences.

A template is read in three passes. The first turns its tokens into a flat list of pieces: text, interpolations and
directives, with the strip markers (`~`) already applied; a marker strips the neighbouring piece of text only, and in
a heredoc each line is a piece of its own. The second takes the common indentation off a `<<-` heredoc. The third
folds `if`, `else`, `for` and their ends into a tree.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from yurt_jobspec.diagnostics import OffsetDiagnostic

from .expressions import ExpressionParser, SyntaxProblem, normalize
from .lexer import (
    CLOSE_HEREDOC,
    CLOSE_QUOTE,
    DIRECTIVE,
    END,
    IDENT,
    INTERPOLATION,
    LINE,
    MAX_NESTING,
    OPEN_HEREDOC,
    SEQUENCE_END,
    TEXT,
)
from .nodes import Expr, LiteralValue, TemplateExpr, TemplateFor, TemplateIf, TemplatePart, Wrap

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|\$\$(?=\{)|%%(?=\{)", re.DOTALL)
_SIMPLE_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_DOUBLED = re.compile(r"([$%])\1(?=\{)")


class _Piece(NamedTuple):
    """An item of the flat list; `kind` is text, value, if, else, endif, for or endfor."""

    kind: str
    start: int
    end: int
    text: str = ""
    value: Expr | None = None
    names: tuple[str | None, str] = (None, "")


def parse_quoted(parser: ExpressionParser) -> Expr:
    """The template at the parser's position."""
    opening = parser.at
    heredoc = parser.kinds[opening] == OPEN_HEREDOC
    parser.at += 1
    pieces = _pieces(parser, heredoc)
    start, inner, end = parser.starts[opening], parser.ends[opening], parser.ends[parser.at]
    if heredoc and parser.word(opening).startswith("<<-"):
        pieces = _without_indentation(pieces)
    fold = _Fold(parser, pieces)
    parts = fold.parts(())
    if parser.kinds[parser.at] != END:
        parser.at += 1
    if not heredoc and len(pieces) == 1 and pieces[0].value is not None and pieces[0].kind == "value":
        return Wrap(pieces[0].value, start, end)
    if all(isinstance(part, str) for part in parts) and not heredoc:
        return LiteralValue("".join(part for part in parts if isinstance(part, str)), start, end, True)
    return TemplateExpr(parts, inner, start, end)


def parse_template(parser: ExpressionParser) -> Expr:
    """A bare template, as in JSON strings; the lexer started inside it."""
    pieces = _pieces(parser, True)
    parts = _Fold(parser, pieces).parts(())
    end = parser.ends[parser.at]
    if len(pieces) == 1 and pieces[0].value is not None and pieces[0].kind == "value":
        return Wrap(pieces[0].value, 0, end)
    return TemplateExpr(parts, 0, 0, end)


def _pieces(parser: ExpressionParser, heredoc: bool) -> list[_Piece]:
    pieces: list[_Piece] = []
    strip_next = False
    while True:
        kind = parser.kinds[parser.at]
        if kind in (CLOSE_QUOTE, CLOSE_HEREDOC, END):
            return pieces
        start, end = parser.starts[parser.at], parser.ends[parser.at]
        if kind in (TEXT, LINE):
            raw = parser.text[start:end]
            text = normalize(_DOUBLED.sub(r"\1", raw) if heredoc else _unescape(parser, raw, start))
            pieces.append(_Piece("text", start, end, text.lstrip() if strip_next else text))
            strip_next = False
            parser.at += 1
            continue
        if parser.word().endswith("~") and pieces and pieces[-1].kind == "text":
            pieces[-1] = pieces[-1]._replace(text=pieces[-1].text.rstrip())
        pieces.append(_sequence(parser, kind))
        strip_next = parser.word(parser.at - 1) == "~}"


def _unescape(parser: ExpressionParser, raw: str, offset: int) -> str:
    if "\\" not in raw and "{" not in raw:
        return raw

    def replace(found: re.Match[str]) -> str:
        short, long, char = found.groups()
        if short or long:
            code = int(short or long, 16)
            if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:
                return chr(code)
        elif char is None:
            return found[0][0]
        elif char in _SIMPLE_ESCAPES:
            return _SIMPLE_ESCAPES[char]
        start = offset + found.start()
        detail = f'The text "{found[0]}" is not a valid escape. Known are \\n \\r \\t \\" \\\\ \\uNNNN and \\UNNNNNNNN.'
        parser.problems.append(
            OffsetDiagnostic(
                "Invalid escape sequence", detail, start, offset + found.end(), "Double the backslash to write it."
            )
        )
        return found[0]

    return _ESCAPE.sub(replace, raw)


_CLOSE = "Close the expression with }, or write $${ for the characters themselves."


def _sequence(parser: ExpressionParser, kind: str) -> _Piece:
    opening = parser.at
    parser.at += 1
    if kind == INTERPOLATION:
        value = parser.expression()
        detail = "Expected a closing brace to end the interpolation expression, but found extra characters."
        parser.expect(SEQUENCE_END, "Extra characters after interpolation expression", detail, hint=_CLOSE)
        return _Piece("value", value.start, value.end, value=value)
    assert kind == DIRECTIVE
    keyword = parser.word() if parser.kinds[parser.at] == IDENT else ""
    piece = _directive(parser, keyword)
    detail = "Expected a closing brace to end this directive, but found extra characters."
    parser.expect(SEQUENCE_END, "Extra characters in directive", detail)
    return piece._replace(start=parser.starts[opening], end=parser.ends[parser.at - 1])


def _directive(parser: ExpressionParser, keyword: str) -> _Piece:
    index = parser.at
    if keyword:
        parser.at += 1
    if keyword in ("else", "endif", "endfor"):
        return _Piece(keyword, 0, 0)
    if keyword == "if":
        return _Piece("if", 0, 0, value=parser.expression())
    if keyword == "for":
        names = parser.for_names("for")
        return _Piece("for", 0, 0, value=parser.expression(), names=names)
    detail = (
        f'"{keyword}" is not a valid template directive.'
        if keyword
        else "A template directive keyword is expected after '%{'."
    )
    hint = "Known are if, else, endif, for and endfor; double the percent sign (%%{) to write it as text."
    parser.problems.append(
        OffsetDiagnostic("Invalid template directive", detail, parser.starts[index], parser.ends[index], hint)
    )
    while parser.kinds[parser.at] not in (SEQUENCE_END, END):
        parser.at += 1
    return _Piece("text", 0, 0)


def _without_indentation(pieces: list[_Piece]) -> list[_Piece]:
    """Remove the common indentation of all lines; blank lines do not count."""
    least: int | None = None
    starts_line = True
    first: list[int] = []
    for index, piece in enumerate(pieces):
        if starts_line:
            width = _indentation(piece)
            if width is not None:
                least = width if least is None else min(least, width)
            first.append(index)
        starts_line = piece.kind == "text" and piece.text.endswith("\n")
    result = list(pieces)
    for index in first:
        piece = pieces[index]
        if piece.kind == "text" and least:
            cut = min(least, len(piece.text) - len(piece.text.lstrip(" \t")))
            result[index] = piece._replace(text=piece.text[cut:])
    return result


def _indentation(piece: _Piece) -> int | None:
    if piece.kind != "text":
        return 0
    if not piece.text.strip():
        return None if piece.text.endswith("\n") else len(piece.text)
    return len(piece.text) - len(piece.text.lstrip(" \t"))


class _Fold:
    """Converts the flat list to a tree."""

    def __init__(self, parser: ExpressionParser, pieces: list[_Piece]) -> None:
        self.parser = parser
        self.pieces = pieces
        self.at = 0
        self.depth = 0

    def parts(self, until: tuple[str, ...], opening: _Piece | None = None) -> tuple[TemplatePart, ...]:
        parts: list[TemplatePart] = []
        self.depth += 1
        if self.depth > MAX_NESTING and opening is not None:
            raise SyntaxProblem(
                OffsetDiagnostic(
                    "Nested too deeply",
                    f"Directives may be nested {MAX_NESTING} deep at most.",
                    opening.start,
                    opening.end,
                )
            )
        while self.at < len(self.pieces):
            piece = self.pieces[self.at]
            if piece.kind in until:
                self.depth -= 1
                return tuple(parts)
            self.at += 1
            self._add(parts, piece)
        if opening is not None:
            self._unclosed(opening)
        return tuple(parts)

    def _add(self, parts: list[TemplatePart], piece: _Piece) -> None:
        if piece.kind == "text":
            if parts and isinstance(parts[-1], str):
                parts[-1] += piece.text
            elif piece.text:
                parts.append(piece.text)
        elif piece.kind == "value":
            assert piece.value is not None
            parts.append(piece.value)
        elif piece.kind == "if":
            parts.append(self._if(piece))
        elif piece.kind == "for":
            parts.append(self._for(piece))
        else:
            detail = (
                f"This {piece.kind} directive has no matching {'for' if piece.kind == 'endfor' else 'if'} directive."
            )
            problem = OffsetDiagnostic(f"Unexpected {piece.kind} directive", detail, piece.start, piece.end)
            self.parser.problems.append(problem)

    def _if(self, opening: _Piece) -> TemplateIf:
        assert opening.value is not None
        yes = self.parts(("else", "endif"), opening)
        no: tuple[TemplatePart, ...] = ()
        if self._next() == "else":
            self.at += 1
            no = self.parts(("endif",), opening)
        end = self._close(opening)
        return TemplateIf(opening.value, yes, no, opening.start, end)

    def _for(self, opening: _Piece) -> TemplateFor:
        assert opening.value is not None
        body = self.parts(("endfor",), opening)
        return TemplateFor(*opening.names, opening.value, body, opening.start, self._close(opening))

    def _next(self) -> str:
        return self.pieces[self.at].kind if self.at < len(self.pieces) else ""

    def _close(self, opening: _Piece) -> int:
        if self.at >= len(self.pieces):
            return opening.end
        self.at += 1
        return self.pieces[self.at - 1].end

    def _unclosed(self, opening: _Piece) -> None:
        index = self.parser.at
        detail = f"The {opening.kind} directive is missing its corresponding end{opening.kind} directive."
        raise SyntaxProblem(
            OffsetDiagnostic("Unexpected end of template", detail, self.parser.starts[index], self.parser.ends[index])
        )
