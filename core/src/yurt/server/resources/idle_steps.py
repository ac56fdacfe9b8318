"""The steps of idle allocations at the leader: their end is announced, withdrawn, and carried out.

`duties.idle` decides each proposal on the newest state, and `apply` decides again. How long an end has been
announced is measured by the monotonic clock of this term: a new leader does not announce again, but waits the whole
grace once more.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from yurt.duties.idle import EndingTogether, as_one_step, ending_together, is_due, lowers_count, reason_of
from yurt.fsm.eval_triggers import Mint
from yurt.runtime.env import Env
from yurt.runtime.metrics import Labels, Metrics
from yurt.sdk.errors import Conflict, Invalid, NotFound
from yurt.sdk.value import NANOSECONDS, UnixNano
from yurt.server.log.log_writer import LogWriter
from yurt.state import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AnnounceIdleEnd, AnyCommand, EndIdleAllocs
from yurt.structs.evaluation import Evaluation
from yurt.structs.predicates import is_terminal
from yurt.structs.queueing.idle import ALWAYS, idle_policy_of, is_idle

if TYPE_CHECKING:
    from yurt.server.resources.idle_fit import Turn

LOOK_S: Final = 5.0
"""The interval at which idle allocations are looked at while there are any: others may wait for them since."""
LOOK_MIN_S: Final = 1.0
"""The shortest time between two looks, whatever happens."""
TOGETHER_S: Final = 5.0
"""How long a due end waits for others of the same service group: one version of the job has the count without all."""
ASK_LIMIT_S: Final = 0.5
"""How long the scheduler is asked in one look; it shares the interpreter with all else that the leader does."""
PAUSES_PER_ASKING: Final = 10.0
"""The pause after it, in multiples of the time that it took."""

log = logging.getLogger(__name__)


class IdleSteps:
    """What one term does about idle allocations."""

    def __init__(self, *, env: Env, writer: LogWriter, metrics: Metrics, region: str, tracked_versions: int) -> None:
        self._env = env
        self._writer = writer
        self._metrics = metrics
        self._region = region
        self._tracked_versions = tracked_versions
        self._turns: Mapping[str, Turn] = {}
        self._pause_s = LOOK_S
        self._seen_s: dict[str, tuple[int, float]] = {}
        """The announced end of allocations, by the first of those that end together, and when this term saw it."""

    def not_idle(self, alloc_ids: Iterable[str]) -> set[str]:
        """The allocations that are no longer idle."""
        state = self._writer.state
        allocs = {alloc_id: state.allocs.get(alloc_id) for alloc_id in alloc_ids}
        not_idle = {alloc_id for alloc_id, alloc in allocs.items() if alloc is None or not is_idle(alloc)}
        for alloc_id in self._seen_s.keys() - allocs.keys() | not_idle:
            self._seen_s.pop(alloc_id, None)
        return not_idle

    async def look(self, alloc_ids: Collection[str]) -> float:
        """Take the next step for everything that is idle; returns the seconds to the next look at the latest."""
        state, now = self._writer.state, self._env.now()
        due = ending_together(state, alloc_ids, now)
        waiting, untried = await self._needs(state, due, now)
        needed = [each for each in due if each.policy.when == ALWAYS or each.first in waiting]
        retained_ids = {alloc.id for each in due if each in needed or each.first in untried for alloc in each.allocs}
        unneeded = {alloc.id for each in due for alloc in each.allocs} - retained_ids
        await self.withdraw(unneeded, cause="need")
        await self.withdraw(set(alloc_ids) - retained_ids - unneeded)
        waits = [(each, await self._announce(each, waiting.get(each.first))) for each in needed]
        ready = [each for each, wait_s in waits if not wait_s]
        soon = {each.group for each, wait_s in waits if wait_s and self._is_due_soon(each)}
        # Bounded by the announced end: a group whose allocations come one after the other waits for few of them.
        early = self._env.now() - TOGETHER_S * NANOSECONDS
        ready = [each for each in ready if each.group not in soon or each.ends_at < early]
        for each in as_one_step(self._writer.state, ready):
            await self._end(each, waiting.get(each.first))
        return min([self._pause_s, *(wait_s for _, wait_s in waits if wait_s)])

    async def _needs(
        self, state: Snapshot, due: Sequence[EndingTogether], now: UnixNano
    ) -> tuple[Mapping[str, Evaluation], Collection[str]]:
        """The evaluations that need the devices of allocations, and the allocations for which there was no time."""
        if all(each.policy.when == ALWAYS for each in due):
            return {}, ()
        from yurt.server.resources.idle_fit import needs

        monotonic, began_s = self._env.monotonic, self._env.monotonic()

        def is_late() -> bool:
            return monotonic() - began_s > ASK_LIMIT_S

        work = partial(needs, state, due, self._turns, now=now, region=self._region, is_late=is_late)
        result = await self._env.in_thread(work)
        self._pause_s = max(LOOK_S, PAUSES_PER_ASKING * (monotonic() - began_s))
        self._turns = result.turns
        return result.waiting, result.untried

    async def withdraw(self, alloc_ids: Collection[str], *, cause: str = "other") -> None:
        """Withdraw the announced ends of allocations, those of a gang together, and count them with the cause.

        Other causes than `need` are the use of another member of the gang, interactive hours, or a node out of contact.
        """
        state = self._writer.state
        announced: dict[tuple[str, ...], list[Allocation]] = {}
        for alloc in map(state.allocs.get, sorted(alloc_ids)):
            if alloc is None or alloc.idle is None or not alloc.idle.ends_at or is_terminal(alloc):
                continue
            group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
            is_gang = group is not None and group.gang is not None
            key = (alloc.namespace, alloc.job_id, alloc.task_group) if is_gang else (alloc.id,)
            announced.setdefault(key, []).append(alloc)
        for allocs in announced.values():
            for alloc in allocs:
                self._seen_s.pop(alloc.id, None)
            reports = {alloc.id: alloc.idle.report_index for alloc in allocs if alloc.idle is not None}
            if await self._propose(AnnounceIdleEnd(reports=reports, now=self._env.now())):
                self._metrics.count("idle.withdrawn", len(allocs), labels=(*_labels(allocs[0]), ("cause", cause)))
                ids, job_id = ",".join(reports), allocs[0].job_id
                text = "announced end of idle allocations withdrawn: alloc_ids=%s job_id=%s cause=%s"
                log.info(text, ids, job_id, cause)

    async def _announce(self, group: EndingTogether, waiting: Evaluation | None) -> float:
        """Announce the end of allocations, once; returns the seconds until it may be due, 0 if it is."""
        state, now = self._writer.state, self._env.now()
        ending = _newest(state, group, now)
        if ending is None:
            return LOOK_S
        reason, first = reason_of(ending, waiting), ending.allocs[0]
        if not ending.is_announced or ending.ends_at > now + ending.policy.grace:
            command = AnnounceIdleEnd(
                reports=ending.reports,
                ends_at=UnixNano(now + ending.policy.grace),
                reason=reason,
                waiting_eval=waiting.id if waiting is not None else "",
                now=now,
            )
            if not await self._propose(command):
                return LOOK_S
            self._metrics.count("idle.announced", len(ending.allocs), labels=_labels(first))
            text = "end of idle allocations announced: alloc_ids=%s job_id=%s action=%s reason=%r"
            log.info(text, _ids(ending), first.job_id, ending.policy.action, reason)
            return LOOK_MIN_S
        remaining_s = self._remaining_s(ending)
        return max(LOOK_MIN_S, remaining_s) if remaining_s > 0 else 0.0

    def _is_due_soon(self, ending: EndingTogether) -> bool:
        """Whether others of the same service group wait for an announced end. Where they are ended for a waiting job,
        they wait for none: that job may go first."""
        is_due = ending.policy.when == ALWAYS and ending.is_announced and lowers_count(ending.allocs[0])
        return is_due and self._remaining_s(ending) <= TOGETHER_S

    def _remaining_s(self, ending: EndingTogether) -> float:
        """The seconds that an announcement must still be known, by this term's clock and by the announced time."""
        now_s, grace_s, first = self._env.monotonic(), ending.policy.grace / NANOSECONDS, ending.allocs[0].id
        ends_at, seen_s = self._seen_s.get(first, (0, now_s))
        if ends_at != ending.ends_at:
            seen_s = now_s
        self._seen_s[first] = (ending.ends_at, seen_s)
        return max(seen_s + grace_s - now_s, (ending.ends_at - self._env.now()) / NANOSECONDS)

    async def _end(self, group: EndingTogether, waiting: Evaluation | None) -> None:
        ending = _newest(self._writer.state, group, self._env.now())
        if ending is None:
            return
        reason = reason_of(ending, waiting)
        mint = Mint(self._env.now(), self._env.uuid)
        command = EndIdleAllocs(
            reports=ending.reports,
            action=ending.policy.action,
            reason=reason,
            waiting_eval=waiting.id if waiting is not None else "",
            seed=mint.seed(),
            tracked_versions=self._tracked_versions,
            now=mint.now,
        )
        if await self._propose(command):
            first = ending.allocs[0]
            self._metrics.count("idle.ended", len(ending.allocs), labels=_labels(first))
            text = "idle allocations ended: alloc_ids=%s job_id=%s action=%s reason=%r"
            log.info(text, _ids(ending), first.job_id, ending.policy.action, reason)

    async def _propose(self, command: AnyCommand) -> bool:
        """Store a step; returns whether `apply` accepted it. After a change meanwhile, the next step decides again."""
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


def _newest(state: Snapshot, group: EndingTogether, now: UnixNano) -> EndingTogether | None:
    """Allocations as they are by now; None when one of them is not due any more."""
    allocs = [state.allocs.get(alloc.id) for alloc in group.allocs]
    newest = tuple(alloc for alloc in allocs if alloc is not None and is_due(state, alloc, now))
    return group._replace(allocs=newest) if len(newest) == len(allocs) else None
