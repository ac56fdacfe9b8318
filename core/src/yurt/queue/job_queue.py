"""Waiting jobs, kept sorted: adding and removing one takes logarithmic time.

Each tenant has a leaf, in each band of priority. The leaves of a band are sorted by their heads, so that a walk in the
order of the queue begins without looking at all of them. A job of an account that names no user goes to a
separate leaf (`OWN_LEAF`), so that leaving the name out gains nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from yurt.queue.waiting_job import JobKey, Path, Waiting

OWN_LEAF: Final = ""
"""The name of the leaf for jobs that belong to an account but to none of its users."""
CHANGES_MIN: Final = 4096
"""The number of changes that a `ChangeLog` keeps at least."""


class ChangeLog:
    """The last changed keys of a mapping, for followers that store their position.

    A follower that is further behind than the log reaches reads everything again.
    """

    def __init__(self) -> None:
        self.position = 0
        """The number of changes so far."""
        self._keys: list[str] = []

    def note(self, key: str) -> None:
        """Record a change of a key."""
        if len(self._keys) >= 2 * CHANGES_MIN:
            del self._keys[:CHANGES_MIN]
        self._keys.append(key)
        self.position += 1

    def since(self, position: int) -> Iterable[str] | None:
        """The keys that changed after a position; None where they are not kept."""
        number = self.position - position
        if number > len(self._keys):
            return None
        return dict.fromkeys(self._keys[len(self._keys) - number :])


def place_in_leaf(job: Waiting) -> tuple[int, int, int, JobKey]:
    """The order within one tenant: priority, then turn, then first come, first served."""
    return (-job.priority, job.turn, job.create_index, job.key)


class LeafHead(NamedTuple):
    """The next job of a leaf, in the form in which leaves are compared."""

    turn: int
    """Its turn, put off by the decayed usage of its tenant."""
    create_index: int
    path: Path


class Band:
    """The leaves of one priority band, and their heads in order."""

    def __init__(self, delays: Mapping[Path, int]) -> None:
        self.leaves: dict[Path, list[Waiting]] = {}
        self.heads: list[LeafHead] = []
        self.changed: set[Path] | None = None
        """Leaves that may have another head since the follower of the heads cleared this; None without a follower."""
        self._followed: Collection[Path] = ()
        self._delays = delays
        self._head_of: dict[Path, LeafHead] = {}
        self._of_account: dict[str, set[Path]] = {}

    def add(self, job: Waiting) -> None:
        """Add a job to its leaf."""
        leaf = self.leaves.setdefault(job.tenant, [])
        self._of_account.setdefault(job.tenant[0], set()).add(job.tenant)
        insort(leaf, job, key=place_in_leaf)
        self.refresh(job.tenant)

    def drop(self, job: Waiting) -> None:
        """Remove a job from its leaf."""
        leaf = self.leaves[job.tenant]
        del leaf[bisect_left(leaf, place_in_leaf(job), key=place_in_leaf)]
        if not leaf:
            del self.leaves[job.tenant]
            of_account = self._of_account[job.tenant[0]]
            of_account.remove(job.tenant)
            if not of_account:
                del self._of_account[job.tenant[0]]
        self.refresh(job.tenant)

    @property
    def accounts(self) -> Iterable[str]:
        """The accounts with leaves."""
        return self._of_account

    def leaves_of(self, account: str) -> Iterable[Path]:
        """The leaves of an account."""
        return self._of_account.get(account, ())

    def head(self, path: Path) -> LeafHead | None:
        """The head of a leaf; None for one without jobs."""
        return self._head_of.get(path)

    def follow(self, paths: Collection[Path]) -> None:
        """Collect changed leaves from now on, for a follower that knows the heads of these: they may change later."""
        self.changed, self._followed = set(), paths

    def delay_changed(self, path: Path) -> None:
        """Sort the leaves of a tenant again after its delay changed: one leaf, or all leaves of an account."""
        for leaf in sorted(self._of_account.get(path[0], ())) if len(path) == 1 else (path,):
            self.refresh(leaf)

    def refresh(self, path: Path) -> None:
        """Sort a leaf again among the others."""
        leaf, sorted_head = self.leaves.get(path), self._head_of.get(path)
        if self.changed is not None:
            # What came and went between two walks leaves nothing, so that the set is bounded by the leaves.
            if leaf is not None or path in self._followed:
                self.changed.add(path)
            else:
                self.changed.discard(path)
        now = None if leaf is None else head_of(leaf[0], self._delays)
        if now == sorted_head:
            return
        if sorted_head is not None:
            del self.heads[bisect_left(self.heads, sorted_head)], self._head_of[path]
        if now is not None:
            insort(self.heads, now)
            self._head_of[path] = now


def head_of(job: Waiting, delays: Mapping[Path, int]) -> LeafHead:
    """A job as the head of its leaf, delayed by its account's and its user's delay; a missing delay counts as 0."""
    path = job.tenant
    delay = delays.get(path, 0) if len(path) == 1 else delays.get(path[:1], 0) + delays.get(path, 0)
    return LeafHead(job.turn + delay, job.create_index, path)


class JobQueue:
    """Waiting jobs by key, by band and leaf, and by the time of their boost."""

    def __init__(self) -> None:
        self._delays: dict[Path, int] = {}
        self._jobs: dict[JobKey, Waiting] = {}
        self._bands: dict[int, Band] = {}
        self._boosts: list[tuple[int, int, JobKey]] = []
        self._accounts: dict[str, int] = {}
        self.account_changes = ChangeLog()
        """The accounts that began to wait or ceased to."""
        self._arrivals: list[tuple[int, JobKey]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, key: JobKey) -> bool:
        return key in self._jobs

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._jobs.values())

    def get(self, key: JobKey) -> Waiting | None:
        """The job, if it waits."""
        return self._jobs.get(key)

    @property
    def bands(self) -> Mapping[int, Band]:
        """The leaves of each band."""
        return self._bands

    @property
    def delays(self) -> Mapping[Path, int]:
        """The delay that each tenant's usage adds to its turns; `delay` changes it."""
        return self._delays

    @property
    def accounts(self) -> Mapping[str, int]:
        """The accounts with waiting jobs, and their number."""
        return self._accounts

    def delay(self, delays: Mapping[Path, int]) -> None:
        """Update the delays of the given tenants from their decayed usage."""
        for path, delay in delays.items():
            if self._delays.get(path, 0) != delay:
                self._delays[path] = delay
                for band in self._bands.values():
                    band.delay_changed(path)

    def put(self, job: Waiting) -> None:
        """Add or replace a job."""
        assert job.tenant, "every job has a tenant"
        self.remove(job.key)
        self._jobs[job.key] = job
        self._bands.setdefault(job.band, Band(self._delays)).add(job)
        if job.boost_at:
            insort(self._boosts, (job.boost_at, job.create_index, job.key))
        insort(self._arrivals, (job.create_index, job.key))
        before = self._accounts.get(job.tenant[0], 0)
        self._accounts[job.tenant[0]] = before + 1
        if not before:
            self.account_changes.note(job.tenant[0])

    def remove(self, key: JobKey) -> Waiting | None:
        """Remove a job, if present."""
        job = self._jobs.pop(key, None)
        if job is None:
            return None
        band = self._bands[job.band]
        band.drop(job)
        if not band.leaves:
            del self._bands[job.band]
        if job.boost_at:
            del self._boosts[bisect_left(self._boosts, (job.boost_at, job.create_index, key))]
        del self._arrivals[bisect_left(self._arrivals, (job.create_index, key))]
        remaining = self._accounts[job.tenant[0]] - 1
        if remaining:
            self._accounts[job.tenant[0]] = remaining
        else:
            del self._accounts[job.tenant[0]]
            self.account_changes.note(job.tenant[0])
        return job

    def next_boost(self) -> Waiting | None:
        """The job whose boost begins, or began, first."""
        return self._jobs[self._boosts[0][2]] if self._boosts else None

    def first_come(self) -> Iterator[Waiting]:
        """The jobs in the order of the create index of their evaluations."""
        return (self._jobs[key] for _, key in self._arrivals)

    def check(self) -> None:
        """Assert the invariants over all data, for tests after every step."""
        placed = [job for band in self._bands.values() for leaf in band.leaves.values() for job in leaf]
        assert {job.key: job for job in placed} == self._jobs, "a job stands in one leaf of one band"
        assert len(placed) == len(self._jobs), "no job stands twice"
        assert sum(self._accounts.values()) == len(placed), "each job belongs to an account"
        for band in self._bands.values():
            heads: Sequence[LeafHead] = sorted(head_of(leaf[0], self._delays) for leaf in band.leaves.values())
            assert band.heads == heads, "each leaf has its head among the others'"
