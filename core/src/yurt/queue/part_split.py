"""The heads of a band's leaves, split by whether their accounts stay within their parts of the pool with them.

A full pool has many tenants that hold their whole part. A walk that asks each of them whether its next job fits into it
takes longer than all else that a decision does. So the answers are kept between walks. They depend on the head of the
leaf, on what its account holds, on the account's weight and on the sum of all weights: each walk asks again where one
of these has changed.

What a walk gives away makes more heads exceed their parts, and none fewer: those that exceed it before the walk do so
in the whole walk.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import NamedTuple

from yurt.queue.amounts import NOTHING, WEIGHT_ONE, Amounts
from yurt.queue.job_queue import Band, LeafHead
from yurt.queue.waiting_job import Path


class PartBasis(NamedTuple):
    """What the parts of all accounts follow from."""

    capacity: Amounts
    weights: Mapping[Path, int]
    total: int
    """The sum of the weights of all accounts that hold something or wait."""

    def has_part(self, account: str, held: Amounts, asked: Amounts) -> bool:
        """Whether an account that holds these amounts stays within its part of the pool with more."""
        weight = self.weights.get((account,), WEIGHT_ONE)
        assert weight > 0, (account, weight)
        return all(
            not more or (own + more) * self.total <= whole * weight
            for own, more, whole in zip(held, asked, self.capacity, strict=True)
        )


class PartSplit:
    """The sorted heads of one band in two lists; `update` brings them up to date."""

    def __init__(self) -> None:
        self.within: list[LeafHead] = []
        self.beyond: list[LeafHead] = []
        self._basis: PartBasis | None = None
        self._held: dict[str, Amounts | None] = {}
        """What each account held at the last update; by identity, since amounts are never changed in place."""
        self._list_of: dict[Path, tuple[LeafHead, list[LeafHead]]] = {}

    def update(self, band: Band, basis: PartBasis, held: Mapping[str, Amounts]) -> None:
        """Take what has changed since the last update: heads, holdings, or the parts of all."""
        changed = band.changed
        if changed is None or basis != self._basis:
            self._basis = basis
            self._split_all(band, basis, held)
            return
        now, before = held.get, self._held.get
        accounts = [name for name in band.accounts if now(name) is not before(name)]
        self._held.update((name, now(name)) for name in accounts)
        paths = {*changed, *(path for name in accounts for path in band.leaves_of(name))}
        changed.clear()
        for path in paths:
            self._place(band, path, basis, held)

    def _split_all(self, band: Band, basis: PartBasis, held: Mapping[str, Amounts]) -> None:
        """Split all heads in one pass over their sorted list: moving each would sort it in again."""
        self._held = {name: held.get(name) for name in band.accounts}
        self._list_of.clear()
        self.within.clear()
        self.beyond.clear()
        leaves, within, beyond, list_of = band.leaves, self.within, self.beyond, self._list_of
        for head in band.heads:
            path = head.path
            is_within = basis.has_part(path[0], held.get(path[0], NOTHING), leaves[path][0].asked)
            heads = within if is_within else beyond
            heads.append(head)
            list_of[path] = head, heads
        band.follow(list_of)

    def _place(self, band: Band, path: Path, basis: PartBasis, held: Mapping[str, Amounts]) -> None:
        before, now = self._list_of.pop(path, None), band.head(path)
        if before is not None:
            head, heads = before
            del heads[bisect_left(heads, head)]
        if now is not None:
            asked = band.leaves[path][0].asked
            is_within = basis.has_part(path[0], held.get(path[0], NOTHING), asked)
            heads = self.within if is_within else self.beyond
            insort(heads, now)
            self._list_of[path] = (now, heads)
