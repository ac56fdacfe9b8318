"""An agent's metrics: counters and durations since its start, and gauges, which are read on demand.

A name is relative to `nomad.nomad.` (of a server) or `nomad.client.` (of a client); names for the whole agent begin
with one of `AGENT_PARTS` and are relative to `nomad.`. Sinks and the API render all metrics
(`yurt.http.agent_routes.metrics_snapshot`).
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping
from operator import mul
from typing import Final, NamedTuple

import msgspec

from yurt.sdk.value import StrMap

RECENT: Final = 128
"""The number of last durations of one name, kept for quantiles and for sinks that take each duration."""
KEPT_MAX: Final = 2 * RECENT
"""From this number of durations on, older ones are only summed up."""
LABELLED_MAX: Final = 2_000
"""The largest number of combinations of a name and labels; further ones are counted under the name alone."""
AGENT_PARTS: Final = ("agent", "memberlist", "raft", "runtime")
SERVER_PREFIX: Final = "nomad.nomad."
CLIENT_PREFIX: Final = "nomad.client."

Labels = tuple[tuple[str, str], ...]
NO_LABEL: Final[StrMap] = {}
NO_LABELS: Final[Labels] = ()


class Gauge(NamedTuple):
    """A current value, under its full name."""

    name: str
    value: float
    labels: StrMap = NO_LABEL


class Count(NamedTuple):
    """A counter since the agent's start, under its full name."""

    name: str
    value: int
    labels: StrMap = NO_LABEL


class Timing:
    """Durations in seconds: count, sum, extremes, sum of squares, and the last ones.

    A registered job adds 14 durations and few of them are ever read, so `add` only keeps them; they are summed up by
    C code once `KEPT_MAX` are there, or when somebody reads. They are an array of numbers, not objects: single floats
    that live for hours, among the thousands of short-lived objects of each allocation, would each keep a megabyte of
    Python's heap from being returned.
    """

    __slots__ = ("_kept", "_max_s", "_min_s", "_squares", "_summed", "_summed_kept", "_total_s")

    def __init__(self) -> None:
        self._kept = array("d")
        """The last durations, the oldest first: at least `RECENT`, where there are as many."""
        self._summed_kept = 0
        """The number of kept durations, from the oldest on, that the sums contain."""
        self._summed = 0
        self._total_s = self._squares = 0.0
        self._min_s, self._max_s = math.inf, 0.0

    def add(self, seconds: float) -> None:
        """Add a duration."""
        kept = self._kept
        kept.append(seconds)
        if len(kept) >= KEPT_MAX:
            self._sum_up()

    def _sum_up(self) -> None:
        """Bring the sums up to date, and drop all but the recent durations."""
        new = self._kept[self._summed_kept :]
        if new:
            self._summed += len(new)
            self._total_s += sum(new)
            self._squares += sum(map(mul, new, new))
            shortest, longest = min(new), max(new)
            self._min_s, self._max_s = min(self._min_s, shortest), max(self._max_s, longest)
            del self._kept[:-RECENT]
            self._summed_kept = len(self._kept)

    @property
    def count(self) -> int:
        """The number of all durations."""
        return self._summed + len(self._kept) - self._summed_kept

    @property
    def total_s(self) -> float:
        """The sum of all durations."""
        self._sum_up()
        return self._total_s

    @property
    def max_s(self) -> float:
        """The longest duration; 0 without any."""
        self._sum_up()
        return self._max_s

    @property
    def min_s(self) -> float:
        """The shortest duration; 0 without any."""
        self._sum_up()
        return self._min_s if self._summed else 0.0

    @property
    def squares(self) -> float:
        """The sum of the squares of all durations."""
        self._sum_up()
        return self._squares

    @property
    def recent(self) -> list[float]:
        """The last `RECENT` durations, the oldest first."""
        return self._kept[-RECENT:].tolist()

    @property
    def mean_s(self) -> float:
        """The mean of all durations; 0 without any."""
        return self.total_s / self.count if self.count else 0.0

    @property
    def deviation_s(self) -> float:
        """The standard deviation of all durations; 0 for fewer than two."""
        count, total_s = self.count, self.total_s
        if count < 2:
            return 0.0
        variance = (self.squares - total_s * total_s / count) / (count - 1)
        return float(max(variance, 0.0) ** 0.5)

    def quantile(self, share: float) -> float:
        """The duration that `share` of the recent ones do not exceed; NaN without any."""
        if not self.count:
            return float("nan")
        ordered = sorted(self.recent)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def copy(self) -> Timing:
        """A copy that later durations do not change."""
        self._sum_up()
        made = Timing()
        for name in Timing.__slots__:
            setattr(made, name, getattr(self, name))
        made._kept = self._kept[:]
        return made


class Duration(NamedTuple):
    """Durations since the agent's start, under their full name."""

    name: str
    timing: Timing
    labels: StrMap = NO_LABEL

    @property
    def scale(self) -> float:
        """The factor from seconds to the unit shown: nanoseconds for names that end with `_ns`, else milliseconds."""
        return 1e9 if self.name.endswith("_ns") else 1e3


class Metrics(msgspec.Struct):
    """Counters and durations of one part of an agent."""

    prefix: str = SERVER_PREFIX
    counters: Counter[str] = msgspec.field(default_factory=Counter)
    timings: dict[str, Timing] = msgspec.field(default_factory=dict)
    labelled_counters: Counter[tuple[str, Labels]] = msgspec.field(default_factory=Counter)
    labelled_timings: dict[tuple[str, Labels], Timing] = msgspec.field(default_factory=dict)

    def count(self, name: str, by: int = 1, *, labels: Labels = NO_LABELS) -> None:
        """Increase a counter."""
        if labels and has_place(self.labelled_counters, (name, labels)):
            self.labelled_counters[name, labels] += by
        else:
            self.counters[name] += by

    def time(self, name: str, seconds: float, *, labels: Labels = NO_LABELS) -> None:
        """Record one duration."""
        timing = self.labelled_timings.get((name, labels)) if labels else self.timings.get(name)
        if timing is None:
            timing = self._new_timing(name, labels)
        timing.add(seconds)

    def timing(self, name: str) -> Timing:
        """The durations under a name, for a caller that adds many and keeps it."""
        return self.timings.get(name) or self._new_timing(name, NO_LABELS)

    def _new_timing(self, name: str, labels: Labels) -> Timing:
        if labels and has_place(self.labelled_timings, (name, labels)):
            return self.labelled_timings.setdefault((name, labels), Timing())
        return self.timings.setdefault(name, Timing())

    def counts(self) -> list[Count]:
        """All counters, under their full names."""
        found = [Count(self.full_name(name), value) for name, value in sorted(self.counters.items())]
        for (name, labels), value in sorted(self.labelled_counters.items()):
            found.append(Count(self.full_name(name), value, dict(labels)))
        return found

    def durations(self) -> list[Duration]:
        """Copies of all timings, under their full names."""
        found = [Duration(self.full_name(name), timing.copy()) for name, timing in sorted(self.timings.items())]
        for (name, labels), timing in sorted(self.labelled_timings.items(), key=lambda item: item[0]):
            found.append(Duration(self.full_name(name), timing.copy(), dict(labels)))
        return found

    def full_name(self, name: str) -> str:
        """The full name that sinks and the API show."""
        return full_name(name, self.prefix)


def full_name(name: str, prefix: str = SERVER_PREFIX) -> str:
    """The full name of a metric: `plan.submit` -> `nomad.nomad.plan.submit`; `raft.apply` -> `nomad.raft.apply`."""
    return f"nomad.{name}" if name.partition(".")[0] in AGENT_PARTS else prefix + name


def has_place(counted: Mapping[tuple[str, Labels], object], key: tuple[str, Labels]) -> bool:
    """Whether a name with labels is counted separately: it is so already, or the bound is not reached."""
    return len(counted) < LABELLED_MAX or key in counted
