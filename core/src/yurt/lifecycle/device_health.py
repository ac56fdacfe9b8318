"""The life cycle of one device: what its plugin reports, what tests say, and what comes of it. Pure.

States: `healthy`; `suspect` (may be used, and operators should know); `degraded` (nothing new is placed on it, its
holders go on); `failed` (its holders are moved as their jobs say, too); `probation` (nothing new is placed on it until
it has been without a problem for a time, nobody uses it, and its self-test has passed).

A device leaves `degraded` and `failed` by `probation` only, and that by a passed self-test only. A fault is a change to
`failed` from another state, a failed self-test included; `degraded` counts for nothing, because a driver that is
replaced degrades all devices. With too many faults within a window a device is locked: it stays `failed` until an
operator enables it, whatever its plugin reports, so that no job meets a card that comes and goes. Only the clock given
with an event counts; one that is set back makes waits longer, never shorter.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

from yurt.sdk.device import Severity
from yurt.sdk.value import NANOSECONDS, UnixNano, Value, replace
from yurt.structs.node import DeviceChange, DeviceHealth, DeviceState

HISTORY_MAX: Final = 16
FAULTS_MAX: Final = 100
"""The most faults that a device's record keeps, whatever is configured."""
REASON_MAX: Final = 512
UNUSABLE: Final[tuple[DeviceState, ...]] = ("degraded", "failed")


class DeviceHealthSettings(Value):
    """The operator's `device_health` block; times in seconds. `max_faults` 0 locks no device."""

    probation_s: float = 60.0
    suspect_s: float = 600.0
    self_test_s: float = 120.0
    max_faults: int = 3
    fault_window_s: float = 30 * 86400.0


class DeviceRecord(Value):
    """All that is known of a device.

    `reported` is the plugin's last word, and `good_since` the time since which it is `healthy` (0: it is not).
    `is_test_due`: a test is to be made as soon as nobody uses the device; `is_locked`: only an operator brings it back.
    """

    health: DeviceHealth = DeviceHealth()
    reported: Severity = "healthy"
    good_since: UnixNano = UnixNano(0)
    faults: tuple[UnixNano, ...] = ()
    is_testing: bool = False
    is_test_due: bool = False
    is_locked: bool = False


class Reported(Value):
    """The plugin reports what it sees now."""

    severity: Severity
    reason: str = ""


class Suspected(Value):
    """The servers suspect the device, by the mark of an index."""

    index: int
    reason: str


class Enabled(Value):
    """An operator has put the device back, by the mark of an index."""

    index: int


class TimePassed(Value):
    """Time has passed; `is_free` when no task uses the device."""

    is_free: bool


class Tested(Value):
    """The self-test has ended; `problem` is "" when it passed."""

    problem: str = ""
    detail: str = ""


DeviceEvent: TypeAlias = Reported | Suspected | Enabled | TimePassed | Tested


def step(record: DeviceRecord, event: DeviceEvent, *, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    """The record after an event; a self-test begins where `is_testing` becomes true."""
    match event:
        case Reported():
            return _reported(record, event, now, settings)
        case Suspected(index=index, reason=reason):
            return _suspected(record, index, reason, now)
        case Enabled(index=index):
            return _enabled(record, index, now)
        case TimePassed(is_free=is_free):
            return _time_passed(record, is_free=is_free, now=now, settings=settings)
        case Tested():
            return _tested(record, event, now, settings)
        case _:
            assert_never(event)


def restored(record: DeviceRecord) -> DeviceRecord:
    """A record that an earlier agent stored: its self-test has ended with it, and is made again."""
    is_due = record.is_test_due or record.is_testing
    # What happened while no agent looked is not known: times without a problem begin anew.
    return replace(record, is_testing=False, is_test_due=is_due, good_since=UnixNano(0))


def is_at_rest(record: DeviceRecord) -> bool:
    """Whether nothing but a report or a mark changes the device."""
    return record.health.state == "healthy" or record.is_locked


def _reported(record: DeviceRecord, told: Reported, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    state = record.health.state
    good_since = UnixNano(0)
    if told.severity == "healthy":
        good_since = (record.good_since if record.reported == "healthy" else now) or now
    known = replace(record, reported=told.severity, good_since=good_since)
    match told.severity:
        case "failed":
            return _fault(known, "failed", told.reason, now, settings)
        case "degraded":
            # What has failed is not better before it has passed its probation.
            return known if state == "failed" else _fault(known, "degraded", told.reason, now, settings)
        case "suspect":
            return _changed(known, "suspect", told.reason, now) if state in ("healthy", "suspect") else known
        case "healthy":
            is_back = state in UNUSABLE and record.reported != "healthy" and not record.is_locked
            return _on_probation(known, "the fault has passed", now) if is_back else known
        case _:
            assert_never(told.severity)


def _fault(
    record: DeviceRecord, state: DeviceState, reason: str, now: UnixNano, settings: DeviceHealthSettings
) -> DeviceRecord:
    """The record with a problem; a failure that lasts counts once."""
    known = replace(record, is_testing=False, is_test_due=False)
    if record.is_locked:
        return known
    if state == "degraded" or record.health.state == "failed":
        return _changed(known, state, reason, now)
    return _failed(known, reason, now, settings)


def _failed(record: DeviceRecord, reason: str, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    since = now - settings.fault_window_s * NANOSECONDS
    faults = (*(at for at in record.faults if at > since), now)[-FAULTS_MAX:]
    is_locked = 0 < settings.max_faults <= len(faults)
    if is_locked:
        reason = (
            f"{reason[:REASON_MAX]}; {len(faults)} faults within {_days(settings)}: out until an operator enables it"
        )
    return _changed(replace(record, faults=faults, is_locked=is_locked), "failed", reason, now)


def _days(settings: DeviceHealthSettings) -> str:
    hours = settings.fault_window_s / 3600
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:.3g} h"


def _suspected(record: DeviceRecord, index: int, reason: str, now: UnixNano) -> DeviceRecord:
    if index <= record.health.acknowledged:
        return record
    known = _acknowledged(record, index)
    if record.health.state not in ("healthy", "suspect"):
        return known
    suspect = _changed(known, "suspect", reason, now)
    return replace(_on_probation(suspect, reason, now), is_test_due=True)


def _enabled(record: DeviceRecord, index: int, now: UnixNano) -> DeviceRecord:
    if index <= record.health.acknowledged:
        return record
    known = replace(_acknowledged(record, index), is_locked=False, faults=())
    if record.health.state not in UNUSABLE or record.reported in UNUSABLE:
        return known
    # An operator who vouches for a device need not wait for the probation, only for the test.
    return replace(_on_probation(known, "enabled by an operator", now), is_test_due=True)


def _time_passed(record: DeviceRecord, *, is_free: bool, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    state, good_s = record.health.state, (now - record.good_since) / NANOSECONDS if record.good_since else -1.0
    if state == "suspect" and good_s >= settings.suspect_s:
        return _changed(record, "healthy", "no sign of a fault any more", now)
    if state in UNUSABLE and not record.is_locked and good_s >= settings.probation_s:
        # It failed its self-test, or was in a state of an earlier agent; its plugin sees no fault.
        return _on_probation(record, "no fault is reported; it is tested again", now)
    if state != "probation" or record.is_testing or not is_free:
        return record
    is_due = record.is_test_due or good_s >= settings.probation_s
    return replace(record, is_testing=True, is_test_due=False) if is_due else record


def _tested(record: DeviceRecord, result: Tested, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    if not record.is_testing:
        return record
    assert record.health.state == "probation", "only a device on probation is tested"
    ended = replace(record, is_testing=False)
    if not result.problem:
        return _changed(ended, "healthy", f"self-test passed: {result.detail or 'no problem found'}", now)
    waiting = replace(ended, good_since=now if record.reported == "healthy" else UnixNano(0))
    return _failed(waiting, f"self-test failed: {result.problem}", now, settings)


def _on_probation(record: DeviceRecord, reason: str, now: UnixNano) -> DeviceRecord:
    good_since = now if record.reported == "healthy" else UnixNano(0)
    return _changed(replace(record, good_since=good_since), "probation", reason, now)


def _acknowledged(record: DeviceRecord, index: int) -> DeviceRecord:
    return replace(record, health=replace(record.health, acknowledged=index))


def _changed(record: DeviceRecord, state: DeviceState, reason: str, now: UnixNano) -> DeviceRecord:
    """The record in a state for a reason; the same again is no change."""
    health, reason = record.health, reason[: 2 * REASON_MAX]
    shown = "" if state == "healthy" else reason
    if (health.state, health.reason) == (state, shown):
        return record
    change = DeviceChange(at=now, state=state, reason=reason)
    since = health.since if health.state == state else now
    history = (*health.history, change)[-HISTORY_MAX:]
    return replace(record, health=replace(health, state=state, reason=shown, since=since, history=history))
