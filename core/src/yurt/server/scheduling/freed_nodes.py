"""The nodes on which something was freed lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import takewhile
from typing import Final, NamedTuple

KEPT: Final = 1_000
TOGETHER: Final = 64
"""Of more nodes at once only the index is kept: an attempt at all nodes takes no longer than a check of them."""


class _Freed(NamedTuple):
    at: int
    node_id: str


class FreedNodes:
    """The newest of them, in the order of the indexes at which something was freed."""

    def __init__(self) -> None:
        self._freed: deque[_Freed] = deque()
        self._complete_after = 0
        """Everything that was freed after this index is known by its node."""

    def forget(self, index: int) -> None:
        """Forget the nodes: something was freed on unknown ones up to an index."""
        self._freed.clear()
        self._complete_after = max(self._complete_after, index)

    def note(self, node_ids: Collection[str], index: int) -> None:
        """Something was freed on nodes; an index before the newest one counts as the newest."""
        if len(node_ids) > TOGETHER:
            self.forget(index)
            return
        at = max(index, self._freed[-1].at) if self._freed else index
        self._freed.extend(_Freed(at, node_id) for node_id in sorted(node_ids))
        while len(self._freed) > KEPT:
            self._complete_after = max(self._complete_after, self._freed.popleft().at)

    def after(self, index: int) -> tuple[str, ...] | None:
        """The nodes on which something was freed after an index; None if they are not known, or too many."""
        if index < self._complete_after:
            return None
        newest = takewhile(lambda each: each.at > index, reversed(self._freed))
        found = dict.fromkeys(each.node_id for each in newest)
        return tuple(found) if len(found) <= TOGETHER else None
