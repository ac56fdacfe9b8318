"""Template errors with their positions."""

from __future__ import annotations

from yurt.sdk.errors import Invalid


class TemplateError(Invalid):
    """A template that does not parse or that fails on its data; `line` and `column` count characters from 1."""

    def __init__(self, problem: str, *, name: str, line: int, column: int) -> None:
        super().__init__(f"{name}:{line}:{column}: {problem}")
        self.problem = problem
        self.name = name
        self.line = line
        self.column = column


class EvaluationFailure(Exception):
    """A failure whose place the caller knows."""
