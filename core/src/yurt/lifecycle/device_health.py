"""The life cycle of one device: what its plugin reports, what tests say, and what comes of it. Pure.

States: `healthy`; `suspect` (may be used, and operators should know); `degraded` (nothing new is placed on it, its
holders go on); `failed` (its holders are moved as their jobs say, too); `probation` (nothing new is placed on it until
it has been without a problem for a time, nobody uses it, and its self-test has passed).

A device leaves `degraded` and `failed` by `probation` only, and that by a passed self-test only. A test that cannot be
made now says nothing: the device stays on probation, and is tested later. A fault is a change to `failed` from another
state, a failed self-test included, or a suspicion of the servers (jobs in a row fail on a broken device that reports
nothing); `degraded` counts for nothing, because a driver that is replaced degrades all devices. With too many faults
within a window a device is locked: it stays `failed` until an operator enables it, whatever its plugin reports, so that
no job meets a card that comes and goes. Only the clock given with an event counts; one that is set back makes waits
longer, never shorter.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

from yurt.sdk.device import Severity
from yurt.sdk.value import NANOSECONDS, UnixNano, Value, replace
from yurt.structs.node import PLACEABLE_STATES, DeviceChange, DeviceHealth, DeviceState

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

    `reported` is the plugin's last word. `good_since` is the time since which it reports no fault (0: it reports one),
    `clean_since` that since which it is `healthy`: a device with a lasting sign of a fault may return from an old one.
    `is_test_due`: a test is to be made as soon as nobody uses the device; `is_locked`: only an operator brings it back.
    """

    health: DeviceHealth = DeviceHealth()
    reported: Severity = "healthy"
    reported_reason: str = ""
    good_since: UnixNano = UnixNano(0)
    clean_since: UnixNano = UnixNano(0)
    faults: tuple[UnixNano, ...] = ()
    is_testing: bool = False
    is_test_due: bool = False
    is_locked: bool = False


class Reported(Value):
    """The plugin reports what it sees now."""

    severity: Severity
    reason: str = ""


class Suspected(Value):
    """The servers suspect the device, by a mark (`DeviceMark.key`)."""

    mark: str
    reason: str


class Enabled(Value):
    """An operator has put the device back, by a mark (`DeviceMark.key`)."""

    mark: str


class TimePassed(Value):
    """Time has passed; `is_free` when no task uses the device."""

    is_free: bool


class Tested(Value):
    """The self-test has ended; `problem` is "" when it passed."""

    problem: str = ""
    detail: str = ""


class NotTested(Value):
    """The self-test could not be made."""

    reason: str = ""


DeviceEvent: TypeAlias = Reported | Suspected | Enabled | TimePassed | Tested | NotTested


def step(record: DeviceRecord, event: DeviceEvent, *, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    """The record after an event; a self-test begins where `is_testing` becomes true."""
    match event:
        case Reported():
            return _reported(record, event, now, settings)
        case Suspected():
            return _suspected(record, event, now, settings)
        case Enabled(mark=mark):
            return _enabled(record, mark, now)
        case TimePassed(is_free=is_free):
            return _time_passed(record, is_free=is_free, now=now, settings=settings)
        case Tested():
            return _tested(record, event, now, settings)
        case NotTested(reason=reason):
            return _not_tested(record, reason, now)
        case _:
            assert_never(event)


def restored(record: DeviceRecord) -> DeviceRecord:
    """A record that an earlier agent stored: its self-test has ended with it, and is made again."""
    is_due = record.is_test_due or record.is_testing
    # What happened while no agent looked is not known: times without a problem begin anew.
    return replace(record, is_testing=False, is_test_due=is_due, good_since=UnixNano(0), clean_since=UnixNano(0))


def is_at_rest(record: DeviceRecord) -> bool:
    """Whether nothing but a report or a mark changes the device."""
    return record.health.state == "healthy" or record.is_locked


def _reported(record: DeviceRecord, told: Reported, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    state, severity = record.health.state, told.severity
    was_good, is_good = record.reported not in UNUSABLE, severity not in UNUSABLE
    was_clean, is_clean = record.reported == "healthy", severity == "healthy"
    known = replace(
        record,
        reported=severity,
        reported_reason=told.reason[:REASON_MAX],
        good_since=_since(record.good_since, was=was_good, is_now=is_good, now=now),
        clean_since=_since(record.clean_since, was=was_clean, is_now=is_clean, now=now),
    )
    if severity == "failed":
        return _fault(known, "failed", told.reason, now, settings)
    if severity == "degraded":
        # What has failed is not better before it has passed its probation.
        return known if state == "failed" else _fault(known, "degraded", told.reason, now, settings)
    if state in UNUSABLE and not was_good and not record.is_locked:
        return _on_probation(known, "the fault has passed", now)
    if severity == "suspect" and state in PLACEABLE_STATES:
        return _changed(known, "suspect", told.reason, now)
    return known


def _since(since: UnixNano, *, was: bool, is_now: bool, now: UnixNano) -> UnixNano:
    """The time since which a condition holds; 0 where it does not."""
    if not is_now:
        return UnixNano(0)
    return (since if was else now) or now


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
    counted = _with_fault(record, now, settings)
    if counted.is_locked:
        times = len(counted.faults)
        reason = f"{reason[:REASON_MAX]}; {times} faults within {_days(settings)}: out until an operator enables it"
    return _changed(counted, "failed", reason, now)


def _with_fault(record: DeviceRecord, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    """The record with one fault more, locked if that is one too many."""
    since = now - settings.fault_window_s * NANOSECONDS
    faults = (*(at for at in record.faults if at > since), now)[-FAULTS_MAX:]
    return replace(record, faults=faults, is_locked=0 < settings.max_faults <= len(faults))


def _days(settings: DeviceHealthSettings) -> str:
    hours = settings.fault_window_s / 3600
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:.3g} h"


def _suspected(
    record: DeviceRecord, suspicion: Suspected, now: UnixNano, settings: DeviceHealthSettings
) -> DeviceRecord:
    if suspicion.mark == record.health.acknowledged_mark:
        return record
    known = _acknowledged(record, suspicion.mark)
    if record.health.state not in PLACEABLE_STATES:
        return known
    if _with_fault(known, now, settings).is_locked:
        return _failed(known, suspicion.reason, now, settings)
    # A test may run no program on the device: whatever it says, the device is out for the time of the probation.
    suspect = _changed(_with_fault(known, now, settings), "suspect", suspicion.reason, now)
    return _on_probation(suspect, suspicion.reason, now)


def _enabled(record: DeviceRecord, mark: str, now: UnixNano) -> DeviceRecord:
    if mark == record.health.acknowledged_mark:
        return record
    known = replace(_acknowledged(record, mark), is_locked=False, faults=())
    state = record.health.state
    # An operator who vouches for a device need not wait for the probation, only for the test.
    if state == "probation":
        return replace(known, is_test_due=not record.is_testing)
    if state not in UNUSABLE:
        return known
    if record.reported in UNUSABLE:
        fault = record.reported_reason or "a fault"
        return _changed(known, state, f"enabled by an operator; its plugin still reports: {fault}", now)
    return replace(_on_probation(known, "enabled by an operator", now), is_test_due=True)


def _time_passed(record: DeviceRecord, *, is_free: bool, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    state, good_s, clean_s = record.health.state, _age_s(record.good_since, now), _age_s(record.clean_since, now)
    if state == "suspect" and clean_s >= settings.suspect_s:
        return _changed(record, "healthy", "no sign of a fault any more", now)
    if state in UNUSABLE and not record.is_locked and good_s >= settings.probation_s:
        # It failed its self-test, or was in a state of an earlier agent; its plugin sees no fault.
        return _on_probation(record, "no fault is reported; it is tested again", now)
    if state != "probation" or record.is_testing or not is_free:
        return record
    is_due = record.is_test_due or good_s >= settings.probation_s
    return replace(record, is_testing=True, is_test_due=False) if is_due else record


def _age_s(since: UnixNano, now: UnixNano) -> float:
    """The seconds since a time; below 0 for none."""
    return (now - since) / NANOSECONDS if since else -1.0


def _tested(record: DeviceRecord, result: Tested, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    if not record.is_testing:
        return record
    assert record.health.state == "probation", "only a device on probation is tested"
    assert record.reported not in UNUSABLE, "a reported fault ends the test"
    ended = replace(record, is_testing=False)
    if result.problem:
        return _failed(replace(ended, good_since=now), f"self-test failed: {result.problem}", now, settings)
    passed = f"self-test passed: {result.detail or 'no problem found'}"
    if record.reported == "suspect":
        return _changed(ended, "suspect", f"{record.reported_reason or 'no reason given'}; {passed}", now)
    return _changed(ended, "healthy", passed, now)


def _not_tested(record: DeviceRecord, reason: str, now: UnixNano) -> DeviceRecord:
    """The device waits for another probation, and no fault is counted."""
    if not record.is_testing:
        return record
    return _on_probation(replace(record, is_testing=False), f"it cannot be tested now: {reason}", now)


def _on_probation(record: DeviceRecord, reason: str, now: UnixNano) -> DeviceRecord:
    good_since = now if record.reported not in UNUSABLE else UnixNano(0)
    return _changed(replace(record, good_since=good_since), "probation", reason, now)


def _acknowledged(record: DeviceRecord, mark: str) -> DeviceRecord:
    return replace(record, health=replace(record.health, acknowledged_mark=mark))


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
