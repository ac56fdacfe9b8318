"""Bugs in the client: tasks, reports, and the list of allocations."""

from __future__ import annotations

from typing import Final

from yurt.testing.sim.planted.patch import CALM_USERS, LATE_CLIENTS, SMALL, Bug, Patch

BUGS: Final[dict[str, Bug]] = {
    "restarted-agent-forgets-its-tasks": Bug(
        (
            Patch(
                "yurt.client.tasks.task_recovery",
                "elif await _is_found(runner, record.handle, env):",
                "elif False:",
            ),
        ),
        ("E3", "200 s after"),
        SMALL | {"faults": ("kill-client",), "features": ("service",), "fault_pause_s": 2.0},
    ),
    "failed-stop-is-not-repeated": Bug(
        (
            Patch(
                "yurt.client.tasks.driver_calls",
                "failure = str(error)\n                await wait_or_sleep",
                'return ""\n                await wait_or_sleep',
            ),
        ),
        ("E3", "200 s after"),
        SMALL | {"faults": ("driver-fails",), "features": ("service", "stop", "update"), "fault_pause_s": 1.0},
    ),
    "report-lost-with-its-server": Bug(
        (
            Patch(
                "yurt.client.allocations.reports",
                "error)\n            return False",
                "error)\n            self._pending.clear()\n            return True",
            ),
        ),
        ("200 s after",),
        SMALL
        | {
            "faults": ("reset-connections", "late-server", "resign", "etcd-slow"),
            "fault_pause_s": 0.7,
            "features": ("service", "batch", "update", "alloc-stop"),
        },
    ),
    "task-starts-before-its-record": Bug(
        (
            Patch("yurt.client.tasks.task_setup", "                await saving\n", "                pass\n"),
            Patch("yurt.client.tasks.task_setup", "            saving.cancel()\n", "            pass\n"),
        ),
        ("E3", "E4", "D4", "200 s after"),
        SMALL | {"faults": ("kill-client", "slow-disk"), "features": ("service", "batch"), "fault_pause_s": 0.7},
    ),
    "older-list-is-taken-over": Bug(
        (
            Patch(
                "yurt.lifecycle.alloc_list",
                "return pull.index < self.seen_index",
                "return not pull.index",
            ),
        ),
        (),
        SMALL
        | {
            "faults": ("lag-server", "kill-client", "reset-connections"),
            "features": ("service", "update"),
            "fault_pause_s": 1.5,
            "active_s": 90.0,
        },
    ),
    "newer-report-is-dropped": Bug(
        (
            Patch(
                "yurt.client.allocations.reports",
                "            if self._pending.get(update.id) is update:\n"
                "                del self._pending[update.id]\n",
                "            self._pending.pop(update.id, None)\n",
            ),
        ),
        ("200 s after",),
        SMALL
        | {"faults": ("etcd-slow", "slow-host"), "features": ("service", "batch", "update"), "fault_pause_s": 1.0},
    ),
    "reports-are-not-repeated": Bug(
        (Patch("yurt.client.allocations.readiness", "        self._reporter.resend()\n", ""),),
        ("E1", "the cluster does not recover", "200 s after"),
        LATE_CLIENTS
        | {
            "features": ("service", "disconnect", *("evaluate",) * 30),
            "user_pause_s": 2.0,
            "fault_pause_s": 8.0,
            "active_s": 180.0,
        },
    ),
    "watchers-outlive-their-task": Bug(
        (
            Patch(
                "yurt.client.tasks.client_task",
                "        for work in tuple(self._followed):\n            work.cancel()\n",
                "        self._followed.clear()\n",
            ),
        ),
        (),
        CALM_USERS | {"features": ("batch", "update", "checkpoint"), "active_s": 60.0},
    ),
}
