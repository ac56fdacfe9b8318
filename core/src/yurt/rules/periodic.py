"""The launch times of periodic jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from yurt.rules.cron import Cron, parse
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano
from yurt.structs.job import Job, PeriodicConfig

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

SECOND = 1_000_000_000


@lru_cache(maxsize=1024)
def parsed(expression: str) -> Cron:
    """A parsed cron expression, cached; raises Invalid."""
    return parse(expression)


def next_launch(periodic: PeriodicConfig, after: UnixNano) -> UnixNano | None:
    """The first launch later than `after`, at a full second; None when there is none. Raises Invalid."""
    zone = time_zone(periodic.time_zone)
    start = datetime.fromtimestamp(after // SECOND, UTC).astimezone(zone)
    found = [parsed(spec).next_after(start) for spec in expressions(periodic)]
    times = [int(instant.timestamp()) for instant in found if instant is not None]
    return UnixNano(min(times) * SECOND) if times else None


def expressions(periodic: PeriodicConfig) -> tuple[str, ...]:
    """The cron expressions of a periodic block, in either spelling."""
    return periodic.specs or ((periodic.spec,) if periodic.spec else ())


def time_zone(name: str) -> ZoneInfo:
    """The time zone with this name; raises Invalid."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Invalid(f'unknown time zone "{name}"; write a name such as "Europe/Berlin"') from None


def is_scheduled(job: Job) -> bool:
    """Whether the servers launch children of the job by its schedule."""
    return job.periodic is not None and job.periodic.enabled and not job.stop and job.parameterized_job is None
