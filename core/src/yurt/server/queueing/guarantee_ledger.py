"""The remaining parts of guarantees and the borrowers, for the queues of all pools, updated by the changes of commands.

Making it looks at every namespace; a decision of a queue costs what changed since the one before it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Final

from yurt.queue.waiting_job import JobKey, Waiting
from yurt.scheduler.capacity.guarantee_usage import QuotaHoldings
from yurt.state import Changes, Snapshot
from yurt.state.quota_totals import counts_in
from yurt.state.quota_tree import QuotaTree, amount_in, tree_of

Place = tuple[int, int, int, JobKey]
FEW_OPEN: Final = 64
"""As many quotas are sorted by their first jobs for each decision; with more, all quotas are looked at in order."""


class GuaranteeLedger:
    """The guarantees of a region; `tree` is None where nothing is guaranteed."""

    def __init__(self, region: str) -> None:
        self.tree: QuotaTree | None = None
        self.holdings: QuotaHoldings | None = None
        self._region = region
        self._open: dict[str, bool] = {}
        self._open_names: set[str] = set()
        """The quotas that `_open` says are open."""
        self._lenders: dict[str, set[str]] = {}

    def show(self, state: Snapshot) -> None:
        """Set the present state, whose changes have all been followed."""
        tree = tree_of(state, self._region) if self._region else None
        if tree is not self.tree:
            self.tree = tree
            self.holdings = None if tree is None else QuotaHoldings(state, tree)
            self._open.clear()
            self._open_names.clear()
            self._lenders.clear()

    def follow(self, changes: Changes) -> None:
        """Follow a command."""
        if self.holdings is None or self.tree is None:
            return
        namespaces: set[str] = set()
        for name in self.holdings.follow(changes, namespaces):
            self._open.pop(name, None)
            self._open_names.discard(name)
            # They may have more than their guarantee now, or no more.
            namespaces.update(self.tree.named_by(name))
        for pool, lenders in self._lenders.items():
            for namespace in namespaces:
                (lenders.add if self._lends(namespace, pool) else lenders.discard)(namespace)

    def is_open(self, quota: str) -> bool:
        """Whether any dimension of a quota's guarantee is not used up."""
        has_free = self._open.get(quota)
        if has_free is None:
            assert self.tree is not None and self.holdings is not None
            has_free = self._open[quota] = any(
                amount_in(self.holdings.usage(quota, part.pool), dimension) < amount
                for part in self.tree.shares[quota].guaranteed
                for dimension, amount in part.amounts
            )
            if has_free:
                self._open_names.add(quota)
        return has_free

    def few_open(self, quotas: Mapping[str, object]) -> list[str] | None:
        """Those of the quotas of whose guarantee something is left; None when they are more than `FEW_OPEN`."""
        for name in quotas.keys() - self._open.keys():
            self.is_open(name)
        return [name for name in self._open_names if name in quotas] if len(self._open_names) <= FEW_OPEN else None

    def lenders(self, pool: str) -> Iterable[str]:
        """Namespaces of which something runs in a pool and may be borrowed: more of them rather than fewer."""
        names = self._lenders.get(pool)
        if names is None:
            assert self.holdings is not None
            namespaces = self.holdings.namespaces()
            names = self._lenders[pool] = {name for name in namespaces if self._lends(name, pool)}
        return names

    def _lends(self, namespace: str, pool: str) -> bool:
        """Whether it runs something there and its own quota, if that has a guarantee of its own, is beyond it."""
        assert self.tree is not None and self.holdings is not None
        if not self.holdings.runs(namespace, pool):
            return False
        share = self.tree.of(namespace)
        if share is None or not share.guaranteed or self.tree.is_parent(share.name):
            return True
        return any(
            amount_in(self.holdings.usage(share.name, part.pool), dimension) > amount
            for part in share.guaranteed
            if counts_in(part.pool, pool)
            for dimension, amount in part.amounts
        )


class GuaranteedLine:
    """The waiting jobs of a pool below each quota with a guarantee, sorted by band, then by turn."""

    def __init__(self, tree: QuotaTree, jobs: Iterable[Waiting]) -> None:
        self.tree = tree
        self._jobs: dict[str, list[Waiting]] = {}
        self._heads: list[tuple[Place, str]] = []
        for job in jobs:
            for name in tree.guaranteed(job.key[0]):
                self._jobs.setdefault(name, []).append(job)
        for name, waiting in self._jobs.items():
            waiting.sort(key=place_of)
            self._heads.append((place_of(waiting[0]), name))
        self._heads.sort()

    def __bool__(self) -> bool:
        return bool(self._heads)

    def put(self, job: Waiting) -> None:
        """Add a job that does not wait here yet."""
        for name in self.tree.guaranteed(job.key[0]):
            waiting = self._jobs.setdefault(name, [])
            before = self._head(name)
            insort(waiting, job, key=place_of)
            self._move_head(before, self._head(name))

    def remove(self, job: Waiting) -> None:
        """Remove a job."""
        for name in self.tree.guaranteed(job.key[0]):
            waiting = self._jobs[name]
            before, at = self._head(name), bisect_left(waiting, place_of(job), key=place_of)
            assert waiting[at].key == job.key, (job.key, "it waits under each quota with a guarantee")
            del waiting[at]
            self._move_head(before, self._head(name))
            if not waiting:
                del self._jobs[name]

    def first(self, ledger: GuaranteeLedger) -> Iterator[Waiting]:
        """The jobs below quotas of whose guarantee something is left, in order; one may come more than once."""
        heap: list[tuple[Place, str, int]] = []
        few = ledger.few_open(self._jobs)
        heads: Iterator[tuple[Place, str]]
        if few is None:
            # Where many are open, the first heads in order are among them.
            heads = (head for head in self._heads if ledger.is_open(head[1]))
        else:
            heads = iter(sorted((place_of(self._jobs[name][0]), name) for name in few))
        head = next(heads, None)
        while head is not None or heap:
            if head is not None and (not heap or head < heap[0][:2]):
                name, at = head[1], 0
                head = next(heads, None)
            else:
                _, name, at = heappop(heap)
            waiting = self._jobs[name]
            if at + 1 < len(waiting):
                heappush(heap, (place_of(waiting[at + 1]), name, at + 1))
            yield waiting[at]

    def _head(self, name: str) -> tuple[Place, str] | None:
        waiting = self._jobs[name]
        return (place_of(waiting[0]), name) if waiting else None

    def _move_head(self, before: tuple[Place, str] | None, after: tuple[Place, str] | None) -> None:
        if before == after:
            return
        if before is not None:
            del self._heads[bisect_left(self._heads, before)]
        if after is not None:
            insort(self._heads, after)


def place_of(job: Waiting) -> Place:
    """The order of jobs within guarantees."""
    return (-job.band, job.turn, job.create_index, job.key)
