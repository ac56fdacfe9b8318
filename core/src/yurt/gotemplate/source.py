"""The text of a template, and lines and columns in it."""

from __future__ import annotations

from yurt.gotemplate.errors import TemplateError


class TemplateText:
    """A named text."""

    __slots__ = ("name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def error(self, at: int, problem: str) -> TemplateError:
        """The problem with the line and column of an offset."""
        before = self.text[:at]
        line = before.count("\n") + 1
        return TemplateError(problem, name=self.name, line=line, column=at - before.rfind("\n"))
