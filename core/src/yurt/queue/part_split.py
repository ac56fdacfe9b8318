"""The heads of a band's leaves, split by whether their accounts stay within their parts of the pool with them.

A full pool has many tenants that hold their whole part. A walk that asks each of them whether its next job fits into it
takes longer than all else that a decision does. So the answers are kept between walks. They depend on the head of the
leaf, on what its account holds, on the account's weight and on the sum of all weights: each walk asks again where one
of these has changed. The sum changes with each account that comes or goes, and then few answers do: each head has a
largest sum up to which it stays within its part, and only those between the old sum and the new are moved.

What a walk gives away makes more heads exceed their parts, and none fewer: those that exceed it before the walk do so
in the whole walk.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from yurt.queue.amounts import NOTHING, WEIGHT_ONE, Amounts
from yurt.queue.job_queue import Band, ChangeLog, LeafHead
from yurt.queue.waiting_job import Path

NO_BOUND: Final = 1 << 62
FEW_PARTS: Final = 8
"""Up to this part of the heads are moved one by one; with more, all are split in one pass."""


class PartBasis(NamedTuple):
    """The inputs of all accounts' parts of a pool: its capacity, and the weights with their sum."""

    capacity: Amounts
    weights: Mapping[Path, int]
    total: int
    """The sum of the weights of all accounts that hold something or wait."""

    def has_part(self, account: str, usage: Amounts, added: Amounts) -> bool:
        """Whether an account that holds these amounts stays within its part of the pool with more."""
        weight = self.weights.get((account,), WEIGHT_ONE)
        assert weight > 0, (account, weight)
        return all(
            not more or (own + more) * self.total <= whole * weight
            for own, more, whole in zip(usage, added, self.capacity, strict=True)
        )

    def total_max(self, account: str, usage: Amounts, added: Amounts) -> int:
        """The largest sum of weights with which `has_part` holds."""
        weight = self.weights.get((account,), WEIGHT_ONE)
        return min(
            (
                whole * weight // (own + more)
                for own, more, whole in zip(usage, added, self.capacity, strict=True)
                if more
            ),
            default=NO_BOUND,
        )

    def has_same_parts(self, other: PartBasis | None) -> bool:
        """Whether the bases differ in the sum of all weights at most."""
        return other is not None and (self.capacity, self.weights) == (other.capacity, other.weights)


class PartSplit:
    """The sorted heads of one band in two lists; `update` brings them up to date."""

    def __init__(self) -> None:
        self.within: list[LeafHead] = []
        self.beyond: list[LeafHead] = []
        self._basis: PartBasis | None = None
        self._last_usage: dict[str, Amounts | None] | None = None
        """What each account held at the last update; by identity, since amounts are never changed in place. None where
        a log says what changed."""
        self._log: ChangeLog | None = None
        self._position = 0
        self._list_of: dict[Path, tuple[LeafHead, list[LeafHead]]] = {}
        self._bounds: dict[Path, int] | None = None
        """The largest sum of weights with which each head stays within its part; None before the sum alone changes."""
        self._by_bound: list[tuple[int, Path]] = []

    def update(self, band: Band, basis: PartBasis, usage: Mapping[str, Amounts], log: ChangeLog | None = None) -> None:
        """Apply the changes since the last update: heads, usage, or the parts of all accounts.

        `log` has the accounts whose holdings change, where the caller keeps one.
        """
        changed = band.changed
        accounts = None if changed is None else self._changed_accounts(band, usage, log)
        self._log, self._position = log, 0 if log is None else log.position
        if changed is None or accounts is None or not basis.has_same_parts(self._basis):
            self._basis = basis
            self._split_all(band, basis, usage)
            return
        assert self._basis is not None
        before, self._basis = self._basis.total, basis
        paths = {*changed, *(path for name in accounts for path in band.leaves_of(name))}
        changed.clear()
        for path in paths:
            self._place(band, path, basis, usage)
        if before != basis.total:
            self._move_between(band, before, basis, usage)

    def _changed_accounts(
        self, band: Band, usage: Mapping[str, Amounts], log: ChangeLog | None
    ) -> Iterable[str] | None:
        """The accounts that hold something else than at the last update; None where that is unknown."""
        if log is not None:
            return log.since(self._position) if log is self._log else None
        if self._last_usage is None:
            return None
        now, before = usage.get, self._last_usage.get
        accounts = [name for name in band.accounts if now(name) is not before(name)]
        self._last_usage.update((name, now(name)) for name in accounts)
        return accounts

    def _split_all(self, band: Band, basis: PartBasis, usage: Mapping[str, Amounts]) -> None:
        """Split all heads in one pass over their sorted list: moving each would sort it in again."""
        self._last_usage = {name: usage.get(name) for name in band.accounts} if self._log is None else None
        self._bounds = None
        self._list_of.clear()
        self.within.clear()
        self.beyond.clear()
        leaves, within, beyond, list_of = band.leaves, self.within, self.beyond, self._list_of
        for head in band.heads:
            path = head.path
            is_within = basis.has_part(path[0], usage.get(path[0], NOTHING), leaves[path][0].asked)
            heads = within if is_within else beyond
            heads.append(head)
            list_of[path] = head, heads
        band.follow(list_of)

    def _move_between(self, band: Band, before: int, basis: PartBasis, usage: Mapping[str, Amounts]) -> None:
        """Move the heads whose bound lies between the sum of weights before and now."""
        if self._bounds is None:
            self._bounds = {path: self._bound_of(band, path, basis, usage) for path in self._list_of}
            self._by_bound = sorted((bound, path) for path, bound in self._bounds.items())
        low, high = sorted((before, basis.total))
        # Within up to and including its bound: of a sum that grows from `low` to `high`, bounds in [low, high) end.
        first, last = bisect_left(self._by_bound, (low,)), bisect_left(self._by_bound, (high,))
        if last - first > len(self._by_bound) // FEW_PARTS:
            self._split_all(band, basis, usage)
            return
        for _, path in self._by_bound[first:last]:
            self._place(band, path, basis, usage)

    def _bound_of(self, band: Band, path: Path, basis: PartBasis, usage: Mapping[str, Amounts]) -> int:
        return basis.total_max(path[0], usage.get(path[0], NOTHING), band.leaves[path][0].asked)

    def _place(self, band: Band, path: Path, basis: PartBasis, usage: Mapping[str, Amounts]) -> None:
        before, now = self._list_of.pop(path, None), band.head(path)
        if before is not None:
            head, heads = before
            del heads[bisect_left(heads, head)]
        if now is not None:
            amounts = band.leaves[path][0].asked
            is_within = basis.has_part(path[0], usage.get(path[0], NOTHING), amounts)
            heads = self.within if is_within else self.beyond
            insort(heads, now)
            self._list_of[path] = (now, heads)
        if self._bounds is not None:
            self._place_bound(path, None if now is None else self._bound_of(band, path, basis, usage))

    def _place_bound(self, path: Path, bound: int | None) -> None:
        assert self._bounds is not None
        before = self._bounds.pop(path, None)
        if bound is not None:
            self._bounds[path] = bound
        if before == bound:
            return
        if before is not None:
            del self._by_bound[bisect_left(self._by_bound, (before, path))]
        if bound is not None:
            insort(self._by_bound, (bound, path))
