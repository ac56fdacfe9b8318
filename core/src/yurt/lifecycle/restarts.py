"""The restart tracker: whether and when an ended task restarts in place.

A window opens at the first counted restart and lasts `policy.interval`; when a task ends after the window, the count
restarts at 0. A window allows `policy.attempts` restarts. Beyond them, mode `fail` gives up and mode `delay` waits for
the end of the window. A task that should never end (`on_success`) restarts after success too, by the same rules.
Restarts that a user requests are not counted. (Rules: Nomad's `restart` block.)
"""

from __future__ import annotations

import msgspec

from yurt.lifecycle.events import REASON_WITHIN_POLICY
from yurt.sdk.value import Duration, UnixNano, Value, duration_text
from yurt.structs.policies import RestartPolicy

JITTER_SHARE = 0.25
MODE_DELAY = "delay"
MODE_FAIL = "fail"

REASON_NO_RESTARTS = "Policy allows no restarts"
REASON_UNRECOVERABLE = "Error was unrecoverable"
REASON_DELAY = "Exceeded allowed attempts, applying a delay"


class RestartWindow(Value):
    """Restarts counted since `start`; a start of 0 means that no interval is open."""

    start: UnixNano = UnixNano(0)
    count: int = 0


class RestartOutcome(Value):
    """The result of a run: success, failure, or a permanent failure that no restart can fix."""

    is_success: bool = False
    is_recoverable: bool = True


class Restart(msgspec.Struct, frozen=True):
    """Start the task again after `delay`."""

    window: RestartWindow
    delay: Duration
    reason: str


class NoRestart(msgspec.Struct, frozen=True):
    """The task stays dead; `is_failed` says whether it counts as failed."""

    window: RestartWindow
    is_failed: bool
    reason: str


def decide(
    window: RestartWindow,
    policy: RestartPolicy,
    *,
    outcome: RestartOutcome,
    on_success: bool,
    now: UnixNano,
    chance: float,
) -> Restart | NoRestart:
    """The decision after a task's end; `chance` in [0, 1) adds up to a quarter to the delay."""
    assert 0.0 <= chance < 1.0, chance
    if outcome.is_success and not on_success:
        return NoRestart(window, False, "")
    if not outcome.is_recoverable:
        return NoRestart(window, True, REASON_UNRECOVERABLE)
    if policy.attempts <= 0:
        return NoRestart(window, True, REASON_NO_RESTARTS)
    end = window.start + policy.interval
    # The clock may have been set back to before the window: then it says nothing about how long ago the starts were.
    if window.start == 0 or not window.start <= now <= end:
        window, end = RestartWindow(start=now), now + policy.interval
    window = RestartWindow(start=window.start, count=window.count + 1)
    assert window.start <= now and window.count >= 1, (window, now, "a restart is counted in a window that is open")
    if window.count <= policy.attempts:
        delay = policy.delay + int(policy.delay * JITTER_SHARE * chance)
        return Restart(window, Duration(delay), REASON_WITHIN_POLICY)
    if policy.mode == MODE_DELAY:
        return Restart(window, Duration(max(0, end - now)), REASON_DELAY)
    reason = (
        f'Exceeded allowed attempts {policy.attempts} in interval {duration_text(policy.interval)} and mode is "fail"'
    )
    return NoRestart(window, True, reason)
