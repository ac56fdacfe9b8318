"""Ends allocations of a node that has lost contact for longer than their groups allow (`stop_on_client_after`)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from yurt.client.allocations.alloc_table import AllocTable
from yurt.lifecycle import events, heartbeats
from yurt.lifecycle.allocation import Stop
from yurt.lifecycle.heartbeats import Contact
from yurt.runtime.env import Env
from yurt.sdk.value import seconds

CHECK_EVERY_S = 1.0

log = logging.getLogger(__name__)


class DisconnectionWatch:
    """Compares the time since the last contact with the limit of each live allocation's group."""

    def __init__(self, table: AllocTable, env: Env, *, contact: Callable[[], Contact]) -> None:
        self._table = table
        self._env = env
        self._contact = contact

    async def run(self) -> None:
        """Check every second until cancelled."""
        while True:
            await self._env.sleep(CHECK_EVERY_S)
            self._look()

    def _look(self) -> None:
        now_s, last_s = self._env.monotonic(), self._contact().last_ok_s
        for runner in self._table.live.values():
            job = runner.alloc.job
            after_s = heartbeats.stop_on_client_after_s(runner.task_group, job.type if job else "")
            if runner.is_live and heartbeats.is_cut_off(after_s, last_contact_s=last_s, now_s=now_s):
                log.warning("ending allocation %s: no contact to the servers for %gs", runner.alloc.id, after_s)
                runner.stop(Stop(reason=events.cut_off(seconds(after_s)), is_failure=True))
