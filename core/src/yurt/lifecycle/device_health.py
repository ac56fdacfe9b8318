"""The state machine of one device's health, fed by its plugin's reports, self-tests and the servers' marks. Pure.

States: `healthy`; `suspect` (usable, but operators should know of it); `degraded` (no new placements; tasks on it
continue); `failed` (no new placements, and tasks on it are moved as their jobs say); `probation` (no new placements
until it has been without a problem for a time, no task uses it, and its self-test has passed).

A device leaves `degraded` and `failed` only for `probation`, and `probation` for use only by a passed self-test. A test
that cannot be made now changes nothing: the device stays on probation and is tested later. A fault is a change to
`failed` from another state, a failed self-test included, or a suspicion of the servers (several jobs in a row failed on
a device that reports no problem). `degraded` is not a fault, because the replacement of a driver degrades all devices.
A device that had a fault is *on trial* for a time, because faults recur: it returns as `suspect`, so that others are
placed first, and gets only groups that can restart or end soon (`DeviceTrial`). A device with too many faults within a
window is locked: it stays `failed` until an operator enables it, whatever its plugin reports, so that a device that
keeps failing and recovering gets no more jobs. Time comes only with the events; a clock that is set back makes waits
longer, never shorter.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

from yurt.sdk.device import Severity
from yurt.sdk.value import NANOSECONDS, UnixNano, Value, replace, seconds
from yurt.structs.node import PLACEABLE_STATES, DeviceChange, DeviceHealth, DeviceState, DeviceTrial

HISTORY_MAX: Final = 16
FAULTS_MAX: Final = 100
"""The largest number of faults in a device's record, whatever is configured."""
REASON_MAX: Final = 512
UNUSABLE: Final[tuple[DeviceState, ...]] = ("degraded", "failed")


class DeviceHealthSettings(Value):
    """The operator's `device_health` block; times in seconds. With `max_faults` 0 no device is ever locked.

    `trial_run_s`: the longest declared run that a device on trial gets; with 0 it gets only groups that can restart.
    """

    probation_s: float = 60.0
    suspect_s: float = 600.0
    self_test_s: float = 120.0
    max_faults: int = 3
    fault_window_s: float = 30 * 86400.0
    trial_s: float = 86400.0
    trial_run_s: float = 3600.0


class DeviceRecord(Value):
    """The health of a device with its history.

    `reported` is the plugin's last report. `good_since` is the time since which the plugin reports no fault, and
    `clean_since` the time since which it reports `healthy`; 0 while it does not. They differ for a `suspect` device,
    which may end its probation but not become `healthy`. `is_test_due`: test as soon as no task uses the device.
    `is_locked`: only an operator returns it to use.
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
    """The plugin reports the device's present severity."""

    severity: Severity
    reason: str = ""


class Suspected(Value):
    """The servers suspect the device; `mark` is the key of their mark (`DeviceMark.key`)."""

    mark: str
    reason: str


class Enabled(Value):
    """An operator has returned the device to use; `mark` is the key of the mark (`DeviceMark.key`)."""

    mark: str


class TimePassed(Value):
    """A look at the clock; `is_free` when no task uses the device."""

    is_free: bool


class Tested(Value):
    """The self-test has ended: `problem` is "" when it passed."""

    problem: str = ""
    detail: str = ""


class NotTested(Value):
    """The self-test could not be made."""

    reason: str = ""


DeviceEvent: TypeAlias = Reported | Suspected | Enabled | TimePassed | Tested | NotTested


def step(record: DeviceRecord, event: DeviceEvent, *, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    """The record after an event; the caller begins a self-test when `is_testing` becomes true."""
    return _with_trial(_stepped(record, event, now, settings), now, settings)


def _stepped(record: DeviceRecord, event: DeviceEvent, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
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
    """A record stored by an earlier agent: a self-test that ended with that agent is due again."""
    is_due = record.is_test_due or record.is_testing
    # Nobody watched the device in between, so the times without a problem restart.
    return replace(record, is_testing=False, is_test_due=is_due, good_since=UnixNano(0), clean_since=UnixNano(0))


def is_at_rest(record: DeviceRecord) -> bool:
    """Whether only a report or a mark can change the record, and time cannot."""
    return record.health.state == "healthy" or record.is_locked


def _reported(record: DeviceRecord, report: Reported, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    state, severity = record.health.state, report.severity
    was_good, is_good = record.reported not in UNUSABLE, severity not in UNUSABLE
    was_clean, is_clean = record.reported == "healthy", severity == "healthy"
    updated = replace(
        record,
        reported=severity,
        reported_reason=report.reason[:REASON_MAX],
        good_since=_since(record.good_since, was=was_good, is_now=is_good, now=now),
        clean_since=_since(record.clean_since, was=was_clean, is_now=is_clean, now=now),
    )
    if severity == "failed":
        return _fault(updated, "failed", report.reason, now, settings)
    if severity == "degraded":
        # A failed device improves only through probation, not to `degraded`.
        return updated if state == "failed" else _fault(updated, "degraded", report.reason, now, settings)
    if state in UNUSABLE and not was_good and not record.is_locked:
        return _on_probation(updated, "the fault has passed", now)
    if severity == "suspect" and state in PLACEABLE_STATES:
        return _changed(updated, "suspect", report.reason, now)
    return updated


def _since(since: UnixNano, *, was: bool, is_now: bool, now: UnixNano) -> UnixNano:
    """The time since which a condition holds; 0 when it does not."""
    if not is_now:
        return UnixNano(0)
    return (since if was else now) or now


def _fault(
    record: DeviceRecord, state: DeviceState, reason: str, now: UnixNano, settings: DeviceHealthSettings
) -> DeviceRecord:
    """The record in an unusable state; a failure that lasts counts as one fault."""
    untested = replace(record, is_testing=False, is_test_due=False)
    if record.is_locked:
        return untested
    if state == "degraded" or record.health.state == "failed":
        return _changed(untested, state, reason, now)
    return _failed(untested, reason, now, settings)


def _failed(record: DeviceRecord, reason: str, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    counted = _with_fault(record, now, settings)
    if counted.is_locked:
        times = len(counted.faults)
        reason = f"{reason[:REASON_MAX]}; {times} faults within {_days(settings)}: out until an operator enables it"
    return _changed(counted, "failed", reason, now)


def _with_fault(record: DeviceRecord, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    """The record with one more fault, locked when the faults within the window reach `max_faults`."""
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
    acknowledged = _acknowledged(record, suspicion.mark)
    if record.health.state not in PLACEABLE_STATES:
        return acknowledged
    if _with_fault(acknowledged, now, settings).is_locked:
        return _failed(acknowledged, suspicion.reason, now, settings)
    # Not every self-test runs a program on the device: even a passed one does not shorten the probation.
    suspect = _changed(_with_fault(acknowledged, now, settings), "suspect", suspicion.reason, now)
    return _on_probation(suspect, suspicion.reason, now)


def _enabled(record: DeviceRecord, mark: str, now: UnixNano) -> DeviceRecord:
    if mark == record.health.acknowledged_mark:
        return record
    enabled = replace(_acknowledged(record, mark), is_locked=False, faults=())
    state = record.health.state
    # An operator vouches for the device: it skips the time of the probation, but not the self-test.
    if state == "probation":
        return replace(enabled, is_test_due=not record.is_testing)
    if state not in UNUSABLE:
        return enabled
    if record.reported in UNUSABLE:
        fault = record.reported_reason or "a fault"
        return _changed(enabled, state, f"enabled by an operator; its plugin still reports: {fault}", now)
    return replace(_on_probation(enabled, "enabled by an operator", now), is_test_due=True)


def _time_passed(record: DeviceRecord, *, is_free: bool, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    state, good_s, clean_s = record.health.state, _age_s(record.good_since, now), _age_s(record.clean_since, now)
    if state == "suspect" and clean_s >= settings.suspect_s:
        return _without_signs(record, now, settings)
    if state in UNUSABLE and not record.is_locked and good_s >= settings.probation_s:
        # Its self-test failed, or the state is restored from an earlier agent; the plugin reports no fault.
        return _on_probation(record, "no fault is reported; it is tested again", now)
    if state != "probation" or record.is_testing or not is_free:
        return record
    is_due = record.is_test_due or good_s >= settings.probation_s
    return replace(record, is_testing=True, is_test_due=False) if is_due else record


def _without_signs(record: DeviceRecord, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    """A suspect device after a time without a sign of a fault: healthy, or suspect for nothing but its trial."""
    if not _is_on_trial(record, now, settings):
        return _changed(record, "healthy", "no sign of a fault any more", now)
    trial = _trial_reason(settings)
    return record if record.health.reason.startswith(trial) else _changed(record, "suspect", trial, now)


def _trial_reason(settings: DeviceHealthSettings) -> str:
    return f"back after a fault, on trial for {settings.trial_s / 3600:.3g} h after it"


def _age_s(since: UnixNano, now: UnixNano) -> float:
    """The seconds since a time; -1 when it is 0 (none)."""
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
    if _is_on_trial(ended, now, settings):
        return _changed(ended, "suspect", f"{_trial_reason(settings)}; {passed}", now)
    return _changed(ended, "healthy", passed, now)


def _is_on_trial(record: DeviceRecord, now: UnixNano, settings: DeviceHealthSettings) -> bool:
    """Whether the last fault is so recent that the device may have another; an operator who enables it clears it."""
    return bool(record.faults) and _age_s(record.faults[-1], now) < settings.trial_s


def _with_trial(record: DeviceRecord, now: UnixNano, settings: DeviceHealthSettings) -> DeviceRecord:
    """The record with the trial that servers must respect; None where nothing is placed on the device anyway."""
    trial = None
    if record.health.state in PLACEABLE_STATES and _is_on_trial(record, now, settings):
        trial = DeviceTrial(until=record.faults[-1] + seconds(settings.trial_s), run_max=seconds(settings.trial_run_s))
    return record if trial == record.health.trial else replace(record, health=replace(record.health, trial=trial))


def _not_tested(record: DeviceRecord, reason: str, now: UnixNano) -> DeviceRecord:
    """The record with a new probation, because the device could not be tested; this is not a fault."""
    if not record.is_testing:
        return record
    return _on_probation(replace(record, is_testing=False), f"it cannot be tested now: {reason}", now)


def _on_probation(record: DeviceRecord, reason: str, now: UnixNano) -> DeviceRecord:
    good_since = now if record.reported not in UNUSABLE else UnixNano(0)
    return _changed(replace(record, good_since=good_since), "probation", reason, now)


def _acknowledged(record: DeviceRecord, mark: str) -> DeviceRecord:
    return replace(record, health=replace(record.health, acknowledged_mark=mark))


def _changed(record: DeviceRecord, state: DeviceState, reason: str, now: UnixNano) -> DeviceRecord:
    """The record in a state for a reason; unchanged when both are the same already."""
    health, reason = record.health, reason[: 2 * REASON_MAX]
    shown = "" if state == "healthy" else reason
    if (health.state, health.reason) == (state, shown):
        return record
    assert not record.is_testing or state == "probation", (state, "a self-test ends before its device leaves probation")
    change = DeviceChange(at=now, state=state, reason=reason)
    since = health.since if health.state == state else now
    history = (*health.history, change)[-HISTORY_MAX:]
    return replace(record, health=replace(health, state=state, reason=shown, since=since, history=history))
