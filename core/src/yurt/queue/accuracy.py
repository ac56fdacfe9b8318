"""Accuracy of start forecasts: the start predicted when a job arrived, compared with its real start.

The first forecast of each job counts, since its owner plans by it. The predicted wait is also compared with the real
one: a forecast cannot include jobs that arrive later and overtake, so real waits are longer. The ratios of recent jobs
correct later forecasts (`corrected`).

A forecast grows better while its job waits, so its correction must shrink. The *stage* of a wait is the part of it that
is over, by the forecast; the first forecast of each stage is remembered, and corrects those of the same stage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
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
STAGES: Final = 8
"""The number of equal parts of a wait by which forecasts are compared."""
_MINUTE: Final = 60_000_000_000
WAIT_CLASSES: Final = (15 * _MINUTE, 60 * _MINUTE, 240 * _MINUTE, 0)
"""The bounds in nanoseconds below which waits are summed up together; 0: none."""


class Forecast(NamedTuple):
    """A predicted start, made at `made`; 0 where no prediction was possible.

    `by_limits` is the start if all run to their limits and no job comes and passes; `latest` the latest start that the
    queue guarantees.
    """

    made: int
    likely: int
    by: int
    by_limits: int
    latest: int = 0


class StageForecast(NamedTuple):
    """The first forecast in a stage of a wait, and the same before its correction."""

    stage: int
    forecast: Forecast
    plain: Forecast


class Start(NamedTuple):
    """The forecasts of a job in the order of time, and the time at which it started."""

    forecasts: tuple[StageForecast, ...]
    at: int
    latest: int = 0
    """The earliest of the latest starts that were guaranteed while it waited; 0: none."""

    @property
    def forecast(self) -> Forecast:
        """The first one."""
        return self.forecasts[0].forecast

    @property
    def plain(self) -> Forecast:
        """The first one before its correction."""
        return self.forecasts[0].plain

    def errors(self) -> list[tuple[float, int]]:
        """The errors in percent of the wait, each with the nanoseconds until the next forecast or the start."""
        wait = max(LEAST_WAIT, self.at - self.forecast.made)
        until = [one.forecast.made for one in self.forecasts[1:]] + [self.at]
        return [
            (PERCENT * abs(self.at - one.forecast.likely) / wait, max(0, end - one.forecast.made))
            for one, end in zip(self.forecasts, until, strict=True)
        ]


class WaitClass(NamedTuple):
    """The first forecasts of jobs whose waits were of a similar length; times in nanoseconds."""

    below: int
    """The bound of the waits; 0: none."""
    starts: int
    median_wait: int
    median_error: int
    median_error_percent: float
    by_likely_percent: float


class Summary(NamedTuple):
    """Errors in nanoseconds and in percent of the wait, coverage in percent."""

    starts: int
    median_error: int
    median_error_percent: float
    any_time_error_percent: float
    """The median error of what was forecast at any time of a wait, in percent of the whole wait."""
    by_likely_percent: float
    """Percentage of jobs that started by their likely start; 50 is right."""
    by_percent: float
    """Percentage of jobs that started by the time predicted for 4 of 5 cases; 80 is right."""
    after_latest: int
    """Jobs that started after a guaranteed latest start: nodes were lost, or work from outside the queue came."""
    with_latest: int = 0
    """Jobs that had a guaranteed latest start while they waited."""
    by_wait: tuple[WaitClass, ...] = ()
    """The first forecasts by the length of the real wait; classes without a start are missing."""


class Accuracy:
    """The forecasts of waiting jobs, and the most recent starts."""

    def __init__(self) -> None:
        self._waiting: dict[JobKey, list[StageForecast]] = {}
        self._latest: dict[JobKey, int] = {}
        """The earliest guaranteed latest start of each waiting job that had one."""
        self._starts: deque[Start] = deque(maxlen=KEPT)
        self._ratios: tuple[deque[float], ...] = tuple(deque(maxlen=KEPT) for _ in range(STAGES))
        """Real waits as multiples of the uncorrected forecasts, by stage."""
        self._learned: dict[int, tuple[float, float]] = {}
        """The ratios that 50 % and 80 % of recent jobs did not exceed, by stage; without those not needed since the
        last start."""

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, plain: Mapping[JobKey, Forecast], corrected: Mapping[JobKey, Forecast]) -> None:
        """Remember the first forecast of each job in each stage of its wait."""
        for key, forecast in plain.items():
            if forecast.latest:
                self._latest[key] = min(forecast.latest, self._latest.get(key, forecast.latest))
            if not forecast.likely:
                continue
            known = self._waiting.get(key)
            stage = self._stage(key, forecast)
            if known is None:
                self._waiting[key] = [StageForecast(stage, corrected.get(key, forecast), forecast)]
            elif known[-1].stage < stage:
                known.append(StageForecast(stage, corrected.get(key, forecast), forecast))

    def started(self, key: JobKey, at: int) -> None:
        """Record that a job has started."""
        forecasts, latest = self._waiting.pop(key, None), self._latest.pop(key, 0)
        if forecasts is not None:
            self._starts.append(Start(tuple(forecasts), at, latest))
            for one in forecasts:
                self._ratios[one.stage].append(_ratio(one.plain, at))
            self._learned.clear()

    @property
    def last(self) -> Start:
        """The most recent start; there must be one."""
        return self._starts[-1]

    def left(self, key: JobKey) -> None:
        """Remove a job that left the queue without starting."""
        self._waiting.pop(key, None)
        self._latest.pop(key, None)

    def corrected(self, key: JobKey, forecast: Forecast) -> Forecast:
        """A forecast with the waits that 50 % and 80 % of recent jobs really had for such a prediction."""
        stage = self._stage(key, forecast)
        if len(self._ratios[stage]) < ENOUGH or not forecast.likely:
            return forecast
        half, most = self._quantiles(stage)
        wait = forecast.likely - forecast.made
        likely = forecast.made + round(wait * half)
        by = forecast.made + round(wait * most)
        bound = forecast.by_limits or max(likely, by)
        return forecast._replace(likely=min(likely, bound), by=min(max(by, likely), bound))

    def _stage(self, key: JobKey, forecast: Forecast) -> int:
        """The stage of a job's wait, by this forecast of the rest of it."""
        known = self._waiting.get(key)
        # The clock may step back, and a new leader's may be behind: then nothing of the wait is over.
        over = max(0, forecast.made - known[0].forecast.made) if known else 0
        return min(STAGES - 1, STAGES * over // max(LEAST_WAIT, over + forecast.likely - forecast.made))

    def _quantiles(self, stage: int) -> tuple[float, float]:
        """The ratios of a stage, computed once for all jobs: sorting them for each of 10,000 would take seconds."""
        found = self._learned.get(stage)
        if found is None:
            ratios = sorted(self._ratios[stage])
            found = self._learned[stage] = ratios[len(ratios) // 2], ratios[len(ratios) * 4 // 5]
        return found

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
            any_time_error_percent=weighted_median([error for start in starts for error in start.errors()]),
            by_likely_percent=_percent(sum(start.at <= start.forecast.likely for start in starts), len(starts)),
            by_percent=_percent(sum(start.at <= start.forecast.by for start in starts), len(starts)),
            after_latest=sum(start.at > start.latest > 0 for start in starts),
            with_latest=sum(start.latest > 0 for start in starts),
            by_wait=tuple(by_wait(starts)),
        )


def by_wait(starts: Iterable[Start]) -> Iterator[WaitClass]:
    """The first forecasts, by the length of the real wait."""
    lower = 0
    rest = sorted((start.at - start.forecast.made, start) for start in starts)
    for below in WAIT_CLASSES:
        of_class = [(wait, start) for wait, start in rest if lower <= max(0, wait) and (not below or wait < below)]
        lower = below
        if not of_class:
            continue
        errors = [abs(start.at - start.forecast.likely) for _, start in of_class]
        yield WaitClass(
            below=below,
            starts=len(of_class),
            median_wait=round(median(wait for wait, _ in of_class)),
            median_error=round(median(errors)),
            median_error_percent=median(
                PERCENT * error / max(LEAST_WAIT, wait) for error, (wait, _) in zip(errors, of_class, strict=True)
            ),
            by_likely_percent=_percent(sum(start.at <= start.forecast.likely for _, start in of_class), len(of_class)),
        )


def weighted_median(values: list[tuple[float, int]]) -> float:
    """The value below which half of the weight lies; values come with their weights."""
    half, passed = sum(weight for _, weight in values) / 2, 0
    for value, weight in sorted(values):
        passed += weight
        if passed >= half:
            return value
    return 0.0


def _ratio(plain: Forecast, at: int) -> float:
    """The real wait as a multiple of the uncorrected forecast."""
    return max(LEAST_WAIT, at - plain.made) / max(LEAST_WAIT, plain.likely - plain.made)


def _percent(part: int, whole: int) -> float:
    return PERCENT * part / whole
