"""Job traces: CSV files in the format of the Philly trace, or jobs drawn from a published workload model."""

from __future__ import annotations

import csv
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

SECOND: Final = 1_000_000_000
DAY_S: Final = 86_400
BUSY_DAY: Final = 100
RUN_TIME_MAX_S: Final = 2 * DAY_S
LIMIT_FACTORS: Final = (1.05, 8.0)
"""The range of declared time limits as multiples of the run time, drawn log-uniformly."""

# The model of Lublin and Feitelson (2003) for batch jobs: sizes and run times with their published parameters.
SERIAL, POWER_OF_TWO = 0.2927, 0.6686
SIZE_LOW, SIZE_MIDDLE_BELOW_HIGH, SIZE_LOW_PART = 1.2, 2.5, 0.7
SHORT_SHAPE, SHORT_SCALE, LONG_SHAPE, LONG_SCALE = 6.57, 0.823, 639.1, 0.0156
SHORT_SLOPE, SHORT_BASE = -0.003, 0.6986


Row = tuple[float, float, int, str]
"""Submission and run time in seconds, GPUs, tenant."""


class Job(NamedTuple):
    """One submission; times in nanoseconds."""

    id: int
    submit: int
    duration: int
    limit: int
    gpus: int
    tenant: str


class Load(NamedTuple):
    """Jobs, and the number of GPUs on which they are the wanted load."""

    name: str
    jobs: tuple[Job, ...]
    gpus: int

    @property
    def tenants(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(sorted({job.tenant for job in self.jobs}))


def from_csv(path: Path, *, count: int, load: float, seed: int, skip: int = 0) -> Load:
    """Jobs of a file with the columns timestamp, duration (s), num_gpus and cluster (the tenant)."""
    with path.open(newline="") as file:
        rows = _from_first_busy_day(sorted(_rows(csv.DictReader(file))))[skip : skip + count]
    draw = random.Random(seed)
    first = rows[0][0]
    jobs = [
        _job(number, (time - first, duration, gpus, tenant), draw)
        for number, (time, duration, gpus, tenant) in enumerate(rows)
    ]
    part = f" from {skip}" if skip else ""
    return _loaded(f"{path.stem}{part}, load {load:g}", jobs, load)


def drawn(*, count: int, load: float, seed: int, tenants: int = 12, size_max: int = 256) -> Load:
    """Jobs of many parallel processes, with a day's rhythm of arrivals and tenants of unequal diligence."""
    draw = random.Random(seed)
    names = [f"team-{number}" for number in range(tenants)]
    diligence = [1 / (1 + number) for number in range(tenants)]
    time, rows = 0.0, []
    for number in range(count):
        hour = time % DAY_S / 3600
        time += draw.expovariate(1 / 300) / (0.4 + 1.2 * math.sin(math.pi * hour / 24) ** 2)
        size = _size(draw, size_max)
        rows.append(_job(number, (time, _run_time(draw, size), size, draw.choices(names, diligence)[0]), draw))
    return _loaded(f"gangs (Lublin-Feitelson model), load {load:g}", rows, load)


def _from_first_busy_day(rows: Sequence[Row]) -> Sequence[Row]:
    """The jobs without those of the days before the trace was complete, of which only those that ran long are in it."""
    days = Counter(int(row[0] // DAY_S) for row in rows)
    busy = min((day for day, count in days.items() if count >= BUSY_DAY), default=0)
    return [row for row in rows if row[0] >= busy * DAY_S]


def _rows(reader: Iterator[dict[str, str]]) -> Iterator[Row]:
    for row in reader:
        time = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp()
        duration = min(float(row["duration"]), RUN_TIME_MAX_S)
        if duration > 0 and int(row["num_gpus"]) > 0:
            yield time, duration, int(row["num_gpus"]), row["cluster"]


def _job(number: int, row: Row, draw: random.Random) -> Job:
    time, duration, gpus, tenant = row
    low, high = map(math.log, LIMIT_FACTORS)
    limit = math.ceil(duration * math.exp(draw.uniform(low, high)) / 60) * 60
    return Job(number, round(time * SECOND), round(duration * SECOND), limit * SECOND, gpus, tenant)


def _loaded(name: str, jobs: Sequence[Job], load: float) -> Load:
    span = jobs[-1].submit - jobs[0].submit
    work = sum(job.duration * job.gpus for job in jobs)
    gpus = max(round(work / span / load), *(job.gpus for job in jobs))
    return Load(name, tuple(jobs), gpus)


def _size(draw: random.Random, most: int) -> int:
    if draw.random() < SERIAL:
        return 1
    high = math.log2(most)
    middle = high - SIZE_MIDDLE_BELOW_HIGH
    exponent = draw.uniform(SIZE_LOW, middle) if draw.random() < SIZE_LOW_PART else draw.uniform(middle, high)
    return max(2, round(2 ** (round(exponent) if draw.random() < POWER_OF_TWO else exponent)))


def _run_time(draw: random.Random, size: int) -> float:
    is_short = draw.random() < SHORT_SLOPE * size + SHORT_BASE
    shape, scale = (SHORT_SHAPE, SHORT_SCALE) if is_short else (LONG_SHAPE, LONG_SCALE)
    return min(RUN_TIME_MAX_S, max(1.0, math.exp(draw.gammavariate(shape, scale))))
