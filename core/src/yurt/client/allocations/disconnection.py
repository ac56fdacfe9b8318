"""Ends allocations of a node that has lost contact for longer than their groups allow (`stop_on_client_after`)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.timed_waits import wait_or_sleep
from yurt.lifecycle import events, heartbeats
from yurt.lifecycle.allocation import Stop
from yurt.lifecycle.heartbeats import Contact
from yurt.runtime.env import Env
from yurt.sdk.value import seconds

CHECK_MIN_S = 1.0
"""The shortest time between two checks. An allocation that begins or changes may have a shorter limit: the next check
follows this much later, for all that begin or change meanwhile."""

log = logging.getLogger(__name__)


class DisconnectionWatch:
    """Compares the time since the last contact with the limit of each live allocation's group."""

    def __init__(self, table: AllocTable, env: Env, *, contact: Callable[[], Contact]) -> None:
        self._table = table
        self._env = env
        self._contact = contact

    async def run(self) -> None:
        """Check until cancelled, whenever a limit may have been reached.

        An agent whose allocations have no limit wakes only for their changes.
        """
        changed = self._table.has_changed
        while True:
            left_s = self._look()
            if left_s == math.inf:
                await changed.wait()
            elif not await wait_or_sleep(self._env, changed, max(CHECK_MIN_S, left_s)):
                continue
            await self._env.sleep(CHECK_MIN_S)
            changed.clear()

    def _look(self) -> float:
        """End the allocations that are cut off; returns the seconds until the first limit of the others (inf: none)."""
        now_s, last_s = self._env.monotonic(), self._contact().last_ok_s
        left_s = math.inf
        for runner in self._table.live.values():
            job = runner.alloc.job
            after_s = heartbeats.stop_on_client_after_s(runner.task_group, job.type if job else "")
            if after_s <= 0 or not runner.is_live:
                continue
            left_s = min(left_s, last_s + after_s - now_s)
            if heartbeats.is_cut_off(after_s, last_contact_s=last_s, now_s=now_s):
                log.warning("ending allocation %s: no contact to the servers for %gs", runner.alloc.id, after_s)
                runner.stop(Stop(reason=events.cut_off(seconds(after_s)), is_failure=True))
        return left_s
