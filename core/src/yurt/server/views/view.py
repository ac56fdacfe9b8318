"""The state of one moment as one caller may see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from yurt.access import Access, Need
from yurt.state.store import Snapshot

V = TypeVar("V")


class View:
    """A snapshot bound to what a request may do. It gives rows by their kind and nothing else."""

    __slots__ = ("_access", "_state")

    def __init__(self, state: Snapshot, access: Access) -> None:
        self._state = state
        self._access = access

    @property
    def index(self) -> int:
        """The index of the state."""
        return self._state.index

    def narrowed(self, need: Need) -> View:
        """The same state where one part of an answer needs something else than its route says."""
        return View(self._state, self._access.narrowed(need))

    def of(self, kind: Callable[[Snapshot, Access], V]) -> V:
        """The rows of a kind that the caller may see."""
        return kind(self._state, self._access)
