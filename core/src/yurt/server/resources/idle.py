"""The leader's duty for idle allocations: it follows which there are, and looks at them while there are any."""

from __future__ import annotations

import asyncio
from typing import Final

from yurt.runtime.env import Env
from yurt.runtime.metrics import Metrics
from yurt.server.config import ServerConfig
from yurt.server.log.log_writer import LogWriter
from yurt.server.log.state_waits import wait_for
from yurt.state import Changes, Snapshot, has_change_of
from yurt.structs.alloc import Allocation
from yurt.structs.predicates import is_terminal
from yurt.structs.queueing.idle import idle_policy_of, is_idle, is_same_policy

ROWS_A_SLICE: Final = 2_000


class IdleReclaimer:
    """The idle allocations of a term."""

    def __init__(self, *, env: Env, writer: LogWriter, metrics: Metrics, config: ServerConfig) -> None:
        self._env = env
        self._writer = writer
        self._metrics = metrics
        self._config = config
        self._idle: set[str] = set()
        self._restored: Snapshot | None = None
        self._changed = asyncio.Event()

    def restore(self, state: Snapshot) -> None:
        """Begin with the state; `run` finds its idle allocations, since reading a million allocations takes a
        second."""
        self._idle = set()
        self._restored = state

    def observe(self, changes: Changes) -> None:
        """Follow the reports of clients, and what users do about them."""
        if not has_change_of(changes, "allocs"):
            return
        for change in changes:
            if change.table != "allocs":
                continue
            after: Allocation | None = change.after
            if change.before is None and (after is None or after.idle is None):
                continue  # a new one, of which a plan places thousands
            self._count_withdrawal(change.before, after)
            if after is not None and after.idle is not None and is_idle(after):
                if after.id not in self._idle or _has_changed(change.before, after):
                    self._changed.set()
                self._idle.add(after.id)
            elif change.before is not None and change.before.id in self._idle:
                # The next step withdraws the announced end of it, or of its gang.
                self._changed.set()

    def _count_withdrawal(self, before: Allocation | None, after: Allocation | None) -> None:
        """Count an announced end that use, `alloc keep` or a new policy made void.

        `IdleSteps.withdraw` counts those that the leader withdraws: the change does not tell why.
        """
        was, now = before.idle if before is not None else None, after.idle if after is not None else None
        if before is None or after is None or was is None or now is None or not was.ends_at or now.ends_at:
            return
        policy = idle_policy_of(before)
        # By what changed, not by the counts of spared ends: those are not kept while servers are upgraded.
        if not is_same_policy(policy, idle_policy_of(after)):
            cause = "policy"
        elif not now.idle_for:
            cause = "use"
        elif (now.kept_until, now.keeps) != (was.kept_until, was.keeps):
            cause = "keep"
        else:
            return
        labels = () if policy is None else (("action", policy.action), ("reason", policy.when))
        self._metrics.count("idle.withdrawn", labels=(*labels, ("cause", cause)))

    async def _find(self) -> None:
        """Find the allocations that were idle when the term began, in slices; later ones were observed."""
        state, self._restored = self._restored, None
        if state is None:
            return
        for number, alloc in enumerate(state.allocs.values(), 1):
            if alloc.idle is not None and is_idle(alloc):
                self._idle.add(alloc.id)
            if number % ROWS_A_SLICE == 0:
                await self._env.sleep(0)

    async def run(self) -> None:
        """Look until cancelled; what it takes is imported when something is idle."""
        await self._find()
        while not self._idle:
            self._changed.clear()
            await wait_for(self._env, self._changed, None)
        from yurt.server.resources.idle_steps import LOOK_MIN_S, IdleSteps

        steps = IdleSteps(
            env=self._env,
            writer=self._writer,
            metrics=self._metrics,
            region=self._config.region,
            tracked_versions=self._config.job_tracked_versions,
        )
        while True:
            self._changed.clear()
            active_ids = steps.not_idle(self._idle)
            await steps.withdraw(active_ids)
            self._idle -= active_ids
            next_s = await steps.look(tuple(self._idle)) if self._idle else None
            await self._env.sleep(LOOK_MIN_S)
            await wait_for(self._env, self._changed, None if next_s is None else next_s - LOOK_MIN_S)


def _has_changed(before: Allocation | None, after: Allocation) -> bool:
    """Whether an idle allocation has a new report, request or end; the steps of the reclaim itself do not count."""
    was, now = before.idle if before is not None else None, after.idle
    if was is None or now is None or before is None:
        return True
    kept_until_before, kept_until_now = was.kept_until, now.kept_until
    return (was.report_index, kept_until_before) != (now.report_index, kept_until_now) or is_terminal(
        before
    ) != is_terminal(after)
