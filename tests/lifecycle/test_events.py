"""Task events that thousands of tasks have."""

from __future__ import annotations

from yurt.lifecycle import events
from yurt.sdk.driver import ExitResult
from yurt.sdk.value import UnixNano


def test_equal_ends_at_different_times_share_their_details() -> None:
    first, second = (
        events.at(events.terminated(ExitResult(exit_code=3, finished_at=UnixNano(time))), UnixNano(time))
        for time in (1, 2)
    )

    assert (first.time, second.time) == (1, 2)
    assert first.details is second.details
    assert first.details == {"exit_code": "3", "signal": "0"}


def test_different_ends_have_events_of_their_own() -> None:
    ends = [ExitResult(), ExitResult(exit_code=1), ExitResult(signal=9), ExitResult(error="lost"),
            ExitResult(oom_killed=True)]  # fmt: skip

    assert [events.terminated(end).display_message for end in ends] == [
        "Exit Code: 0",
        "Exit Code: 1",
        "Exit Code: 0, Signal: 9",
        'Exit Code: 0, Exit Message: "lost"',
        'Exit Code: 0, Exit Message: "OOM Killed"',
    ]


def test_steps_of_a_start_share_their_details() -> None:
    assert events.at(events.building_task_directory(), UnixNano(1)).details is events.building_task_directory().details
