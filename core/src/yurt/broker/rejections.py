"""Detects nodes that refuse plans repeatedly.

The scheduler may not see why a node refuses; then it plans for the same node for ever, and other jobs wait. A node that
refuses `threshold` plans within a window is to take no more allocations until an operator has looked at it. That is
done to few nodes at a time: when most of them refuse, the fault lies elsewhere.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from yurt.sdk.value import Duration, UnixNano, seconds

NODES_MAX: Final = 50
"""The maximum number of nodes with recorded refusals; the node with the oldest last refusal is dropped first."""
MARKS_MAX: Final = 10.0
"""The number of nodes that may be marked ineligible in one burst."""
MARK_INTERVAL: Final = seconds(1800 / 5)
"""The interval after which one more node may be marked ineligible."""


class Rejections:
    """Recent refusals by node; time enters only as `now`."""

    def __init__(self, *, threshold: int, window: Duration) -> None:
        self._threshold = max(1, threshold)
        self._window = window
        self._times: OrderedDict[str, deque[int]] = OrderedDict()
        self._marks = MARKS_MAX
        self._counted_at: int | None = None

    def add(self, node_id: str, now: UnixNano) -> bool:
        """Record a refusal; returns True when the node should accept no more allocations."""
        times = self._times.setdefault(node_id, deque(maxlen=self._threshold))
        self._times.move_to_end(node_id)
        times.append(now)
        if len(self._times) > NODES_MAX:
            self._times.popitem(last=False)
        assert len(self._times) <= NODES_MAX, len(self._times)
        if len(times) < self._threshold or now - times[0] > self._window or not self._may_mark(now):
            return False
        assert len(times) == self._threshold, (len(times), self._threshold)
        del self._times[node_id]
        return True

    def scores(self, now: UnixNano) -> dict[str, int]:
        """The number of refusals within the window, by node."""
        return {node: sum(now - at <= self._window for at in times) for node, times in self._times.items()}

    def _may_mark(self, now: int) -> bool:
        # A wall clock may be set back; that must not reduce the number of marks available.
        since = 0 if self._counted_at is None else max(0, now - self._counted_at)
        self._marks = min(MARKS_MAX, self._marks + since / MARK_INTERVAL)
        self._counted_at = now
        assert 0 <= self._marks <= MARKS_MAX, self._marks
        if self._marks < 1:
            return False
        self._marks -= 1
        return True
