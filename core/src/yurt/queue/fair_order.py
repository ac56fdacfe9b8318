"""The order of waiting jobs by fair share: tenants within their share of the pool first, then by turn.

Bands of priority come first, from the top. Within a band

1. jobs of accounts that stay *within their part* with them: what an account holds (the jobs in flight included, which
   the scheduler is about to place), what this walk gave it, and the job do not exceed its weight among the accounts
   that hold something or wait;
2. the other jobs: they *borrow* what the accounts of the first kind leave.

Both go by their turns (`turns.turn_of`), put off by what their tenants have used: by `usage_delay` for a tenant that
has used all of the pool for ever, by a part of it for less, divided by its weight. Amounts are compared by their
dominant share. A tenant's own jobs go by priority, then by turn.

So an account gets at least what a private part of the pool would give it, as soon as something ends, whichever others
wait; history decides who borrows; and borrowers pass no job that came `reach` and `usage_delay` before them.
The usage of a user delays that user's jobs alone, and its account's jobs by the account's sum.

The walk is lazy: taking the first few of 10,000 jobs looks at the heads of leaves whose accounts stay within their
parts, and at the first of the others. Which are which is kept between the walks of a queue (`part_split`). The order
is a function of the arguments alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from yurt.queue.amounts import NOTHING, WEIGHT_ONE, WHOLE, Amounts, dominant_share
from yurt.queue.job_queue import Band, ChangeLog, JobQueue, LeafHead, head_of
from yurt.queue.part_split import PartBasis, PartSplit
from yurt.queue.waiting_job import Path, Waiting

DELAY_PARTS: Final = 1 << 20


class Shares(NamedTuple):
    """The amounts that tenants hold, and their parts of the pool."""

    capacity: Amounts
    weights: Mapping[Path, int]
    """Weights in thousandths, by path; a missing tenant has weight 1."""
    usage: Mapping[str, Amounts]
    """Amounts in use by account; an account without usage is missing."""
    changes: ChangeLog | None = None
    """The changes of `usage`, where the caller keeps it up to date."""
    in_flight: Mapping[str, Amounts] = {}
    """Amounts that accounts are about to hold in addition: their jobs are neither in the line nor in `usage`. They
    count as held, so that the order does not depend on when the scheduler places them."""

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
    by_path: dict[Path, int] = {}
    for path, amounts in used.items():
        by_path[path[:1]] = delays.of(accounts[path[0]], weights.get(path[:1], WEIGHT_ONE))
        if len(path) > 1:
            by_path[path] = delays.of(amounts, weights.get(path, WEIGHT_ONE))
    return by_path


_splits: WeakKeyDictionary[Band, PartSplit] = WeakKeyDictionary()
_totals: WeakKeyDictionary[JobQueue, ActiveWeights] = WeakKeyDictionary()
"""What walks keep of each band and queue. It is brought up to date before a walk, so no walk depends on those before
it."""


def fair_order(line: JobQueue, shares: Shares) -> Iterator[Waiting]:
    """The jobs in their order, computed lazily; the inputs must not change meanwhile."""
    active = _totals.get(line)
    if active is None:
        active = _totals[line] = ActiveWeights()
    total = active.total(line, shares)
    # A job in flight is neither among the waiting ones nor in use: its account may have nothing else.
    only_in_flight = [name for name in shares.in_flight if name not in line.accounts and name not in shares.usage]
    holdings = _Holdings(shares, total + sum(shares.weight((name,)) for name in only_in_flight))
    for number in sorted(line.bands, reverse=True):
        band = line.bands[number]
        split = _splits.get(band)
        if split is None:
            split = _splits[band] = PartSplit()
        split.update(band, holdings.basis, shares.usage, shares.changes)
        yield from _of_band(band, line.delays, split, holdings)


class ActiveWeights:
    """The sum of the weights of the accounts that hold something or wait, kept between walks."""

    def __init__(self) -> None:
        self._active: set[str] = set()
        self._sum = 0
        self._weights: Mapping[Path, int] | None = None
        self._log: ChangeLog | None = None
        self._positions = (0, 0)

    def total(self, line: JobQueue, shares: Shares) -> int:
        """The sum now."""
        waiting_log, usage_log = line.account_changes, shares.changes
        arrivals = waiting_log.since(self._positions[0])
        changed = None if usage_log is None or usage_log is not self._log else usage_log.since(self._positions[1])
        if arrivals is None or changed is None or shares.weights is not self._weights:
            self._active = {*line.accounts, *shares.usage}
            self._sum = sum(shares.weight((name,)) for name in self._active)
        else:
            for name in (*arrivals, *changed):
                self._follow(name, shares, is_active=name in line.accounts or name in shares.usage)
        self._weights, self._log = shares.weights, usage_log
        self._positions = (waiting_log.position, 0 if usage_log is None else usage_log.position)
        return self._sum

    def _follow(self, name: str, shares: Shares, *, is_active: bool) -> None:
        if is_active == (name in self._active):
            return
        if is_active:
            self._active.add(name)
            self._sum += shares.weight((name,))
        else:
            self._active.remove(name)
            self._sum -= shares.weight((name,))


class _Holdings:
    """The amounts that accounts hold, those given during the walk included, compared with their parts of the pool."""

    def __init__(self, shares: Shares, total: int) -> None:
        self.basis = PartBasis(shares.capacity, shares.weights, total)
        self._usage = shares.usage
        self._charged = {name: self._stored_usage(name).plus(amounts) for name, amounts in shares.in_flight.items()}

    def of(self, account: str) -> Amounts:
        """What an account holds."""
        return self._charged.get(account) or self._stored_usage(account)

    def _stored_usage(self, account: str) -> Amounts:
        return self._usage.get(account, NOTHING)

    def has_part(self, account: str, amounts: Amounts) -> bool:
        """Whether an account stays within its part of the pool with these amounts added."""
        return self.basis.has_part(account, self.of(account), amounts)

    def give(self, account: str, amounts: Amounts) -> None:
        """Count a job that the walk has reached as started."""
        self._charged[account] = self.of(account).plus(amounts)


def _of_band(band: Band, delays: Mapping[Path, int], split: PartSplit, holdings: _Holdings) -> Iterator[Waiting]:
    next_by_path: dict[Path, int] = {}

    def next_job(path: Path) -> Waiting:
        return band.leaves[path][next_by_path.get(path, 0)]

    def following(path: Path) -> LeafHead | None:
        next_by_path[path] = number = next_by_path.get(path, 0) + 1
        leaf = band.leaves[path]
        return head_of(leaf[number], delays) if number < len(leaf) else None

    # Leaves that the walk has moved come from a heap, the others from the sorted heads.
    within, borrowers = _Heads(split.within), _Heads(split.beyond)
    while (head := within.first()) is not None:
        path = head.path
        job = next_job(path)
        within.drop_first()
        if not holdings.has_part(path[0], job.asked):
            borrowers.add(head)
            continue
        holdings.give(path[0], job.asked)
        yield job
        within.add(following(path))
    while (head := borrowers.first()) is not None:
        job = next_job(head.path)
        borrowers.drop_first()
        holdings.give(head.path[0], job.asked)
        yield job
        borrowers.add(following(head.path))


class _Heads:
    """Heads in their order: sorted ones, and those that a walk adds."""

    def __init__(self, ordered: Sequence[LeafHead]) -> None:
        self._ordered = ordered
        self._at = 0
        self._added: list[LeafHead] = []

    def _is_added_first(self) -> bool:
        at, added = self._at, self._added
        return bool(added) and (at >= len(self._ordered) or added[0] < self._ordered[at])

    def first(self) -> LeafHead | None:
        """The first one; None when there is none left."""
        if self._is_added_first():
            return self._added[0]
        return self._ordered[self._at] if self._at < len(self._ordered) else None

    def drop_first(self) -> None:
        """Take the first one out."""
        if self._is_added_first():
            heapq.heappop(self._added)
        else:
            self._at += 1

    def add(self, head: LeafHead | None) -> None:
        """Add one, unless it is None."""
        if head is not None:
            heapq.heappush(self._added, head)
