"""An agent's metrics: counters and durations since its start, and gauges, which are read on demand.

A name is relative to `nomad.nomad.` (of a server) or `nomad.client.` (of a client); names for the whole agent begin
with one of `AGENT_PARTS` and are relative to `nomad.`. Sinks and the API render all metrics
(`yurt.http.agent_routes.metrics_snapshot`).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from yurt.sdk.value import StrMap

RECENT: Final = 128
"""The number of last durations of one name, kept for quantiles and for sinks that take each duration."""
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


def _no_durations() -> array[float]:
    return array("d", bytes(RECENT * array("d").itemsize))


class Timing(msgspec.Struct):
    """Durations in seconds: count, sum, extremes, sum of squares, and the last ones.

    The last ones are an array of numbers, not objects: single floats that live for hours, among the thousands of
    short-lived objects of each allocation, would each keep a megabyte of Python's heap from being returned.
    """

    count: int = 0
    total_s: float = 0.0
    max_s: float = 0.0
    min_s: float = 0.0
    squares: float = 0.0
    _ring: array[float] = msgspec.field(default_factory=_no_durations)
    """The n-th duration, from 0 on, is at n % RECENT."""

    @property
    def recent(self) -> list[float]:
        """The last `RECENT` durations, the oldest first."""
        oldest = self.count % RECENT
        newer = self._ring[:oldest].tolist()
        return newer if self.count < RECENT else self._ring[oldest:].tolist() + newer

    def add(self, seconds: float) -> None:
        """Add a duration."""
        # Comparisons instead of `min` and `max`, which cost as much as the rest: a registered job adds 14 durations.
        if seconds < self.min_s or not self.count:
            self.min_s = seconds
        if seconds > self.max_s:  # noqa: PLR1730
            self.max_s = seconds
        self._ring[self.count % RECENT] = seconds
        self.count += 1
        self.total_s += seconds
        self.squares += seconds * seconds

    @property
    def mean_s(self) -> float:
        """The mean of all durations; 0 without any."""
        return self.total_s / self.count if self.count else 0.0

    @property
    def deviation_s(self) -> float:
        """The standard deviation of all durations; 0 for fewer than two."""
        if self.count < 2:
            return 0.0
        variance = (self.squares - self.total_s * self.total_s / self.count) / (self.count - 1)
        return float(max(variance, 0.0) ** 0.5)

    def quantile(self, share: float) -> float:
        """The duration that `share` of the recent ones do not exceed; NaN without any."""
        if not self.count:
            return float("nan")
        ordered = sorted(self.recent)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def copy(self) -> Timing:
        """A copy that later durations do not change."""
        return Timing(self.count, self.total_s, self.max_s, self.min_s, self.squares, self._ring[:])


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
        if labels:
            key = (name, labels)
            labelled = self.labelled_timings.get(key)
            if labelled is None and has_place(self.labelled_timings, key):
                labelled = self.labelled_timings[key] = Timing()
            if labelled is not None:
                labelled.add(seconds)
                return
        timing = self.timings.get(name)
        if timing is None:
            timing = self.timings[name] = Timing()
        timing.add(seconds)

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
