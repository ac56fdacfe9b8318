"""The steps of idle allocations at the leader: their end is announced, withdrawn, and carried out.

What is proposed is decided by `duties.idle` on the newest state, and by `apply` again. How long an end has been
announced is measured by the monotonic clock of this term: a new leader announces nothing anew, but waits the whole
grace once more.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from yurt.duties.idle import EndingTogether, ending_together, reason_of, waiting_for_devices
from yurt.fsm.eval_triggers import Mint
from yurt.runtime.env import Env
from yurt.runtime.metrics import Labels, Metrics
from yurt.sdk.errors import Conflict, Invalid, NotFound
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.server.log.log_writer import LogWriter
from yurt.state import Snapshot, Tables
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AnnounceIdleEnd, AnyCommand, EndIdleAllocs
from yurt.structs.evaluation import Evaluation
from yurt.structs.queueing.idle import CONTENDED, idle_policy_of, is_idle

LOOK_S: Final = 5.0
"""The interval at which idle allocations are looked at while there are any: others may wait for them since."""
LOOK_MIN_S: Final = 0.05
SEED: Final = 1

log = logging.getLogger(__name__)


class IdleSteps:
    """What one term does about idle allocations."""

    def __init__(self, *, env: Env, writer: LogWriter, metrics: Metrics, region: str) -> None:
        self._env = env
        self._writer = writer
        self._metrics = metrics
        self._region = region
        self._seen_s: dict[str, tuple[int, float]] = {}
        """The announced end of allocations, by the first of those that end together, and when this term saw it."""

    def gone(self, alloc_ids: Iterable[str]) -> set[str]:
        """Those of the allocations that are not idle any more."""
        state = self._writer.state
        found = {alloc_id: state.allocs.get(alloc_id) for alloc_id in alloc_ids}
        gone = {alloc_id for alloc_id, alloc in found.items() if alloc is None or not is_idle(alloc)}
        for alloc_id in self._seen_s.keys() - found.keys() | gone:
            self._seen_s.pop(alloc_id, None)
        return gone

    async def look(self, alloc_ids: Collection[str]) -> float:
        """Take the next step for everything that is idle; returns the seconds to the next look at the latest."""
        state, now = self._writer.state, self._env.now()
        due = ending_together(state, alloc_ids, now)
        ending = {alloc.id for each in due for alloc in each.allocs}
        for alloc_id in sorted(set(alloc_ids) - ending):
            await self._withdraw(state.allocs.get(alloc_id))
        waits = [await self._step(state, each, now) for each in due]
        return min([LOOK_S, *waits])

    async def _withdraw(self, alloc: Allocation | None) -> None:
        if alloc is None or alloc.idle is None or not alloc.idle.ends_at:
            return
        command = AnnounceIdleEnd(reports={alloc.id: alloc.idle.report_index}, now=self._env.now())
        if await self._propose(command):
            self._metrics.count("idle.withdrawn", labels=_labels(alloc))
            log.info("announced end of an idle allocation withdrawn: alloc_id=%s job_id=%s", alloc.id, alloc.job_id)

    async def _step(self, state: Snapshot, ending: EndingTogether, now: UnixNano) -> float:
        """Announce, withdraw or carry out the end of allocations; returns the seconds until it may be due."""
        waiting = None
        if ending.policy.when == CONTENDED:
            tried = waiting_for_devices(state, ending)
            waiting = await self._env.in_thread(partial(fitting, state, ending, tried, now, self._region))
            if waiting is None:
                for alloc in ending.allocs:
                    await self._withdraw(alloc)
                return LOOK_S
        reason, first = reason_of(ending, waiting), ending.allocs[0]
        if not ending.is_announced or ending.ends_at > now + ending.policy.grace:
            ends_at = UnixNano(now + ending.policy.grace)
            command = AnnounceIdleEnd(reports=ending.reports, ends_at=ends_at, reason=reason, now=now)
            if not await self._propose(command):
                return LOOK_S
            self._metrics.count("idle.announced", len(ending.allocs), labels=_labels(first))
            text = "end of idle allocations announced: alloc_ids=%s job_id=%s action=%s reason=%r"
            log.info(text, _ids(ending), first.job_id, ending.policy.action, reason)
            return LOOK_MIN_S
        left_s = self._left_s(ending)
        if left_s > 0:
            return max(LOOK_MIN_S, left_s)
        await self._end(ending, reason, waiting)
        return LOOK_S

    def _left_s(self, ending: EndingTogether) -> float:
        """The seconds that an announcement must still be known, by this term's clock and by the announced time."""
        now_s, grace_s, first = self._env.monotonic(), ending.policy.grace / NANOSECONDS, ending.allocs[0].id
        ends_at, seen_s = self._seen_s.get(first, (0, now_s))
        if ends_at != ending.ends_at:
            seen_s = now_s
        self._seen_s[first] = (ending.ends_at, seen_s)
        return max(seen_s + grace_s - now_s, (ending.ends_at - self._env.now()) / NANOSECONDS)

    async def _end(self, ending: EndingTogether, reason: str, waiting: Evaluation | None) -> None:
        mint = Mint(self._env.now(), self._env.uuid)
        command = EndIdleAllocs(
            reports=ending.reports,
            action=ending.policy.action,
            reason=reason,
            waiting_eval=waiting.id if waiting is not None else "",
            seed=mint.seed(),
            now=mint.now,
        )
        if await self._propose(command):
            first = ending.allocs[0]
            self._metrics.count("idle.ended", len(ending.allocs), labels=_labels(first))
            text = "idle allocations ended: alloc_ids=%s job_id=%s action=%s reason=%r"
            log.info(text, _ids(ending), first.job_id, ending.policy.action, reason)

    async def _propose(self, command: AnyCommand) -> bool:
        """Store a step; whether `apply` accepted it. What has changed meanwhile is looked at again."""
        with suppress(Conflict, NotFound, Invalid):
            await self._writer.propose(command)
            return True
        return False


def _labels(alloc: Allocation) -> Labels:
    """The action of an allocation's policy, and what it waits for."""
    policy = idle_policy_of(alloc)
    return () if policy is None else (("action", policy.action), ("reason", policy.when))


def _ids(ending: EndingTogether) -> str:
    return ",".join(alloc.id for alloc in ending.allocs)


def fitting(
    state: Snapshot, ending: EndingTogether, tried: Sequence[Evaluation], now: UnixNano, region: str
) -> Evaluation | None:
    """The first evaluation that the scheduler would place on the nodes of allocations that had ended."""
    if not tried:
        return None
    from yurt.scheduler.attempts import attempt
    from yurt.scheduler.capacity.quotas import QuotaLimits

    edit = state.edit(state.index + 1)
    for alloc in ending.allocs:
        ended = replace(alloc, desired_status=status.DESIRED_EVICT, client_status=status.CLIENT_FAILED)
        edit.put(Tables.allocs, alloc.id, ended)
    freed, limits = edit.commit(), QuotaLimits(region)
    nodes = {alloc.node_id for alloc in ending.allocs}
    for evaluation in tried:
        made = attempt(freed, evaluation, now=now, seed=SEED, limits=limits)
        if any(placement.node_id in nodes for placement in made.plan.placements):
            return evaluation
    return None
