"""Resource amounts compared by the queue: dominant shares, and the cost of a job.

A tenant's share is that of the resource of which it has the largest part: of the pool's GPUs, of its CPU, or of its
memory (dominant resource fairness). GPUs count by the price of their model, a shared card by its booked part.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WHOLE: Final = 1 << 40
"""The integer that represents a share of 1."""
WEIGHT_ONE: Final = 1000
"""The integer that represents a weight of 1: weights are in thousandths."""
WEIGHT_MAX: Final = 1_000_000 * WEIGHT_ONE


class Amounts(NamedTuple):
    """GPUs in thousandths of a card times its price in thousandths, CPU in MHz, memory in MiB."""

    gpu: int = 0
    cpu: int = 0
    memory: int = 0

    def plus(self, other: Amounts, times: int = 1) -> Amounts:
        """The sum of these amounts and `times` the others."""
        return Amounts(self.gpu + times * other.gpu, self.cpu + times * other.cpu, self.memory + times * other.memory)

    def times(self, factor: int) -> Amounts:
        """The amounts, multiplied."""
        return Amounts(self.gpu * factor, self.cpu * factor, self.memory * factor)

    def fits_in(self, free: Amounts) -> bool:
        """Whether none of the amounts exceeds the other's."""
        return self.gpu <= free.gpu and self.cpu <= free.cpu and self.memory <= free.memory


NOTHING: Final = Amounts()


def dominant_share(amounts: Amounts, capacity: Amounts) -> int:
    """The largest share of any resource, in parts of `WHOLE`; resources that the pool lacks do not count."""
    share = 0
    for amount, whole in zip(amounts, capacity, strict=True):
        if whole > 0 and amount > 0:
            share = max(share, amount * WHOLE // whole)
    return share
