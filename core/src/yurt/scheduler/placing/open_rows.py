"""Open rows: feasible rows that have not refused the group yet."""

from __future__ import annotations

from yurt.scheduler.feasibility.masks import BoolArray


class OpenRows:
    """`mask` has the open rows; it is the shared feasible mask until a row is closed."""

    __slots__ = ("feasible", "mask")

    def __init__(self, feasible: BoolArray) -> None:
        self.feasible = feasible
        self.mask = feasible

    def close(self, row: int) -> None:
        """Close a row."""
        # Attempts at jobs with the same constraints share the mask of the feasible rows: it is copied, never changed.
        if self.mask is self.feasible:
            self.mask = self.feasible.copy()
        self.mask[row] = False

    def close_all(self, mask: BoolArray) -> bool:
        """Close rows; returns whether any of them was open."""
        if not (self.mask & mask).any():
            return False
        self.mask = self.mask & ~mask
        return True

    def open(self, row: int) -> None:
        """Reopen a closed row: other allocations freed capacity on it, perhaps for more than the placement there."""
        assert self.mask is not self.feasible or not self.mask[row], "a row that is open is not opened again"
        self.mask = self.mask.copy()
        self.mask[row] = True

    def reopen(self) -> None:
        """Reopen all feasible rows."""
        self.mask = self.feasible
