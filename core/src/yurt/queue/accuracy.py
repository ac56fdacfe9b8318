"""Accuracy of start forecasts: the start predicted when a job arrived, compared with its real start.

The first forecast of each job counts, since its owner plans by it. The predicted wait is also compared with the real
one: a forecast cannot include jobs that arrive later and overtake, so real waits are longer. The ratios of recent jobs
correct later forecasts (`corrected`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Final, NamedTuple

from yurt.queue.waiting_job import JobKey

KEPT: Final = 1_000
"""The maximum number of recorded starts; older ones are dropped."""
ENOUGH: Final = 20
"""The number of recorded starts from which forecasts are corrected."""
LEAST_WAIT: Final = 60_000_000_000
"""The minimum wait, in nanoseconds, in comparisons: an error of half a minute in a shorter wait is not an error of 100
%."""
PERCENT: Final = 100


class Forecast(NamedTuple):
    """A predicted start, made at `made`; 0 where no prediction was possible."""

    made: int
    likely: int
    by: int
    latest: int


class Start(NamedTuple):
    """A forecast, the same before its correction, and the time at which the job started."""

    forecast: Forecast
    plain: Forecast
    at: int


class Summary(NamedTuple):
    """Errors in nanoseconds and in percent of the wait, coverage in percent."""

    starts: int
    median_error: int
    median_error_percent: float
    by_likely_percent: float
    """Percentage of jobs that started by their likely start; 50 is right."""
    by_percent: float
    """Percentage of jobs that started by the time predicted for 4 of 5 cases; 80 is right."""
    after_latest: int
    """Jobs that started after their latest predicted start: nodes were lost, or jobs of higher bands arrived."""


class Accuracy:
    """The forecasts of waiting jobs, and the most recent starts."""

    def __init__(self) -> None:
        self._waiting: dict[JobKey, tuple[Forecast, Forecast]] = {}
        self._starts: deque[Start] = deque(maxlen=KEPT)
        self._ratios: tuple[float, float] | None = None
        """The ratios that 50 % and 80 % of recent jobs did not exceed; None until they are needed after a start."""

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, plain: Mapping[JobKey, Forecast], corrected: Mapping[JobKey, Forecast]) -> None:
        """Remember the first forecast of each job."""
        for key, forecast in plain.items():
            if forecast.likely and key not in self._waiting:
                self._waiting[key] = (corrected.get(key, forecast), forecast)

    def started(self, key: JobKey, at: int) -> None:
        """Record that a job has started."""
        forecasts = self._waiting.pop(key, None)
        if forecasts is not None:
            self._starts.append(Start(*forecasts, at))
            self._ratios = None

    def left(self, key: JobKey) -> None:
        """Remove a job that left the queue without starting."""
        self._waiting.pop(key, None)

    def corrected(self, forecast: Forecast) -> Forecast:
        """A forecast with the waits that 50 % and 80 % of recent jobs really had for such a prediction."""
        if len(self._starts) < ENOUGH or not forecast.likely:
            return forecast
        half, most = self._learned()
        wait = forecast.likely - forecast.made
        likely = forecast.made + round(wait * half)
        by = forecast.made + round(wait * most)
        latest = forecast.latest or max(likely, by)
        return forecast._replace(likely=min(likely, latest), by=min(max(by, likely), latest))

    def _learned(self) -> tuple[float, float]:
        """The ratios (see `_ratios`), computed once for all jobs: sorting the starts for each of 10,000 would take
        seconds."""
        if self._ratios is None:
            ratios = sorted(map(_ratio, self._starts))
            self._ratios = ratios[len(ratios) // 2], ratios[len(ratios) * 4 // 5]
        return self._ratios

    def summary(self) -> Summary | None:
        """The outcome of recent forecasts; None before the first start."""
        starts = self._starts
        if not starts:
            return None
        errors = [abs(start.at - start.forecast.likely) for start in starts]
        parts = [
            PERCENT * error / max(LEAST_WAIT, start.at - start.forecast.made)
            for error, start in zip(errors, starts, strict=True)
        ]
        return Summary(
            starts=len(starts),
            median_error=round(median(errors)),
            median_error_percent=median(parts),
            by_likely_percent=_percent(sum(start.at <= start.forecast.likely for start in starts), len(starts)),
            by_percent=_percent(sum(start.at <= start.forecast.by for start in starts), len(starts)),
            after_latest=sum(start.at > start.forecast.latest > 0 for start in starts),
        )


def _ratio(start: Start) -> float:
    """The real wait as a multiple of the uncorrected forecast."""
    said = max(LEAST_WAIT, start.plain.likely - start.plain.made)
    return max(LEAST_WAIT, start.at - start.plain.made) / said


def _percent(part: int, whole: int) -> float:
    return PERCENT * part / whole
