"""The order of waiting jobs by fair share: a walk of the tree of tenants.

Bands of priority come first, from the top. Within a band the walk starts at the root and takes at each level the child
with the least

    (decayed usage + cost of the jobs taken from it in this walk + cost of its next job) / weight

where amounts are compared by their dominant share. At a leaf it takes the job of the highest priority, of equal ones
the one that came first. All jobs of an account that has used less come before those of an account that has used more,
on every level: what one user does never lowers the place of another account's users (a fair tree). The cost of the next
job counts beforehand, so that a large gang is paid for when it starts, and cutting a job into parts gains nothing.

The walk is lazy: taking the first few of 10,000 jobs orders no others. It is a function of its arguments alone.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from yurt.queue.amounts import NOTHING, WEIGHT_ONE, Amounts, dominant_share
from yurt.queue.waiting import Waiting

Path = tuple[str, ...]
ROOT: Final[Path] = ()


class Shares(NamedTuple):
    """What the order compares with: capacity of the pool over a lifetime of usage, and the weights of tenants."""

    capacity: Amounts
    """The pool's amounts times `decay.lifetime(half_life)`: usage of a tenant that has used all of it for ever."""
    half_life: int
    weights: Mapping[Path, int]
    """In thousandths, by path; tenants that are missing have weight 1."""

    def key(self, amounts: Amounts, path: Path) -> int:
        """The weighted dominant share."""
        weight = self.weights.get(path, WEIGHT_ONE)
        assert weight > 0, (path, weight)
        return dominant_share(amounts, self.capacity) * WEIGHT_ONE // weight


class _Node(Protocol):
    """A part of the tree that still has jobs."""

    path: Path
    used: Amounts

    def peek(self) -> Waiting: ...

    def pop(self) -> Waiting: ...

    @property
    def is_empty(self) -> bool: ...


class _Leaf:
    """The jobs of one tenant."""

    __slots__ = ("jobs", "next", "path", "used")

    def __init__(self, path: Path, used: Amounts, jobs: Sequence[Waiting]) -> None:
        self.path, self.used, self.jobs, self.next = path, used, jobs, 0

    def peek(self) -> Waiting:
        return self.jobs[self.next]

    def pop(self) -> Waiting:
        self.next += 1
        return self.jobs[self.next - 1]

    @property
    def is_empty(self) -> bool:
        return self.next >= len(self.jobs)


class _Branch:
    """Children by their key."""

    __slots__ = ("children", "heap", "path", "shares", "used")

    def __init__(self, path: Path, used: Amounts, children: Iterable[_Node], shares: Shares) -> None:
        self.path, self.used, self.shares = path, used, shares
        self.children = {child.path: child for child in children}
        self.heap = [(self._key(child), child.path) for child in self.children.values()]
        heapq.heapify(self.heap)

    def peek(self) -> Waiting:
        return self.children[self.heap[0][1]].peek()

    def pop(self) -> Waiting:
        child = self.children[self.heap[0][1]]
        job = child.pop()
        child.used = child.used.plus(job.cost(self.shares.half_life))
        if child.is_empty:
            heapq.heappop(self.heap)
        else:
            heapq.heapreplace(self.heap, (self._key(child), child.path))
        return job

    @property
    def is_empty(self) -> bool:
        return not self.heap

    def _key(self, child: _Node) -> int:
        return self.shares.key(child.used.plus(child.peek().cost(self.shares.half_life)), child.path)


def fair_order(
    bands: Mapping[int, Mapping[Path, Sequence[Waiting]]], used: Mapping[Path, Amounts], shares: Shares
) -> Iterator[Waiting]:
    """The jobs in their order, lazily; nothing given may change meanwhile.

    `bands` has the jobs of each leaf by band, in the order of the leaf; `used` is the decayed usage of each leaf, those
    that are missing have used nothing.
    """
    sums = _summed(used)
    for band in sorted(bands, reverse=True):
        if not bands[band]:
            continue
        root = _tree(bands[band], sums, shares)
        while not root.is_empty:
            job = root.pop()
            # Bands that follow see what these jobs cost.
            _charge(sums, job, shares.half_life)
            yield job


def _summed(used: Mapping[Path, Amounts]) -> dict[Path, Amounts]:
    """Usage of leaves and of all accounts above them."""
    sums: dict[Path, Amounts] = {}
    for path, amounts in used.items():
        for depth in range(1, len(path)):
            sums[path[:depth]] = sums.get(path[:depth], NOTHING).plus(amounts)
        sums[path] = sums[path].plus(amounts) if path in sums else amounts
    return sums


def _charge(sums: dict[Path, Amounts], job: Waiting, half_life: int) -> None:
    cost = job.cost(half_life)
    for depth in range(1, len(job.tenant) + 1):
        path = job.tenant[:depth]
        sums[path] = sums.get(path, NOTHING).plus(cost)


def _tree(leaves: Mapping[Path, Sequence[Waiting]], sums: Mapping[Path, Amounts], shares: Shares) -> _Branch:
    """The part of the tree that has jobs."""
    children: dict[Path, list[_Node]] = defaultdict(list)
    for path, jobs in leaves.items():
        assert path, "every job has a tenant"
        assert jobs, (path, "a leaf without jobs is no leaf")
        children[path[:-1]].append(_Leaf(path, sums.get(path, NOTHING), jobs))
    for depth in range(max(map(len, leaves)) - 1, 0, -1):
        for path in [path for path in children if len(path) == depth]:
            children[path[:-1]].append(_Branch(path, sums.get(path, NOTHING), children[path], shares))
    return _Branch(ROOT, NOTHING, children[ROOT], shares)
