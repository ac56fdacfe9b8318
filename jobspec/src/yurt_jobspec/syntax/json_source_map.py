"""Positions of the parts of a job in the API's JSON, so that errors about such a job name them too."""

from __future__ import annotations

from yurt_jobspec.diagnostics import JobspecError, SourceText
from yurt_jobspec.positions import Path_, Positions

from .jsonsyntax import JsonArray, JsonNode, JsonObject, read_json


def json_positions(source: str, *, filename: str) -> Positions | None:
    """The places of a job's parts, alone in its file or under the key Job; None for what this reader refuses, such as
    a file that is nested very deeply.
    """
    file = SourceText(filename, source)
    try:
        root = read_json(file)
    except JobspecError:
        return None
    wrapped = [node for label, node in root.members if label.text == "Job" and isinstance(node, JsonObject)]
    places: dict[Path_, tuple[int, int]] = {}
    _collect(wrapped[0] if wrapped else root, (), places)
    return Positions(file, places)


def _collect(node: JsonNode, path: Path_, places: dict[Path_, tuple[int, int]]) -> None:
    if isinstance(node, JsonObject):
        places.setdefault(path, (node.start, node.start + 1))
        for label, value in node.members:
            end = value.start + 1 if isinstance(value, (JsonObject, JsonArray)) else value.end
            places[(*path, label.text)] = (label.start, end)
            _collect(value, (*path, label.text), places)
    elif isinstance(node, JsonArray):
        for index, item in enumerate(node.items):
            places[(*path, index)] = (item.start, item.start + 1 if isinstance(item, JsonObject) else item.end)
            _collect(item, (*path, index), places)
