"""The state at one index, restricted to what one caller may see."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from yurt.access import Access, Need
from yurt.state.store import Snapshot

V = TypeVar("V")


class View:
    """A snapshot bound to a request's rights. Gives access to rows by kind only."""

    __slots__ = ("_access", "_state")

    def __init__(self, state: Snapshot, access: Access) -> None:
        self._state = state
        self._access = access

    @property
    def index(self) -> int:
        """The index of the state."""
        return self._state.index

    def namespaces(self, most: int) -> frozenset[str] | None:
        """The names of all namespaces, those that the caller may not see included: for keys, never for an answer.

        None where there are more than `most`.
        """
        return self._state.namespaces.key_set(most)

    def narrowed(self, need: Need) -> View:
        """The same state for a part of an answer with other needs than its route."""
        return View(self._state, self._access.narrowed(need))

    def of(self, kind: Callable[[Snapshot, Access], V]) -> V:
        """The visible rows of a kind."""
        return kind(self._state, self._access)

    def for_thread(self) -> View:
        """The same state with the rights that the caller has now, for work in a thread (`Access.for_thread`)."""
        return View(self._state, self._access.for_thread())
