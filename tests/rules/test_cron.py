"""Cron times as Nomad computes them."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from yurt.rules.cron import parse
from yurt.rules.periodic import next_launch
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano
from yurt.structs.job import PeriodicConfig

NEW_YORK = ZoneInfo("America/New_York")
START = datetime(2026, 3, 3, 10, 17, 20, tzinfo=UTC)  # a Tuesday


def after(expression: str, start: datetime = START) -> str:
    found = parse(expression).next_after(start)
    return "never" if found is None else found.strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", "2026-03-03 10:18:00"),
        ("*/15 * * * *", "2026-03-03 10:30:00"),
        ("5/20 * * * *", "2026-03-03 10:25:00"),
        ("0 0 1 1 * 2030", "2030-01-01 00:00:00"),
        ("*/10 * * * * * *", "2026-03-03 10:17:30"),
        ("@hourly", "2026-03-03 11:00:00"),
        ("@daily", "2026-03-04 00:00:00"),
        ("@weekly", "2026-03-08 00:00:00"),
        ("@monthly", "2026-04-01 00:00:00"),
        ("@yearly", "2027-01-01 00:00:00"),
        ("0 9 * * MON-FRI", "2026-03-04 09:00:00"),
        ("0 9 * * friday", "2026-03-06 09:00:00"),
        ("0 9 * JUN *", "2026-06-01 09:00:00"),
        ("0 0 L * *", "2026-03-31 00:00:00"),
        ("0 0 LW * *", "2026-03-31 00:00:00"),
        ("0 0 LW 5 ?", "2026-05-29 00:00:00"),
        ("0 0 15W 3 ?", "2026-03-16 00:00:00"),
        ("0 0 1W 8 ?", "2026-08-03 00:00:00"),
        ("0 0 * * 5L", "2026-03-27 00:00:00"),
        ("0 0 ? * FRIL", "2026-03-27 00:00:00"),
        ("0 0 * * 5#3", "2026-03-20 00:00:00"),
        ("0 0 * * 7", "2026-03-08 00:00:00"),
        ("0 0 13 * 5", "2026-03-06 00:00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00:00"),
        ("0 22-2 * * *", "never"),
        ("0 0 31 2 *", "never"),
        ("0 0 1 1 * 2020", "never"),
    ],
)
def test_the_next_time_is_that_of_nomad(expression: str, expected: str) -> None:
    assert after(expression) == expected


def test_a_time_in_the_spring_gap_does_not_run() -> None:
    start = datetime(2026, 3, 8, 0, 0, tzinfo=NEW_YORK)
    assert after("30 2 * * *", start) == "2026-03-09 02:30:00"


def test_a_time_in_the_autumn_overlap_runs_twice() -> None:
    start = datetime(2026, 11, 1, 0, 0, tzinfo=NEW_YORK)
    cron = parse("30 1 * * *")
    first = cron.next_after(start)
    assert first is not None
    second = cron.next_after(first)
    assert second is not None
    assert second.timestamp() - first.timestamp() == 3600
    third = cron.next_after(second)
    assert third is not None
    assert third.strftime("%Y-%m-%d %H:%M") == "2026-11-02 01:30"


def test_minutes_go_on_through_the_overlap_in_order() -> None:
    moment = datetime(2026, 11, 1, 0, 50, tzinfo=NEW_YORK)
    cron = parse("*/30 * * * *")
    stamps = []
    for _ in range(6):
        found = cron.next_after(moment)
        assert found is not None
        stamps.append(found.timestamp())
        moment = found
    assert [later - earlier for earlier, later in itertools.pairwise(stamps)] == [1800.0] * 5


@pytest.mark.parametrize(
    "expression", ["* * * *", "60 * * * *", "* * * FOO *", "*/0 * * * *", "* * 32 * *", "1 2 3 4 5 6 7 8"]
)
def test_a_wrong_expression_is_refused_with_its_field(expression: str) -> None:
    with pytest.raises(Invalid, match="cron"):
        parse(expression)


def test_of_several_expressions_the_earliest_wins() -> None:
    periodic = PeriodicConfig(specs=("0 12 * * *", "30 10 * * *"), time_zone="UTC")
    launch = next_launch(periodic, UnixNano(int(START.timestamp()) * 1_000_000_000))
    assert launch is not None
    assert datetime.fromtimestamp(launch / 1e9, UTC).hour == 10


def test_the_time_zone_counts() -> None:
    periodic = PeriodicConfig(spec="0 9 * * *", time_zone="Europe/Berlin")
    launch = next_launch(periodic, UnixNano(int(START.timestamp()) * 1_000_000_000))
    assert launch is not None
    assert datetime.fromtimestamp(launch / 1e9, UTC).hour == 8


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(Invalid, match="time zone"):
        next_launch(PeriodicConfig(spec="@daily", time_zone="Mars/Olympus"), UnixNano(0))
