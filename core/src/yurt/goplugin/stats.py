"""Converts resource usage between Yurt's form (CPU time so far) and Nomad's (current percentage of a core)."""

from __future__ import annotations

from typing import Any

from yurt.goplugin.convert import timestamp_fields, unix_nano
from yurt.goplugin.messages import Message, driver_message
from yurt.sdk.driver import TaskStats
from yurt.sdk.value import UnixNano

GAP_MAX_NS = 60_000_000_000
CPU_FIELDS = ("SYSTEM_MODE", "USER_MODE", "PERCENT")
MEMORY_FIELDS = ("RSS", "SWAP", "USAGE")


class UseMeter:
    """Integrates CPU percentages to CPU time; a longer gap counts as one minute of the last value."""

    def __init__(self) -> None:
        self._at = UnixNano(0)
        self._user_ns = 0.0
        self._system_ns = 0.0

    def read(self, stats: Message, *, now: UnixNano) -> TaskStats:
        """The plugin's next statistics in our form."""
        # Bounded, so that a plugin that was away for hours does not add hours of CPU time at its last percentage.
        at = unix_nano(stats.timestamp) or now
        usage = stats.agg_resource_usage
        span = min(max(at - self._at, 0), GAP_MAX_NS) if self._at else 0
        self._at = UnixNano(max(at, self._at))
        self._user_ns += usage.cpu.user_mode / 100 * span
        self._system_ns += usage.cpu.system_mode / 100 * span
        memory = usage.memory
        return TaskStats(
            at=at,
            rss_bytes=memory.rss or memory.usage,
            swap_bytes=memory.swap,
            cpu_user_ns=round(self._user_ns),
            cpu_system_ns=round(self._system_ns),
            pids=len(stats.resource_usage_by_pid) or int(bool(memory.rss or memory.usage)),
        )


def stats_message(task_id: str, stats: TaskStats, before: TaskStats | None) -> Message:
    """Our statistics in Nomad's form: percent since the previous ones, zero for the first."""
    span = max(stats.at - before.at, 1) if before else 1
    user = 100 * (stats.cpu_user_ns - before.cpu_user_ns) / span if before else 0.0
    system = 100 * (stats.cpu_system_ns - before.cpu_system_ns) / span if before else 0.0
    cpu: dict[str, Any] = {"user_mode": user, "system_mode": system, "percent": user + system}
    memory = {"rss": stats.rss_bytes, "swap": stats.swap_bytes, "usage": stats.rss_bytes}
    return driver_message(
        "TaskStats",
        id=task_id,
        timestamp=timestamp_fields(stats.at),
        agg_resource_usage={
            "cpu": {**cpu, "measured_fields": CPU_FIELDS},
            "memory": {**memory, "measured_fields": MEMORY_FIELDS},
        },
    )
