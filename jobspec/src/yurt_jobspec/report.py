"""Renders diagnostics for people and for tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .diagnostics import Diagnostic, character_count, characters

_RED, _YELLOW, _BLUE, _BOLD, _RESET = "\033[31m", "\033[33m", "\033[36m", "\033[1m", "\033[0m"
_MAX_LINE = 200
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(diagnostics: Sequence[Diagnostic], sources: Mapping[str, str], *, color: bool = False) -> str:
    """Diagnostics as text, each with its place, the underlined line and a hint. `sources` maps file names to texts."""
    lines = {name: text.split("\n") for name, text in sources.items()}
    return "\n".join(_one(item, lines, color) for item in diagnostics)


def _one(item: Diagnostic, lines: Mapping[str, list[str]], color: bool) -> str:
    paint = _RED if item.severity == "error" else _YELLOW
    parts = [_painted(f"{item.severity.capitalize()}: {item.summary}", _BOLD + paint, color)]
    if item.line is not None:
        parts.append(f"  {item.filename}:{item.line}:{item.column}")
        parts.extend(_excerpt(item, lines.get(item.filename or "", []), paint, color))
    if item.detail:
        parts.append(f"  {item.detail}")
    if item.hint:
        parts.append(_painted(f"  Hint: {item.hint}", _BLUE, color))
    return "\n".join(parts) + "\n"


def _excerpt(item: Diagnostic, lines: list[str], paint: str, color: bool) -> list[str]:
    """The line, and carets below the reported part."""
    if item.line is None or not 1 <= item.line <= len(lines):
        return []
    text = _printable(lines[item.line - 1].rstrip("\r"))
    start = (item.column or 1) - 1
    one_line = item.end_line == item.line and item.end_column is not None
    end = item.end_column - 1 if one_line and item.end_column is not None else character_count(text)
    if start > _MAX_LINE:
        text, start, end = "...", 0, 3
    elif len(text) > _MAX_LINE:
        text = text[:_MAX_LINE] + "..."
    number = str(item.line)
    padding = "".join("\t" if char == "\t" else " " for char in characters(text)[:start])
    carets = "^" * max(1, min(end, _MAX_LINE) - start)
    return [
        f"  {' ' * len(number)} |",
        f"  {number} | {text}",
        f"  {' ' * len(number)} | {padding}{_painted(carets, paint, color)}",
    ]


def _printable(text: str) -> str:
    """The text with control characters escaped: they must not reach a terminal."""
    return "".join(char if char == "\t" or char.isprintable() else "\ufffd" for char in text)


def _painted(text: str, paint: str, color: bool) -> str:
    return f"{paint}{text}{_RESET}" if color else text


def to_json(diagnostics: Sequence[Diagnostic]) -> list[dict[str, Any]]:
    """The diagnostics as JSON objects; unknown fields are omitted."""
    fields = ("severity", "summary", "detail", "filename", "line", "column", "end_line", "end_column", "hint")
    return [{name: getattr(item, name) for name in fields if getattr(item, name) is not None} for item in diagnostics]


def to_sarif(diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """The diagnostics as a SARIF 2.1.0 log, which code hosts and editors display."""
    rules = sorted({_rule(item) for item in diagnostics})
    driver = {"name": "yurt-jobspec", "rules": [{"id": rule} for rule in rules]}
    return {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [_result(item) for item in diagnostics]}],
    }


def _rule(item: Diagnostic) -> str:
    words = "".join(char if char.isalnum() else " " for char in item.summary.split('"')[0].lower()).split()
    return "-".join(words)


def _result(item: Diagnostic) -> dict[str, Any]:
    text = f"{item.summary}: {item.detail}" + (f" {item.hint}" if item.hint else "")
    result: dict[str, Any] = {"ruleId": _rule(item), "level": item.severity, "message": {"text": text}}
    if item.line is not None:
        region = {
            "startLine": item.line,
            "startColumn": item.column,
            "endLine": item.end_line,
            "endColumn": item.end_column,
        }
        place = {
            "artifactLocation": {"uri": item.filename},
            "region": {key: value for key, value in region.items() if value is not None},
        }
        result["locations"] = [{"physicalLocation": place}]
    return result
