"""The columnar view of nodes and what is used on them, derived from the tables and kept incrementally."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Columns:
    """Derived columns; immutable."""

    @classmethod
    def empty(cls) -> Columns:
        """No nodes."""
        return cls()

    def apply(self, changes: Iterable[Any]) -> Columns:
        """The columns after a transaction's changes."""
        return self
