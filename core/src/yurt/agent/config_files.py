"""Reads configuration files: HCL or JSON, JSON also without an extension; a directory gives its .hcl and .json files
by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from yurt.agent.config_check import check, merge
from yurt.agent.config_keys import ROOT
from yurt.sdk.errors import Invalid

FILE_BYTES_MAX = 16 * 1024 * 1024

PlaceOf: TypeAlias = Callable[[tuple[str | int, ...]], str]
"""Returns `:line:column` of a part of the file, or "" when unknown."""


class SourceFile(msgspec.Struct, frozen=True):
    """One file as it was read."""

    name: str
    data: Mapping[str, Any]
    place_of: PlaceOf


class ConfigSources(msgspec.Struct, frozen=True):
    """The files that a configuration was read from, in their order."""

    files: tuple[SourceFile, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Their paths."""
        return tuple(file.name for file in self.files)

    def place_of(self, keys: tuple[str, ...]) -> str:
        """`file:line:column` of the value that counts, or of the nearest block around it; "" where no file has it."""
        found = ""
        for file in self.files:
            path = _path_in(file.data, keys)
            if path is not None:
                found = f"{file.name}{file.place_of(path)}"
        return found or (self.place_of(keys[:-1]) if len(keys) > 1 else "")


NO_SOURCES = ConfigSources()


def _path_in(data: Any, keys: tuple[str, ...]) -> tuple[str | int, ...] | None:
    """The path to the last value with these keys, through lists of blocks; None when absent."""
    if isinstance(data, list | tuple):
        found = ((at, _path_in(part, keys)) for at, part in reversed(tuple(enumerate(data))))
        return next(((at, *path) for at, path in found if path is not None), None) if keys else ()
    if not keys:
        return ()
    if not isinstance(data, Mapping) or keys[0] not in data:
        return None
    rest = _path_in(data[keys[0]], keys[1:])
    return None if rest is None else (keys[0], *rest)


def read_files(paths: Iterable[str]) -> tuple[dict[str, Any], ConfigSources]:
    """All files as one checked configuration, and its sources; raises Invalid naming every problem with its file."""
    merged: dict[str, Any] = {}
    problems: list[str] = []
    read: list[SourceFile] = []
    for path in paths:
        for file in _expand(path):
            try:
                data, place_of = read_file(file)
            except Invalid as error:
                problems.append(str(error))
                continue
            read.append(SourceFile(str(file), data, place_of))
            shaped, found = check(data, ROOT)
            problems += [f"{file}{place_of(problem.path)}: {problem.text}" for problem in found]
            merged = merge(merged, shaped)
    if problems:
        raise Invalid("\n".join(problems))
    return merged, ConfigSources(tuple(read))


def _expand(path: str) -> list[Path]:
    root = Path(path)
    try:
        if root.is_dir():
            return sorted(file for file in root.iterdir() if file.suffix in (".hcl", ".json") and file.is_file())
    except OSError as error:
        raise Invalid(f"{path}: cannot be read: {error.strerror}") from None
    return [root]


def read_file(path: Path) -> tuple[Mapping[str, Any], PlaceOf]:
    """One file as data, and where its parts stand; raises Invalid with the place of a syntax error."""
    try:
        if path.is_file() and path.stat().st_size > FILE_BYTES_MAX:
            raise Invalid(f"{path}: larger than {FILE_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Invalid(f"{path}: there is no such file") from None
    except OSError as error:
        raise Invalid(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        from yurt.runtime.file_kinds import not_text

        raise Invalid(f"{path}: {not_text(error)}") from None
    if path.suffix == ".json" or (path.suffix != ".hcl" and text.lstrip()[:1] in ("{", "")):
        return _parse_json(path, text), lambda _: ""
    return _parse_hcl(path, text)


def _parse_json(path: Path, text: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise Invalid(f"{path}: not valid JSON: {error}") from None
    except RecursionError:
        raise Invalid(f"{path}: nested too deeply") from None
    if not isinstance(data, dict):
        raise Invalid(f"{path}: the configuration must be an object: {{ ... }}")
    return data


def _parse_hcl(path: Path, text: str) -> tuple[Mapping[str, Any], PlaceOf]:
    from yurt_jobspec import JobspecError, parse_body_with_positions, render

    try:
        data, positions = parse_body_with_positions(text, filename=str(path))
    except JobspecError as error:
        raise Invalid(render(error.diagnostics, {str(path): text}).rstrip()) from None

    def place_of(where: tuple[str | int, ...]) -> str:
        place = positions.nearest(where)
        return f":{place.line}:{place.column}" if place else ""

    return data, place_of
