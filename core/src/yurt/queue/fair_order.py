"""The order of waiting jobs by fair share: tenants within their share of the pool first, then by turn.

Bands of priority come first, from the top. Within a band

1. jobs of accounts that stay *within their part* with them: what an account holds, what this walk gave it, and the job
   are no more than its weight among the accounts that hold something or wait;
2. the other jobs: they *borrow* what the accounts of the first kind leave.

Both go by their turns (`turns.turn_of`), put off by what their tenants have used: by `usage_delay` for a tenant that
has used all of the pool for ever, by a part of it for less, divided by its weight. Amounts are compared by their
dominant share. A tenant's own jobs go by priority, then by turn.

So an account gets at least what a private part of the pool would give it, as soon as something ends, whichever others
wait; history decides who borrows; and borrowers pass no job that came `reach` and `usage_delay` before them.
The usage of a user delays that user's jobs alone, and its account's jobs by the account's sum.

The walk is lazy: taking the first few of 10,000 jobs looks at the heads of the leaves. It is a function of its
arguments alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from yurt.queue.amounts import NOTHING, WEIGHT_ONE, WHOLE, Amounts, dominant_share
from yurt.queue.job_queue import Band, JobQueue, LeafHead, head_of
from yurt.queue.waiting_job import Path, Waiting

DELAY_PARTS: Final = 1 << 20


class Shares(NamedTuple):
    """The amounts that tenants hold, and their parts of the pool."""

    capacity: Amounts
    weights: Mapping[Path, int]
    """Weights in thousandths, by path; a missing tenant has weight 1."""
    usage: Mapping[str, Amounts]
    """Amounts in use by account; an account without usage is missing."""

    def weight(self, path: Path) -> int:
        """The weight of a tenant."""
        weight = self.weights.get(path, WEIGHT_ONE)
        assert weight > 0, (path, weight)
        return weight


class Delays(NamedTuple):
    """The delays that decayed usage adds to turns."""

    capacity: Amounts
    """The pool's amounts times `decay.lifetime(half_life)`: the usage of a tenant that has always used all of it."""
    most: int
    """The longest delay of a tenant of weight 1."""

    def of(self, used: Amounts, weight: int) -> int:
        """The delay of a tenant."""
        share = dominant_share(used, self.capacity) * WEIGHT_ONE // weight
        return min(share, WHOLE) * DELAY_PARTS // WHOLE * self.most // DELAY_PARTS


def delays_of(used: Mapping[Path, Amounts], delays: Delays, weights: Mapping[Path, int]) -> dict[Path, int]:
    """The delays of accounts, and the additional delays of the users within them."""
    accounts: dict[str, Amounts] = {}
    for path, amounts in used.items():
        accounts[path[0]] = accounts[path[0]].plus(amounts) if path[0] in accounts else amounts
    found: dict[Path, int] = {}
    for path, amounts in used.items():
        found[path[:1]] = delays.of(accounts[path[0]], weights.get(path[:1], WEIGHT_ONE))
        if len(path) > 1:
            found[path] = delays.of(amounts, weights.get(path, WEIGHT_ONE))
    return found


def fair_order(line: JobQueue, shares: Shares) -> Iterator[Waiting]:
    """The jobs in their order, computed lazily; the inputs must not change meanwhile."""
    parts = _AccountShares(shares, {*line.accounts, *shares.usage})
    for number in sorted(line.bands, reverse=True):
        yield from _of_band(line.bands[number], line.delays, parts)


class _AccountShares:
    """The amounts that accounts hold, those given during the walk included, compared with their parts of the pool."""

    def __init__(self, shares: Shares, active: set[str]) -> None:
        self._shares = shares
        self._charged: dict[str, Amounts] = {}
        weights = shares.weights
        self._total = sum(weights.get((name,), WEIGHT_ONE) for name in active) if weights else WEIGHT_ONE * len(active)

    def has_part(self, account: str, asked: Amounts) -> bool:
        """Whether an account stays within its part of the pool with these amounts added."""
        shares = self._shares
        usage = self._charged.get(account) or shares.usage.get(account, NOTHING)
        weight = shares.weight((account,))
        return all(
            not more or (own + more) * self._total <= whole * weight
            for own, more, whole in zip(usage, asked, shares.capacity, strict=True)
        )

    def give(self, account: str, asked: Amounts) -> None:
        """Count a job that the walk has reached as started."""
        usage = self._charged.get(account) or self._shares.usage.get(account, NOTHING)
        self._charged[account] = usage.plus(asked)


def _of_band(band: Band, delays: Mapping[Path, int], parts: _AccountShares) -> Iterator[Waiting]:
    taken: dict[Path, int] = {}
    borrowers: list[LeafHead] = []
    moved: list[LeafHead] = []
    at, heads = 0, band.heads

    def following(path: Path) -> LeafHead | None:
        taken[path] = number = taken.get(path, 0) + 1
        leaf = band.leaves[path]
        return head_of(leaf[number], delays) if number < len(leaf) else None

    # Within their parts: leaves that the walk has not moved come from the sorted heads, moved ones from a heap.
    while at < len(heads) or moved:
        if moved and (at >= len(heads) or moved[0] < heads[at]):
            head = heapq.heappop(moved)
        else:
            head = heads[at]
            at += 1
        path = head.path
        job = band.leaves[path][taken.get(path, 0)]
        if not parts.has_part(path[0], job.asked):
            heapq.heappush(borrowers, head)
            continue
        parts.give(path[0], job.asked)
        yield job
        after = following(path)
        if after is not None:
            heapq.heappush(moved, after)
    while borrowers:
        head = borrowers[0]
        job = band.leaves[head.path][taken.get(head.path, 0)]
        parts.give(head.path[0], job.asked)
        yield job
        after = following(head.path)
        if after is None:
            heapq.heappop(borrowers)
        else:
            heapq.heapreplace(borrowers, after)
