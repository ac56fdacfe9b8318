"""Decides whether a GPU may be assigned to tasks: pure.

Two kinds of evidence. A *condition* holds as long as the driver reports it: a card that does not answer, memory errors
that were not corrected, rows that wait for a reset to be remapped. An *event* (an Xid error) happened once: it counts
until the card has been quiet for a while and its conditions are good, because nothing tells that it has passed. Errors
that programs cause by themselves count for nothing, and a few repeat what a condition says better.
"""

from __future__ import annotations

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


def reason_against(condition: Condition, xid: SeenXid | None, *, now: UnixNano, rules: HealthRules) -> str:
    """Why a card must not be assigned to tasks; empty when it may."""
    if condition.lost:
        return f"it does not answer: {condition.lost}"
    if condition.remap_failed:
        return "memory rows could not be remapped; the card has to be replaced"
    if condition.remap_pending:
        return "memory rows wait to be remapped; reset the card when it is idle (nvidia-smi --gpu-reset)"
    if condition.uncorrected_errors:
        count = condition.uncorrected_errors
        what = "a memory error was not corrected" if count == 1 else f"{count} memory errors were not corrected"
        return f"{what} since its last reset; reset the card when it is idle"
    if xid is not None and not is_over(xid, now=now, rules=rules):
        text = XID_TEXTS.get(xid.number)
        return f"Xid {xid.number}" + (f": {text}" if text else "")
    return ""


def is_over(xid: SeenXid, *, now: UnixNano, rules: HealthRules) -> bool:
    """Whether the card has been without errors for long enough since."""
    return bool(rules.quiet_s) and now - xid.at >= rules.quiet_s * NANOSECONDS
