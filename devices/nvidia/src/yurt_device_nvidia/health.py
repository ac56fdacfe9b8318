"""Decides whether a GPU may be assigned to tasks: pure.

Two kinds of evidence. A *condition* holds as long as the driver reports it: a card that does not answer, memory errors
that were not corrected, rows that wait for a reset to be remapped. An *event* (an Xid error) happened once: it counts
until the card has been quiet for a while and its conditions are good, because nothing tells that it has passed. Errors
that programs cause by themselves count for nothing, and a few repeat what a condition says better.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from yurt.sdk.device import Severity
from yurt.sdk.value import NANOSECONDS, UnixNano, Value

from yurt_device_nvidia.facts import Condition

OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 69, 109})
"""Xid errors that a program's own fault brings about: a bad address, an assertion, a cancelled context."""
TOLD_BY_CONDITIONS = frozenset({63, 92})
"""Rows to be remapped, and corrected errors."""
XID_TEXTS = {
    48: "a double-bit memory error", 61: "its micro-controller stopped", 62: "its micro-controller halted",
    64: "a failed remapping of memory rows", 74: "an NVLink error", 79: "it has fallen off the bus",
    94: "a contained memory error", 95: "an uncontained memory error", 119: "its GSP does not answer",
    120: "an error of its GSP", 121: "an error of the link to the CPU", 140: "an uncorrected memory error",
    143: "a failure to start", 145: "an NVLink error", 149: "an NVLink error",
}  # fmt: skip


class SeenXid(Value):
    """An error of a card or of one of its GPU instances; `at` is its time."""

    number: int
    at: UnixNano
    gpu_instance: int | None = None


class HealthRules(Value):
    """The operator's rules: seconds without errors before a card is healthy again (0: never), and ignored errors."""

    quiet_s: float = 300.0
    ignored: frozenset[int] = frozenset()

    def counts(self, number: int) -> bool:
        """Whether an error indicates a problem of the card."""
        return number not in OF_PROGRAMS | TOLD_BY_CONDITIONS | self.ignored


RECOVERY_ACTIONS: Final = {
    1: "reset of the card", 2: "restart of the machine", 3: "end of its peer traffic", 4: "drain and reset",
    5: "recovery of the IMEX domain", 6: "reset of its bus", 7: "restart of the system",
}  # fmt: skip
"""What the driver wants done (NVML_GPU_RECOVERY_ACTION); its holders may still run with 3 and 4, which drain."""
DRAINING: Final = (3, 4)
BEARABLE_XIDS: Final = frozenset({74, 94, 121, 145, 149})
"""Errors of a link and contained ones: other programs on the card go on."""
SEVERITIES: Final[tuple[Severity, ...]] = ("healthy", "suspect", "degraded", "failed")
WINDOW: Final = 600 * NANOSECONDS
THROTTLED_SHARE: Final = 0.1
ERRORS_MAX: Final = 10
"""Corrected errors, or errors of links, within the window that are no sign of a fault yet."""
SAMPLES_MIN: Final = 12


class Verdict(Value):
    """How bad a device's fault is, and why."""

    severity: Severity
    reason: str


class ConditionSample(Value):
    """A card's condition at a time."""

    at: UnixNano
    condition: Condition


def sampled(
    samples: tuple[ConditionSample, ...], condition: Condition, *, now: UnixNano
) -> tuple[ConditionSample, ...]:
    """The samples of the window with one more; a card that does not answer has none."""
    if condition.lost:
        return ()
    kept = tuple(each for each in samples if now - WINDOW <= each.at <= now)
    return (*kept, ConditionSample(at=now, condition=condition))


def signs_of_fault(samples: tuple[ConditionSample, ...]) -> str:
    """Why a card that works is suspect by what it did within the window; "" when it is not."""
    if len(samples) < 2:
        return ""
    first, last = samples[0].condition, samples[-1].condition
    share = sum(each.condition.is_throttled for each in samples) / len(samples)
    if len(samples) >= SAMPLES_MIN and share > THROTTLED_SHARE:
        return "its hardware slowed the clocks for heat or power more than 10 % of the last 10 minutes"
    if _increase(first.corrected_errors, last.corrected_errors) > ERRORS_MAX:
        return f"more than {ERRORS_MAX} memory errors were corrected within 10 minutes"
    if _increase(first.link_errors, last.link_errors) > ERRORS_MAX:
        return f"more than {ERRORS_MAX} NVLink errors within 10 minutes"
    return ""


def verdict_against(condition: Condition, xid: SeenXid | None, *, now: UnixNano, rules: HealthRules) -> Verdict | None:
    """The worst of what speaks against assigning a card to tasks; None when nothing does."""
    found = [*_of_condition(condition)]
    if xid is not None and not is_over(xid, now=now, rules=rules):
        text = XID_TEXTS.get(xid.number)
        severity: Severity = "degraded" if xid.number in BEARABLE_XIDS else "failed"
        found.append(Verdict(severity=severity, reason=f"Xid {xid.number}" + (f": {text}" if text else "")))
    return max(found, key=lambda each: SEVERITIES.index(each.severity), default=None)


def _of_condition(condition: Condition) -> Iterator[Verdict]:
    """The faults of a condition; of equally bad ones the first tells most."""
    if condition.lost:
        yield Verdict(severity="failed", reason=f"it does not answer: {condition.lost}")
    if condition.remap_failed:
        reason = "memory rows could not be remapped; the card has to be replaced"
        yield Verdict(severity="failed", reason=reason)
    if condition.recovery_action:
        action = RECOVERY_ACTIONS.get(condition.recovery_action, f"recovery action {condition.recovery_action}")
        severity: Severity = "degraded" if condition.recovery_action in DRAINING else "failed"
        yield Verdict(severity=severity, reason=f"its driver asks for this: {action}")
    if condition.remap_pending:
        reason = "memory rows wait to be remapped; reset the card when it is idle (nvidia-smi --gpu-reset)"
        yield Verdict(severity="degraded", reason=reason)
    if condition.links_down:
        numbers = ", ".join(map(str, condition.links_down))
        what = f"NVLink {numbers} is down" if len(condition.links_down) == 1 else f"NVLinks {numbers} are down"
        yield Verdict(severity="degraded", reason=f"{what}; reset the cards of the machine when they are idle")
    if condition.uncorrected_errors:
        count = condition.uncorrected_errors
        what = "a memory error was not corrected" if count == 1 else f"{count} memory errors were not corrected"
        yield Verdict(severity="degraded", reason=f"{what} since its last reset; reset the card when it is idle")


def _increase(before: int | None, after: int | None) -> int:
    """By how much a counter has grown; 0 where it is unknown."""
    return 0 if before is None or after is None else after - before


def is_over(xid: SeenXid, *, now: UnixNano, rules: HealthRules) -> bool:
    """Whether the card has been without errors for long enough since."""
    return bool(rules.quiet_s) and now - xid.at >= rules.quiet_s * NANOSECONDS
