"""Globs (names with `*`), and the choice of the one that applies to a name.

`*` stands for any characters, none and "/" included; nothing else is special. Of the globs that match a name the one
that leaves the fewest characters to its `*` decides alone: the distance is the length of the name, less that of the
glob, plus one for each `*` of the glob. Of two at the same distance the one that comes last in byte order decides, so
that the answer never depends on the order of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

T = TypeVar("T")

STAR: Final = "*"
CACHE_MAX: Final = 4096
"""The maximum number of cached names; a full cache is emptied, as names are the caller's choice."""


def matcher(glob: str) -> Callable[[str], bool]:
    """Whether a name matches the glob: its parts in order, each at its first occurrence, the last at the end."""
    assert STAR in glob, "a name without a star is compared as it is"
    first, *middle, last = glob.split(STAR)
    fixed = len(first) + len(last)

    def matches(name: str) -> bool:
        if len(name) < fixed or not name.startswith(first) or not name.endswith(last):
            return False
        at, end = len(first), len(name) - len(last)
        for part in middle:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True

    return matches


def _nearest_first(glob: str) -> tuple[int, bytes]:
    """The part of the distance that does not depend on the name, then the byte order."""
    return len(glob) - glob.count(STAR), glob.encode("utf-8", "surrogatepass")


class Labels(Generic[T]):
    """The labels of one kind of block; `find` returns the one that applies to a name."""

    __slots__ = ("_cache", "_exact", "_globs")

    def __init__(self, by_label: Mapping[str, T]) -> None:
        self._exact = {label: value for label, value in by_label.items() if STAR not in label}
        globs = sorted((label for label in by_label if STAR in label), key=_nearest_first, reverse=True)
        self._globs = tuple((matcher(glob), by_label[glob]) for glob in globs)
        self._cache: dict[str, T | None] = {}

    def __len__(self) -> int:
        return len(self._exact) + len(self._globs)

    def exact(self, name: str) -> T | None:
        """The entry of exactly this name."""
        return self._exact.get(name)

    def nearest(self, name: str) -> T | None:
        """The entry of the nearest glob: the first match in sorted order."""
        return next((value for matches, value in self._globs if matches(name)), None)

    def find(self, name: str) -> T | None:
        """The entry that applies to a name: its own label, else the nearest glob; None when there is none."""
        exact = self._exact.get(name)
        if exact is not None:
            return exact
        if name in self._cache:
            return self._cache[name]
        if len(self._cache) >= CACHE_MAX:
            self._cache.clear()
        found = self._cache[name] = self.nearest(name)
        return found

    def values(self) -> tuple[T, ...]:
        """All of them, exact labels and globs."""
        return (*self._exact.values(), *(value for _, value in self._globs))
