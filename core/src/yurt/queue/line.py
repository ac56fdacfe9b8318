"""The jobs that wait, kept sorted: a job enters and leaves in logarithmic time, whatever waits beside it.

A leaf may have children besides its own jobs: those of a namespace's jobs that name no user stand beside its users.
Such jobs get a leaf of their own below the account (`OWN_LEAF`), so that leaving the name out gains nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from yurt.queue.fair_order import Path
from yurt.queue.waiting import JobKey, Waiting

OWN_LEAF: Final = ""
"""The name of the leaf of jobs that belong to an account and to none of its children."""


def place_in_leaf(job: Waiting) -> tuple[int, int, int, JobKey]:
    """The order within one tenant: priority, then turn, then first come, first served."""
    return (-job.priority, job.turn, job.create_index, job.key)


class Line:
    """Waiting jobs by key, by band and leaf, and by age."""

    def __init__(self) -> None:
        self._jobs: dict[JobKey, Waiting] = {}
        self._bands: dict[int, dict[Path, list[Waiting]]] = {}
        self._ages: list[tuple[int, int, JobKey]] = []

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
    def bands(self) -> Mapping[int, Mapping[Path, Sequence[Waiting]]]:
        """The jobs of each leaf by band, in the order of the leaf."""
        return self._bands

    def put(self, job: Waiting) -> None:
        """Add a job, or change it."""
        self.remove(job.key)
        self._jobs[job.key] = job
        insort(self._bands.setdefault(job.band, {}).setdefault(job.tenant, []), job, key=place_in_leaf)
        insort(self._ages, (job.since, job.create_index, job.key))

    def remove(self, key: JobKey) -> Waiting | None:
        """Remove a job, if it is there."""
        job = self._jobs.pop(key, None)
        if job is None:
            return None
        leaves = self._bands[job.band]
        leaf = leaves[job.tenant]
        del leaf[bisect_left(leaf, place_in_leaf(job), key=place_in_leaf)]
        if not leaf:
            del leaves[job.tenant]
        if not leaves:
            del self._bands[job.band]
        del self._ages[bisect_left(self._ages, (job.since, job.create_index, key))]
        return job

    def oldest(self) -> Iterator[Waiting]:
        """The jobs, the longest wait first."""
        return (self._jobs[key] for _, _, key in self._ages)

    def first_come(self) -> Iterator[Waiting]:
        """The jobs by the index of their evaluation."""
        return iter(sorted(self._jobs.values(), key=lambda job: (job.create_index, job.key)))

    def check(self) -> None:
        """Assert the invariants over all data, for tests after every step."""
        placed = [job for leaves in self._bands.values() for leaf in leaves.values() for job in leaf]
        assert {job.key: job for job in placed} == self._jobs, "a job stands in one leaf of one band"
        assert len(placed) == len(self._jobs) == len(self._ages), "no job stands twice"
        assert all(leaf for leaves in self._bands.values() for leaf in leaves.values()), "no leaf is empty"
