"""The hours in which a task with a schedule runs."""

from __future__ import annotations

import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.rules.task_schedule import ScheduleWindow, schedule_problems, window_at
from yurt.sdk.value import UnixNano
from yurt.structs.task import TaskSchedule, TaskScheduleCron

DAY_S = 86_400.0


def schedule(start: str = "30 9 * * MON-FRI *", end: str = "0 16", timezone: str = "America/New_York") -> TaskSchedule:
    return TaskSchedule(cron=TaskScheduleCron(start=start, end=end, timezone=timezone))


def at(text: str, zone: str = "America/New_York") -> UnixNano:
    return UnixNano(int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1_000_000_000)


@pytest.mark.parametrize(
    ("when", "is_open", "again_s"),
    [
        ("2026-11-27 09:29:00", False, 60),
        ("2026-11-27 09:30:00", True, 6.5 * 3600),
        ("2026-11-27 15:59:59", True, 1),
        ("2026-11-27 16:00:00", False, DAY_S),
        ("2026-11-28 12:00:00", False, 4 * 3600),
        ("2026-03-09 09:30:00", True, 6.5 * 3600),
    ],
)
def test_the_hours_are_those_of_the_wall_clock_on_the_days_of_the_start(
    when: str, is_open: bool, again_s: float
) -> None:
    assert window_at(schedule(), at(when), longest_s=DAY_S) == ScheduleWindow(is_open, again_s)


def test_a_start_with_a_year_counts_in_that_year_alone() -> None:
    once = schedule("0 9 1 JAN * 2027")
    assert window_at(once, at("2027-01-01 12:00"), longest_s=DAY_S).is_open
    assert not window_at(once, at("2028-01-01 12:00"), longest_s=DAY_S).is_open


def test_a_time_that_the_clocks_skip_is_the_time_after_the_change() -> None:
    early = schedule("30 2 * * *", "0 4", "Europe/Berlin")
    assert not window_at(early, at("2026-03-29 01:59", "Europe/Berlin"), longest_s=DAY_S).is_open
    assert window_at(early, at("2026-03-29 03:30", "Europe/Berlin"), longest_s=DAY_S).is_open


def test_without_a_time_zone_the_nodes_own_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        for name in ("", "Local"):
            assert window_at(schedule(timezone=name), at("2026-11-27 09:30", "Asia/Tokyo"), longest_s=60).is_open
            assert not window_at(schedule(timezone=name), at("2026-11-27 16:00", "Asia/Tokyo"), longest_s=60).is_open
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.integers(0, 400 * 86_400))
def test_the_next_change_is_never_later_than_announced(offset_s: int) -> None:
    now = at("2026-01-01 00:00") + offset_s * 1_000_000_000
    window = window_at(schedule(), UnixNano(now), longest_s=60)
    just_before = UnixNano(now + int(window.again_s * 1e9) - 1_000_000_000)
    assert 0 < window.again_s <= 60
    assert just_before < now or window_at(schedule(), just_before, longest_s=60).is_open == window.is_open


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (TaskSchedule(), "needs a cron block"),
        (schedule(start=""), "start is missing"),
        (schedule(start="0 9,10 * * *"), 'start "0 9,10 * * *" is not a daily time'),
        (schedule(start="*/5 9 * * *"), "is not a daily time"),
        (schedule(start="* 9 * * *"), "is not a daily time"),
        (schedule(start="0 9"), "is not a daily time"),
        (schedule(start="0 9 * * NEVER"), "never"),
        (schedule(start="0 25 * * *"), "not within 0 to 23"),
        (schedule(end=""), "end is missing"),
        (schedule(end="0 16 * * *"), "is not a minute and an hour"),
        (schedule(end="0 25"), "an hour 0 to 23"),
        (schedule(end="61 16"), "a minute is 0 to 59"),
        (schedule(end="0 8"), "cannot run overnight"),
        (schedule(timezone="Mars"), 'unknown time zone "Mars"'),
    ],
)
def test_a_wrong_schedule_is_refused_with_what_to_write(wrong: TaskSchedule, text: str) -> None:
    (problem,) = schedule_problems(wrong)
    assert text in problem


def test_a_good_schedule_and_none_have_no_problems() -> None:
    assert [*schedule_problems(schedule()), *schedule_problems(schedule("0 9 * * *")), *schedule_problems(None)] == []
