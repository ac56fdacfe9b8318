"""Collects the findings of all parts that read one file.

A hostile file can be wrong in a hundred thousand places. Each finding costs something to spell out (its line and
column, names that look alike), so only MAX_FINDINGS are, and the others are counted. A finding that occurs twice at
the same place is reported once.

The values of sensitive variables never stand in a finding: `hide` names them, and they are taken out of every text
before anybody sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from .diagnostics import Diagnostic, JobspecError, OffsetDiagnostic, Severity, SourceText

MAX_FINDINGS = 50
"""The maximum number of errors reported for one reading."""

CERTAIN = frozenset(
    ("Unsupported argument", "Unsupported block type", "Unsuitable value type", "Call to unknown function")
)
"""Errors that stay errors whatever stood in the parts of the file that could not be read."""
_HIDDEN = "(sensitive value)"
_SHORT = 4
"""Below this length a secret is only taken out where it stands alone, or every "1" of a message would go."""


class Findings:
    """Errors and warnings, in the order of their discovery."""

    __slots__ = ("_found", "_lines", "_seen", "is_narrowed", "more", "secrets")

    def __init__(self) -> None:
        self._found: dict[Severity, list[Diagnostic]] = {"error": [], "warning": []}
        self._seen: set[tuple[str, OffsetDiagnostic]] = set()
        self.more = 0
        self.secrets: set[str] = set()
        self.is_narrowed = False
        self._lines: frozenset[tuple[str | None, int | None]] = frozenset()

    @property
    def has_errors(self) -> bool:
        """Whether an error was found."""
        return bool(self._found["error"])

    def narrow(self) -> None:
        """Accept only CERTAIN errors from now on, on lines without errors: others may be consequences of those
        that were found before.
        """
        self.is_narrowed = True
        self._lines = frozenset((item.filename, item.line) for item in self._found["error"])

    def add(self, source: SourceText, problem: OffsetDiagnostic, severity: Severity = "error") -> None:
        """Add a finding with a place in a file."""
        key = (source.filename, problem)
        if key in self._seen:
            return
        if self.is_narrowed and problem.summary not in CERTAIN:
            return
        if len(self._found[severity]) >= MAX_FINDINGS:
            self.more += severity == "error"
            return
        self._seen.add(key)
        found = source.diagnostic(problem, severity)
        if (found.filename, found.line) not in self._lines:
            self._found[severity].append(found)

    def add_all(self, source: SourceText, problems: Iterable[OffsetDiagnostic]) -> None:
        """Add several findings of one file."""
        for problem in problems:
            self.add(source, problem)

    def add_diagnostic(self, diagnostic: Diagnostic) -> None:
        """Add a complete diagnostic, with or without a place."""
        shown = self._found[diagnostic.severity]
        if self.is_narrowed and diagnostic.summary not in CERTAIN:
            return
        if len(shown) < MAX_FINDINGS:
            shown.append(diagnostic)
        else:
            self.more += diagnostic.severity == "error"

    def hide(self, secrets: Iterable[str]) -> None:
        """Redact these texts in all findings."""
        self.secrets.update(text for text in secrets if text.strip())

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The warnings, which do not make the file invalid."""
        return tuple(self._masked(self._found["warning"]))

    def raise_errors(self, *, by_place: bool = False) -> None:
        """Raise JobspecError if there are errors, in the order of discovery or of the file."""
        errors = self._found["error"]
        if not errors:
            return
        if by_place:
            errors.sort(key=lambda item: (item.filename or "", item.line or 0, item.column or 0))
        shown = [*errors, *self._found["warning"]]
        if self.more:
            summary = f"{self.more} more error{'s' if self.more > 1 else ''}"
            shown.append(Diagnostic("error", summary, f"Only the first {MAX_FINDINGS} are shown.", errors[0].filename))
        raise JobspecError(self._masked(shown))

    def _masked(self, shown: list[Diagnostic]) -> list[Diagnostic]:
        if not self.secrets:
            return shown
        pattern = _pattern(self.secrets)
        return [
            replace(
                item,
                summary=pattern.sub(_HIDDEN, item.summary),
                detail=pattern.sub(_HIDDEN, item.detail),
                hint=item.hint and pattern.sub(_HIDDEN, item.hint),
            )
            for item in shown
        ]


def _pattern(secrets: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches any of the secrets, longest first."""
    alternatives = [
        re.escape(text) if len(text) >= _SHORT else rf"(?<!\w){re.escape(text)}(?!\w)"
        for text in sorted(secrets, key=len, reverse=True)
    ]
    return re.compile("|".join(alternatives))
