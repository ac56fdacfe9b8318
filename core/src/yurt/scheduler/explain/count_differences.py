"""Explains differences between a group's desired count and its running, placed and unplaced allocations.

An allocation may count although it has ended (a batch job's finished work, a failure that is replaced later or never).
It may not count although it runs (canaries, allocations with a stand-in, allocations that await a replacement). What
then remains was not tried: the group waits for clients or for its deployment. The differences add up to exactly the
number that is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from yurt.scheduler.explain.finished_attempt import FinishedAttempt, FinishedGeneric, FinishedSystem
from yurt.scheduler.explain.freed_capacity import is_live
from yurt.scheduler.reconcile.classify import Classified, classify_all, strategy_of
from yurt.scheduler.reconcile.client_stop import client_stops_by
from yurt.scheduler.reconcile.replacements import ReplacementBasis, split
from yurt.scheduler.reconcile.reschedule_policy import due, policy_of
from yurt.scheduler.reconcile.results import NOT_NEEDED, NOT_NEEDED_RECONNECT
from yurt.scheduler.reconcile.update_kind import is_destructive
from yurt.sdk.value import NANOSECONDS
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.job import TaskGroup
from yurt.structs.status import (
    CLIENT_COMPLETE,
    CLIENT_FAILED,
    CLIENT_LOST,
    CLIENT_UNKNOWN,
    DEPLOYMENT_ACTIVE,
    DEPLOYMENT_FAILED,
    DEPLOYMENT_PAUSED,
    JOB_BATCH,
    SERVER_TERMINAL,
)


class CountDifference(NamedTuple):
    """The number of allocations missing for a reason; negative for those beyond the desired count."""

    number: int
    text: str


def count_differences(attempt: FinishedAttempt, group: TaskGroup) -> list[CountDifference]:
    """All differences of a group; none for an unwanted group."""
    job = attempt.context.job
    if job is None or job.stop or group.count <= 0:
        return []
    differences = _GroupDifferences(attempt, group).find() if attempt.kind == "generic" else _of_system(attempt, group)
    return list(differences)


def _of_system(attempt: FinishedSystem, group: TaskGroup) -> Iterator[CountDifference]:
    """The differences of a system job, which has one allocation on each eligible node, so that none waits."""
    done = attempt.done.get(group.name, 0)
    if done:
        yield CountDifference(done, _number(done, "has ended and is not run again", "have ended and are not run again"))
    old = len(attempt.draft.replacing.get(group.name, []))
    if old:
        yield _old(old)


def _old(number: int) -> CountDifference:
    whose = "runs on until its replacement finds" if number == 1 else "run on until their replacements find"
    return CountDifference(-number, f"{number} of those there already {whose} room")


class _GroupDifferences:
    """The search for differences of one group of a finished attempt."""

    def __init__(self, attempt: FinishedGeneric, group: TaskGroup) -> None:
        self._attempt = attempt
        self._group = group
        self._stops = {stop.id: stop.description for stop in attempt.draft.stops}
        self._places = [place for place in attempt.requests if place.group == group.name]
        self._replaced = {place.previous.id for place in self._places if place.previous is not None}
        self._allocs = [alloc for alloc in attempt.context.allocs if alloc.task_group == group.name]
        self._running = {alloc.id for alloc in self._allocs if is_live(alloc) and alloc.id not in self._stops}
        self._classes = self._classified()
        self._canaries = self._canary_ids()

    def find(self) -> Iterator[CountDifference]:
        """Find allocations beyond the count, ended ones and waiting ones."""
        missing = self._group.count - len(self._running) - len(self._places)
        for difference in (*self._surplus(), *self._not_replaced()):
            missing -= difference.number
            yield difference
        ended = self._ended()[: max(0, missing)]
        yield from self._of_ended(ended)
        unexplained = missing - len(ended)
        if unexplained < 0:
            yield self._too_many(-unexplained)
        elif unexplained:
            yield CountDifference(unexplained, self._waiting(unexplained))

    def _classified(self) -> Classified:
        attempt, job = self._attempt, self._attempt.context.job
        assert job is not None
        allocs = self._allocs
        if job.type == JOB_BATCH:
            allocs = [alloc for alloc in allocs if is_live(alloc) or self._is_of_version(alloc)]
        nodes = {alloc.node_id: attempt.context.snapshot.nodes.get(alloc.node_id) for alloc in allocs}
        return classify_all(allocs, nodes, is_batch=job.type == JOB_BATCH, now=attempt.context.now)

    def _is_of_version(self, alloc: Allocation) -> bool:
        job, own = self._attempt.context.job, alloc.job
        return (
            job is not None and own is not None and (own.version, own.create_index) >= (job.version, job.create_index)
        )

    def _deployment(self) -> Deployment | None:
        """The deployment of the version, if it includes the group."""
        deployment = self._attempt.version_deployment
        return deployment if deployment is not None and self._group.name in deployment.task_groups else None

    def _canary_ids(self) -> frozenset[str]:
        """The canaries beyond the count."""
        deployment = self._deployment()
        if deployment is None or deployment.status == DEPLOYMENT_FAILED:
            return frozenset()
        state = deployment.task_groups[self._group.name]
        return frozenset() if state.promoted else frozenset(state.placed_canaries)

    # -- beyond the desired count ----------------------------------------------------------------------------------

    def _surplus(self) -> Iterator[CountDifference]:
        canaries = len(self._canaries & self._running) + sum(1 for place in self._places if place.is_canary)
        if canaries:
            who = "1 is a canary" if canaries == 1 else f"{canaries} are canaries"
            yield CountDifference(
                -canaries, f"{who} beyond the desired count, until {self._named_deployment()} is promoted"
            )
        updating = {p.previous.id for p in self._places if p.stops and p.previous is not None}
        old = len((updating & self._running) - self._canaries)
        if old:
            yield _old(old)
        away = len((self._away() & self._running) - self._canaries - updating)
        if away:
            what = "is on a node that is out of reach, and another stands in for it"
            if away > 1:
                what = "are on nodes that are out of reach, and others stand in for them"
            yield CountDifference(-away, f"{away} of those there already {what}")

    def _away(self) -> set[str]:
        """Unreachable allocations that have replacements."""
        unknown = [alloc for alloc in self._classes.untainted if alloc.client_status == CLIENT_UNKNOWN]
        return {alloc.id for alloc in (*unknown, *self._classes.disconnecting) if strategy_of(alloc).replace}

    def _too_many(self, number: int) -> CountDifference:
        """Allocations beyond the count on unreachable nodes, which are counted but not stopped."""
        what = "is on an unreachable node and beyond the desired count"
        if number > 1:
            what = "are on unreachable nodes and beyond the desired count"
        return CountDifference(-number, f"{number} of those there already {what}")

    # -- missing, and not to be placed -----------------------------------------------------------------------------

    def _not_replaced(self) -> Iterator[CountDifference]:
        leaving = [
            alloc
            for alloc in self._classes.migrate
            if alloc.desired_transition.migrate_disable_placement
            and alloc.id not in self._replaced | self._canaries
            and self._stops.get(alloc.id) != NOT_NEEDED
        ]
        if leaving:
            yield CountDifference(
                len(leaving),
                f"{_number(len(leaving), 'leaves its node and is', 'leave their nodes and are')} not replaced",
            )

    def _ended(self) -> list[Allocation]:
        """Ended allocations that count."""
        attempt, away = self._attempt, self._away()
        present = split(
            (alloc for alloc in self._classes.untainted if alloc.id not in away),
            is_batch=attempt.context.evaluation.type == JOB_BATCH,
            eval_id=attempt.context.evaluation.id,
            now=attempt.context.now,
            basis=ReplacementBasis(
                attempt.draft.deployment, attempt.context.nodes_of_allocs, attempt.context.waiting_evals
            ),
        ).present
        dropped = {one for one, why in self._stops.items() if why in (NOT_NEEDED, NOT_NEEDED_RECONNECT)}
        excluded = dropped | self._replaced | self._canaries
        return sorted((alloc for alloc in present if not is_live(alloc) and alloc.id not in excluded), key=_importance)

    def _of_ended(self, ended: Iterable[Allocation]) -> Iterator[CountDifference]:
        texts = [self._reason(alloc) for alloc in ended]
        for (one, several), number in Counter(texts).items():
            yield CountDifference(number, _number(number, one, several))

    def _reason(self, alloc: Allocation) -> tuple[str, str]:
        """The reason why an ended allocation is not replaced, in singular and plural."""
        is_stopped = alloc.desired_status in SERVER_TERMINAL
        if alloc.client_status == CLIENT_COMPLETE and not is_stopped:
            return "has done its work and is not run again", "have done their work and are not run again"
        if alloc.client_status != CLIENT_FAILED or is_stopped:
            return "was stopped and is not run again", "were stopped and are not run again"
        when, policy = due(alloc), policy_of(alloc)
        if when.is_eligible and self._is_rolled_out(alloc):
            deployment = self._named_deployment()
            return (
                f"failed and waits for what becomes of {deployment}",
                f"failed and wait for what becomes of {deployment}",
            )
        if when.is_eligible:
            until = f"for {self._later(alloc)} until {time_text(when.at)}"
            return f"failed and waits {until}", f"failed and wait {until}"
        if self._is_outdated(alloc):
            return "failed and waits for its update", "failed and wait for their updates"
        if policy is None or not (policy.unlimited or policy.attempts):
            why = "for the group is not rescheduled"
            return f"failed and is not replaced, {why}", f"failed and are not replaced, {why}"
        why = "reschedule attempts are used up"
        return f"failed and is not replaced, for its {why}", f"failed and are not replaced, for their {why}"

    def _is_rolled_out(self, alloc: Allocation) -> bool:
        """Whether its replacement depends on a deployment."""
        deployment, transition = self._attempt.draft.deployment, alloc.desired_transition
        is_own = deployment is not None and deployment.id == alloc.deployment_id
        is_active = deployment is not None and deployment.status in DEPLOYMENT_ACTIVE
        return is_own and is_active and not (transition.reschedule or transition.force_reschedule)

    def _is_outdated(self, alloc: Allocation) -> bool:
        job = self._attempt.context.job
        assert job is not None
        return (
            alloc.job is not None
            and not self._is_of_version(alloc)
            and is_destructive(alloc.job, job, self._group.name)
        )

    def _later(self, alloc: Allocation) -> str:
        """The delayed evaluation that replaces an allocation; that of a dry run has no id."""
        is_stored = alloc.followup_eval_id in self._attempt.context.snapshot.evals
        return f"delayed evaluation {alloc.followup_eval_id[:8]}" if is_stored else "a delayed evaluation"

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _waiting(self, number: int) -> str:
        """The reason why some allocations are not placed now."""
        until = self._clients_until()
        if until:
            waits, then = (
                _number(number, "waits", "wait"),
                "by then the clients of those that are lost have stopped them",
            )
            return f"{waits} for a delayed evaluation until {time_text(until)}: {then}"
        deployment = self._deployment()
        if deployment is not None and deployment.status in (DEPLOYMENT_FAILED, DEPLOYMENT_PAUSED):
            waits = _number(number, "waits", "wait")
            return f"{waits} for {self._named_deployment()}, which is {deployment.status}"
        shortfall = self._attempt.draft.results.gang_shortfalls.get(self._group.name)
        if shortfall is not None:
            return f"{_number(number, 'waits', 'wait')} for other members of the gang: {shortfall}"
        return f"{_number(number, 'waits', 'wait')} until {self._named_deployment()} is promoted"

    def _clients_until(self) -> int:
        """The time at which clients have stopped the last lost allocation (`stop_on_client_after`); 0 for none."""
        now = self._attempt.context.now
        lost = [*self._classes.lost, *self._classes.expiring]
        lost += [a for a in self._allocs if a.client_status == CLIENT_LOST and not a.next_allocation]
        times = (client_stops_by(alloc, now) for alloc in lost)
        return max((at for at in times if at > now), default=0)

    def _named_deployment(self) -> str:
        """A text for the deployment; one that only the dry run would create is not named."""
        deployment = self._deployment()
        is_stored = deployment is not None and deployment.id in self._attempt.context.snapshot.deployments
        return f"deployment {deployment.id[:8]}" if deployment is not None and is_stored else "the deployment"


def _importance(alloc: Allocation) -> tuple[bool, str]:
    """Sort key: finished work is retained before other ended allocations."""
    return alloc.client_status != CLIENT_COMPLETE, alloc.name


def _number(number: int, one: str, several: str) -> str:
    return f"1 {one}" if number == 1 else f"{number} {several}"


def time_text(at: int) -> str:
    """A time in nanoseconds as RFC 3339 in UTC, to the second."""
    return datetime.fromtimestamp(at // NANOSECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
