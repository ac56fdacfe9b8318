"""Positions of a job's parts in its file, also for a job that is readable only in part."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .diagnostics import Diagnostic, JobspecError, SourceRange, SourceText
from .schema import ApiObject

Path_ = tuple[str | int, ...]
Marks = dict[int, dict[str | None, tuple[int, int]]]
"""Offsets by the identity of an object and its key; the key None stands for the object itself."""


class Positions(Mapping[Path_, SourceRange]):
    """The positions of a job's parts: paths such as ("TaskGroups", 0, "Name") to ranges of the file.

    `nearest` also answers for paths that the file does not mention, with the innermost block around them.
    """

    def __init__(self, source: SourceText, places: Mapping[Path_, tuple[int, int]]) -> None:
        self._source = source
        self._places = places

    def __getitem__(self, path: Path_) -> SourceRange:
        return self._source.range(*self._places[path])

    def __iter__(self) -> Iterator[Path_]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def nearest(self, path: Path_) -> SourceRange | None:
        """The range of the path, or of the innermost part that contains it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self._places:
                return self[path[:length]]
        return None


class ParsedJob(NamedTuple):
    """A job, the positions of its parts, and the warnings."""

    job: ApiObject
    positions: Positions
    warnings: tuple[Diagnostic, ...]


class PartialJob(NamedTuple):
    """The readable part of a job with errors; `damaged` holds the paths of incomplete objects."""

    job: ApiObject
    positions: Positions
    damaged: frozenset[Path_]


class IncompleteJob(JobspecError):
    """The errors of a file whose structure is certain, with the rest of the job, so that its rules can be checked."""

    def __init__(self, diagnostics: Sequence[Diagnostic], partial: PartialJob) -> None:
        super().__init__(diagnostics)
        self.partial = partial


def positions_of(source: SourceText, job: ApiObject, marks: Marks) -> Positions:
    """The positions of a decoded job."""
    places: dict[Path_, tuple[int, int]] = {}
    _collect(job, (), marks, places)
    return Positions(source, places)


def _collect(value: Any, path: Path_, marks: Marks, places: dict[Path_, tuple[int, int]]) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            _collect(item, (*path, index), marks, places)
        return
    if not isinstance(value, dict):
        return
    for key, place in marks.get(id(value), {}).items():
        places.setdefault(path if key is None else (*path, key), place)
    for key, item in value.items():
        _collect(item, (*path, key), marks, places)


def paths_of(value: Any, identities: Container[int], path: Path_ = ()) -> Iterator[Path_]:
    """The paths of the objects with these identities."""
    if isinstance(value, dict):
        if id(value) in identities:
            yield path
        for key, item in value.items():
            yield from paths_of(item, identities, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths_of(item, identities, (*path, index))
