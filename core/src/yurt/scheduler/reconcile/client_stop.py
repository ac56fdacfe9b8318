"""The time at which a lost client has stopped its allocations by itself (`stop_on_client_after`)."""

from __future__ import annotations

from yurt.scheduler.reconcile.reschedule_policy import group_of
from yurt.sdk.value import NANOSECONDS
from yurt.structs.alloc import Allocation
from yurt.structs.status import CLIENT_LOST

KILL_TIMEOUT_MIN = 5 * NANOSECONDS


def client_stops_by(alloc: Allocation, now: int) -> int:
    """The time by which a lost allocation has certainly stopped; 0 without `stop_on_client_after`."""
    group = group_of(alloc)
    strategy = group.disconnect if group is not None else None
    if group is None or strategy is None or strategy.stop_on_client_after <= 0:
        return 0
    lost = [state.time for state in alloc.alloc_states if state.field == "ClientStatus" and state.value == CLIENT_LOST]
    kill_timeout = max((task.kill_timeout for task in group.tasks), default=0)
    return (lost[0] if lost else now) + strategy.stop_on_client_after + max(kill_timeout, KILL_TIMEOUT_MIN)
