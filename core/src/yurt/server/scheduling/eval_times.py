"""How long evaluations wait for a worker and are worked on, within one term (`broker.wait_time` and its like), and how
much run time is lost by preemption.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from yurt.broker import Delivery
from yurt.runtime.env import Env
from yurt.runtime.metrics import Labels, Metrics
from yurt.sdk.value import NANOSECONDS
from yurt.state import Change, Snapshot
from yurt.state.usage import usage_of
from yurt.structs.alloc import Allocation
from yurt.structs.queueing.requeue import requeues_of

DELIVERIES_MAX: Final = 10_000
"""The number of recorded deliveries; the oldest, of a lost worker, is dropped first."""


class EvalTimes:
    """Times of the evaluations that this server's broker has delivered."""

    def __init__(self, metrics: Metrics, env: Env) -> None:
        self._metrics = metrics
        self._now: Callable[[], int] = env.now
        self._deliveries: dict[str, tuple[int, float, Labels]] = {}
        """By token: when it was delivered (unix ns), how many seconds it had waited, and its labels."""

    def note_delivery(self, delivery: Delivery) -> None:
        """Record that a worker received an evaluation, which was available since it was stored or its time came."""
        if len(self._deliveries) >= DELIVERIES_MAX:
            del self._deliveries[next(iter(self._deliveries))]
        now, evaluation = self._now(), delivery.evaluation
        since = max(evaluation.modify_time, evaluation.wait_until, (evaluation.create_time or 0) + evaluation.wait)
        waited_s = max(0, now - since) / NANOSECONDS
        labels = _labels(delivery)
        self._deliveries[delivery.token] = (now, waited_s, labels)
        self._metrics.time("broker.wait_time", waited_s, labels=labels)

    def done(self, delivery: Delivery) -> None:
        """Record that the evaluation's end is stored."""
        entry = self._deliveries.pop(delivery.token, None)
        if entry is None:
            return
        began, waited_s, labels = entry
        worked_s = max(0, self._now() - began) / NANOSECONDS
        self._metrics.time("broker.process_time", worked_s, labels=labels)
        self._metrics.time("broker.response_time", waited_s + worked_s, labels=labels)

    def forget(self, delivery: Delivery) -> None:
        """Drop a returned evaluation."""
        self._deliveries.pop(delivery.token, None)


def _labels(delivery: Delivery) -> Labels:
    """Labels that have few values; jobs have no bound, so unlike Nomad's these times do not name them."""
    evaluation = delivery.evaluation
    return (
        ("namespace", evaluation.namespace),
        ("eval_type", evaluation.type),
        ("triggered_by", evaluation.triggered_by),
    )


PREEMPTED: Final = (("reason", "preempted"),)
IDLE: Final = (("reason", "idle"),)


def count_requeue(metrics: Metrics, state: Snapshot, change: Change) -> None:
    """Count a new allocation if it goes on with the work of a preempted one."""
    placed: Allocation | None = change.after if change.before is None else None
    tracker = None if placed is None else placed.reschedule_tracker
    if placed is None or tracker is None or not tracker.requeues:
        return
    previous = state.allocs.get(placed.previous_allocation)
    if previous is None or requeues_of(previous) >= tracker.requeues:
        return
    labels = IDLE if previous.idle is not None and previous.idle.action else PREEMPTED
    before = previous.reschedule_tracker
    lost_s = (tracker.lost - (before.lost if before is not None else 0)) / NANOSECONDS
    metrics.count("queue.requeued", labels=labels)
    metrics.count("queue.lost_seconds", round(lost_s), labels=labels)
    metrics.count("queue.lost_device_seconds", round(lost_s * len(usage_of(previous).devices)), labels=labels)
