"""Counts allocations that are placed again after a preemption, and what that cost."""

from __future__ import annotations

from typing import Final

from yurt.runtime.metrics import Metrics
from yurt.sdk.value import NANOSECONDS
from yurt.state import Change, Snapshot
from yurt.state.usage import usage_of
from yurt.structs.alloc import Allocation
from yurt.structs.queueing.requeue import requeues_of

PREEMPTED: Final = (("reason", "preempted"),)


def count_requeue(metrics: Metrics, state: Snapshot, change: Change) -> None:
    """Count a new allocation if it goes on with the work of a preempted one."""
    placed: Allocation | None = change.after if change.before is None else None
    tracker = None if placed is None else placed.reschedule_tracker
    if placed is None or tracker is None or not tracker.requeues:
        return
    previous = state.allocs.get(placed.previous_allocation)
    if previous is None or requeues_of(previous) >= tracker.requeues:
        return
    known = previous.reschedule_tracker
    lost_s = (tracker.lost - (known.lost if known is not None else 0)) / NANOSECONDS
    metrics.count("queue.requeued", labels=PREEMPTED)
    metrics.count("queue.lost_seconds", round(lost_s), labels=PREEMPTED)
    metrics.count("queue.lost_device_seconds", round(lost_s * len(usage_of(previous).devices)), labels=PREEMPTED)
