"""Diagnostics: problems of a job file with their positions.

The parser and the evaluator speak of places as character offsets, which cost nothing to carry. A `SourceText` turns
offsets into lines and columns when a diagnostic is made, and never before: a file without errors pays nothing. Lines
and columns start at 1; a column counts what a reader sees as one character, so combining marks and joined emoji do
not shift it.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Severity = Literal["error", "warning"]

_EXACT_COLUMNS = 10_000
"""Beyond this column nobody counts by eye, and counting would take time."""
_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding; `line` and the other positions are None for a finding without a place in a file."""

    severity: Severity
    summary: str
    detail: str
    filename: str | None = None
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.filename}:{self.line}:{self.column}: " if self.line is not None else ""
        return f"{place}{self.summary}: {self.detail}"


class SourceRange(NamedTuple):
    """A range in a file; lines and columns count from 1, the end is exclusive."""

    filename: str
    line: int
    column: int
    end_line: int
    end_column: int


class JobspecError(Exception):
    """The job file cannot be used; `diagnostics` holds every finding, errors first."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        super().__init__("\n".join(str(item) for item in self.diagnostics))


class Near(NamedTuple):
    """An unknown name and the possible ones; they are compared only when the hint is read."""

    name: str
    names: tuple[str, ...]
    otherwise: str | None = None

    def hint(self) -> str | None:
        """ "Did you mean ...?" for the most similar name, if any."""
        from difflib import get_close_matches

        close = get_close_matches(self.name, self.names, 1, 0.7)
        return f'Did you mean "{close[0]}"?' if close else self.otherwise


class OffsetDiagnostic(NamedTuple):
    """A finding whose place is a pair of offsets into the current file."""

    summary: str
    detail: str
    start: int
    end: int
    hint: str | Near | None = None


class EvaluationError(Exception):
    """An expression cannot be evaluated; the caller that knows the file converts it to diagnostics."""

    def __init__(self, problems: Sequence[OffsetDiagnostic]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(item.detail for item in self.problems))


def fail(summary: str, detail: str, start: int, end: int, *, hint: str | Near | None = None) -> EvaluationError:
    """An EvaluationError with one problem, for the caller to raise."""
    return EvaluationError((OffsetDiagnostic(summary, detail, start, end, hint),))


class SourceText:
    """The text and name of one file, with a line table that is built on demand."""

    __slots__ = ("_starts", "filename", "text")

    def __init__(self, filename: str, text: str) -> None:
        self.filename = filename
        self.text = text
        self._starts: list[int] | None = None

    def position(self, offset: int) -> tuple[int, int]:
        """(line, column) of an offset."""
        if self._starts is None:
            self._starts = line_starts(self.text)
        line = bisect_right(self._starts, offset)
        return line, character_count(self.text[self._starts[line - 1] : offset]) + 1

    def range(self, start: int, end: int) -> SourceRange:
        """The range between two offsets."""
        return SourceRange(self.filename, *self.position(start), *self.position(max(start, end)))

    def diagnostic(self, problem: OffsetDiagnostic, severity: Severity = "error") -> Diagnostic:
        """The finding with its offsets converted to lines and columns."""
        place = self.range(problem.start, problem.end)
        hint = problem.hint.hint() if isinstance(problem.hint, Near) else problem.hint
        return Diagnostic(severity, problem.summary, problem.detail, *place, hint=hint)


def line_starts(text: str) -> list[int]:
    """The offsets of the beginnings of lines."""
    starts = [0]
    at = text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


def character_count(text: str) -> int:
    """The number of user-perceived characters; combining marks and joined emoji count with their base."""
    if text.isascii() or len(text) > _EXACT_COLUMNS:
        return len(text)
    return sum(1 for _ in characters(text))


def characters(text: str) -> list[str]:
    """The text as a list of user-perceived characters."""
    clusters: list[str] = []
    joined = False
    for char in text:
        extends = (
            joined or _extends(char) or (char == "\n" and clusters and clusters[-1] == "\r") or _pairs(clusters, char)
        )
        if clusters and extends:
            clusters[-1] += char
        else:
            clusters.append(char)
        joined = char == _JOINER
    return clusters


def _extends(char: str) -> bool:
    return char == _JOINER or ord(char) in _SKIN_TONES or unicodedata.category(char) in ("Mn", "Me", "Mc")


def _pairs(clusters: list[str], char: str) -> bool:
    """Two regional indicators make one flag."""
    return (
        0x1F1E6 <= ord(char) <= 0x1F1FF
        and bool(clusters)
        and len(clusters[-1]) == 1
        and 0x1F1E6 <= ord(clusters[-1]) <= 0x1F1FF
    )
