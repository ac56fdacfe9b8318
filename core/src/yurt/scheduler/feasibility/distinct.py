"""distinct_hosts and distinct_property: limits that depend on the job's allocations
(docs/explanation/feasibility.md)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from yurt.scheduler.constraints.operators import DISTINCT_HOSTS, DISTINCT_PROPERTY
from yurt.scheduler.feasibility.masks import BoolArray, property_codes
from yurt.state.store import Snapshot
from yurt.structs.constraint import Constraint
from yurt.structs.job import Job, TaskGroup

DIGITS_MAX = 9


class _Property(msgspec.Struct, frozen=True):
    """A limit on allocations per value of an attribute; `is_job_wide` counts all groups of the job."""

    text: str
    codes: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    limit: int
    is_job_wide: bool


class Distinct:
    """The distinct rules of one group; updated with every allocation of the job that the plan leaves running."""

    def __init__(self, snapshot: Snapshot, job: Job, group: TaskGroup) -> None:
        self._group = group.name
        self._hosts_job = _asks_hosts(job.constraints)
        self._hosts_group = _asks_hosts(group.constraints)
        self._counts = np.zeros(len(snapshot.columns.nodes.offered), np.int64)
        self._properties = [
            _property(snapshot, constraint, is_job_wide=is_job_wide)
            for constraints, is_job_wide in ((job.constraints, True), (group.constraints, False))
            for constraint in constraints
            if constraint.operand == DISTINCT_PROPERTY
        ]

    @property
    def is_used(self) -> bool:
        """Whether the group has distinct rules."""
        return self._hosts_job or self._hosts_group or bool(self._properties)

    def count(self, rows: Iterable[int], group: str, sign: int = 1) -> None:
        """Count allocations of the job's `group` on these rows."""
        assert sign in (1, -1), sign
        is_own = group == self._group
        for row in rows:
            if self._hosts_job or (self._hosts_group and is_own):
                self._counts[row] += sign
            for rule in self._properties:
                if (rule.is_job_wide or is_own) and rule.codes[row] >= 0:
                    rule.counts[rule.codes[row]] += sign

    def refused(self) -> dict[str, BoolArray]:
        """The rows on which each rule refuses another allocation."""
        refused: dict[str, BoolArray] = {}
        if self._hosts_job or self._hosts_group:
            refused[DISTINCT_HOSTS] = self._counts > 0
        for rule in self._properties:
            refused[rule.text] = (rule.codes < 0) | (rule.counts >= rule.limit)[rule.codes]
        return {text: mask for text, mask in refused.items() if mask.any()}

    def used_of(self, text: str, row: int) -> tuple[int, int]:
        """The number of allocations with the row's value under that rule (-1: no value), and the limit."""
        rules = [rule for rule in self._properties if rule.text == text]
        rule = min(rules, key=lambda rule: rule.limit - rule.counts[rule.codes[row]])
        code = int(rule.codes[row])
        return (int(rule.counts[code]) if code >= 0 else -1), rule.limit


def limit_of(constraint: Constraint) -> int:
    """The number of allocations per value that a distinct_property constraint permits."""
    text = constraint.r_target.strip()
    return max(1, int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else 1)


def _asks_hosts(constraints: Iterable[Constraint]) -> bool:
    return any(c.operand == DISTINCT_HOSTS and c.r_target.lower() not in ("false", "f", "0") for c in constraints)


def _property(snapshot: Snapshot, constraint: Constraint, *, is_job_wide: bool) -> _Property:
    codes, values = property_codes(snapshot, constraint.l_target)
    return _Property(
        f"{DISTINCT_PROPERTY}: {constraint.l_target}",
        codes,
        np.zeros(len(values) + 1, np.int64),
        limit_of(constraint),
        is_job_wide,
    )
