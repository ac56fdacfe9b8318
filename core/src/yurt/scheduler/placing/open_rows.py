"""Open rows: the feasible rows of which nobody has said that they take no further allocation of the group."""

from __future__ import annotations

from yurt.scheduler.feasibility.masks import BoolArray


class OpenRows:
    """`mask` has the open rows; it is the mask of the feasible ones itself until a row is closed."""

    __slots__ = ("feasible", "mask")

    def __init__(self, feasible: BoolArray) -> None:
        self.feasible = feasible
        self.mask = feasible

    def close(self, row: int) -> None:
        """A row takes no more."""
        # Attempts at jobs with the same constraints share the mask of the feasible rows: it is copied, never changed.
        if self.mask is self.feasible:
            self.mask = self.feasible.copy()
        self.mask[row] = False

    def close_all(self, mask: BoolArray) -> bool:
        """These rows take no more; whether any of them was open."""
        if not (self.mask & mask).any():
            return False
        self.mask = self.mask & ~mask
        return True

    def open(self, row: int) -> None:
        """A row that could not take any more was placed on all the same: others made room there, perhaps for more."""
        self.mask = self.mask.copy()
        self.mask[row] = True

    def reopen(self) -> None:
        """All feasible rows are asked again."""
        self.mask = self.feasible
