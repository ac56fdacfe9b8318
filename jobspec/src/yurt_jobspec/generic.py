"""Reads configuration files without a schema: attributes and blocks as plain data, whose names the caller checks.

A block becomes an entry of a list under its name, and each label a key around its content: `client { }` gives
{"client": [{...}]} and `plugin "docker" { }` gives {"plugin": [{"docker": [{...}]}]}, in native syntax and in JSON
alike for the objects that are written as such. Keys may be quoted, and functions and references are available as far
as they need nothing from outside.
"""

from __future__ import annotations

from typing import Any

from .diagnostics import EvaluationError, SourceText
from .evaluator import Evaluator, NameScope
from .findings import Findings
from .plain_data import to_plain
from .positions import Path_, Positions
from .syntax.nodes import Body, LiteralValue
from .syntax.parser import parse_file, too_deep

_NOWHERE = LiteralValue(None, 0, 0)


def parse_body(source: str, *, filename: str) -> dict[str, Any]:
    """The file as plain data; raises JobspecError."""
    return parse_body_with_positions(source, filename=filename)[0]


def parse_body_with_positions(source: str, *, filename: str) -> tuple[dict[str, Any], Positions]:
    """The file as plain data, and the position of each part."""
    file = SourceText(filename, source)
    reader = _BodyReader(file)
    data: dict[str, Any] = {}
    try:
        data = reader.body(_read(file), ())
    except RecursionError:
        raise too_deep(file) from None
    except EvaluationError as error:
        reader.findings.add_all(file, error.problems)
    reader.findings.raise_errors()
    return data, Positions(file, reader.places)


def _read(source: SourceText) -> Body:
    if source.text.lstrip("\ufeff \t\r\n").startswith("{"):
        from .syntax.jsonsyntax import parse_json_body

        return parse_json_body(source)
    return parse_file(source, is_lenient=True)


class _BodyReader:
    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.evaluator = Evaluator(source.text)
        self.scope = NameScope({})
        self.findings = Findings()
        self.places: dict[Path_, tuple[int, int]] = {}

    def charge(self, elements: int) -> None:
        self.evaluator.budget.charge(elements, _NOWHERE)

    def body(self, body: Body, path: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for attribute in body.attributes:
            self.places[(*path, attribute.name)] = (attribute.start, attribute.end)
            try:
                result[attribute.name] = to_plain(self.evaluator.evaluate(attribute.value, self.scope), self.charge)
            except EvaluationError as error:
                self.findings.add_all(self.source, error.problems)
        for block in body.blocks:
            siblings = result.setdefault(block.type, [])
            if not isinstance(siblings, list):
                siblings = result[block.type] = [siblings]
            here: Path_ = (*path, block.type, len(siblings))
            self.places[here] = (block.start, block.labels[-1].end if block.labels else block.name_end)
            inner = here
            for label in block.labels:
                inner = (*inner, label.text, 0)
                self.places[inner[:-1]] = (label.start, label.end)
            content: dict[str, Any] = self.body(block.body, inner)
            for label in reversed(block.labels):
                content = {label.text: [content]}
            siblings.append(content)
        return result
