"""The history of rows: what was found out about them row by row, and which of them changed since."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from threading import Lock
from typing import Any

CHANGES_MAX = 1 << 16
ANSWERS_MAX = 1024


class RowHistory:
    """Which rows changed, one after another, while node columns followed each other; and answers from along the way.

    A place in it is how many changes there had been. Of columns that branch off one goes on with the history, the
    others begin their own. Safe for threads.
    """

    def __init__(self) -> None:
        self._changed: list[int] = []
        self._answers: dict[Hashable, tuple[int, Any]] = {}
        self._lock = Lock()

    def after(self, place: int, changed: Collection[int]) -> tuple[RowHistory, int]:
        """The history, and the place in it, of columns that follow those of a place."""
        with self._lock:
            if len(self._changed) != place or place > CHANGES_MAX:
                return RowHistory(), 0
            self._changed += changed
            return self, len(self._changed)

    def earlier(self, key: Hashable, place: int) -> tuple[Any, list[int]] | None:
        """An answer from before that place, and which rows changed since."""
        with self._lock:
            then, answer = self._answers.get(key, (place + 1, None))
            return (answer, list(set(self._changed[then:place]))) if then <= place else None

    def keep(self, key: Hashable, place: int, answer: Any) -> None:
        """An answer that was right at that place."""
        with self._lock:
            if place >= self._answers.get(key, (0, None))[0]:
                if len(self._answers) >= ANSWERS_MAX:
                    self._answers.clear()
                self._answers[key] = (place, answer)
