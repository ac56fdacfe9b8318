"""System and sysbatch jobs: one allocation of each group on every node that can take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from yurt.scheduler.capacity.limits import LimitCheck
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.job_types.blocked_evals import REMAINING, CapacityWait, blocked_eval
from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.node_placement import NodePlacement
from yurt.scheduler.job_types.outcome import completed
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.scheduler.job_types.system_diff import Counts, SystemDiff, stop, stop_live
from yurt.scheduler.job_types.system_rollout import SystemRollout, has_lost_all_nodes
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.scheduler.reconcile import results as why
from yurt.scheduler.reconcile.classify import is_abandoned
from yurt.scheduler.reconcile.deployments import cancel_unneeded
from yurt.scheduler.reconcile.results import Results, StopRequest
from yurt.sdk.value import replace
from yurt.structs.evaluation import DesiredUpdates, Evaluation
from yurt.structs.plan import Outcome, Plan
from yurt.structs.predicates import is_of_version
from yurt.structs.status import CLIENT_LOST, EVAL_BLOCKED, TRIGGER_QUEUED_ALLOCS

BUSY: Final = ("place", "destructive_update", "in_place_update", "canary")
"""While any of these counts is above 0, a deployment is not complete."""


class _Wait(msgspec.Struct, frozen=True):
    """The groups that one evaluation waits for, and the name of the limit that refused some of them; "" for none."""

    groups: frozenset[str]
    limit: str


class SystemAttempt:
    """One attempt at an evaluation of a system or sysbatch job."""

    kind: Final = "system"

    def __init__(self, context: AttemptContext) -> None:
        self.context = context
        self.view = ClusterView(context.snapshot, context.now)
        self.draft = PlanDraft(context, Results())
        self.placers: Mapping[str, GroupPlacer] = {}
        self.done: Mapping[str, int] = {}
        """The nodes on which a sysbatch job has ended, by group."""
        self.failed_nodes: Mapping[str, set[str]] = {}
        """The groups without capacity on a node, by node."""
        self._limited: Mapping[tuple[str, str], str] = {}
        """The limit that refused a group whatever the node would grant, by (node, group)."""
        self._limited_grants: Mapping[tuple[str, str], str] = {}
        """The limit that refused a node's grant, by (node, group)."""
        self._limits = LimitCheck(context.limits, context.job, context.guarantees)
        self.view.guarantees = self._limits.guarantees
        self._version_deployment_id = context.evaluation.deployment_id
        """The deployment of the job's version, ended or not, which the evaluation names."""

    @property
    def limit_reached(self) -> str:
        """The outermost cluster-wide limit that refused a placement; "" for none."""
        return self._limits.reached

    def run(self) -> tuple[Plan, Outcome]:
        """Run the attempt; returns the plan and the outcome."""
        context, job, draft = self.context, self.context.job, self.draft
        for alloc in context.allocs:
            # Stopped already, but its client can no longer confirm it: its capacity would stay taken for ever.
            if is_abandoned(alloc, context.snapshot.nodes.get(alloc.node_id), now=context.now):
                stop(draft, self.view, StopRequest(alloc, why.LOST, CLIENT_LOST))
        latest = context.snapshot.latest_deployment(context.evaluation.namespace, context.evaluation.job_id)
        current = cancel_unneeded(latest, job, draft.results)
        if current is not None and has_lost_all_nodes(current):
            current = None
        if job is None or job.stop:
            counts = stop_live(context, draft, self.view, frozenset())
        else:
            if latest is not None and is_of_version(latest, job):
                self._version_deployment_id = latest.id
            diff, rollout = SystemDiff(context, job, draft, self.view), SystemRollout(context, job, draft, current)
            targets, counts = diff.compare(rollout), diff.counts
            placement = NodePlacement(self.view, draft, self._limits, counts)
            placement.place_all(targets)
            diff.follow_up()
            rollout.end(counts, is_busy=_is_busy(counts, placement.failed_fresh))
            self.placers, self.done, self.failed_nodes = diff.placers, diff.done, placement.failed_nodes
            self._limited, self._limited_grants = placement.limited, placement.limited_grants
        plan = draft.as_plan(_desired(counts))
        return plan, self._outcome(plan)

    def _waits(self) -> dict[str, _Wait]:
        """The evaluations to block, by node.

        One for each node without room: capacity on other nodes does not help the allocation that waits for this one.
        Allocations that a limit refused wait in one evaluation without a node: one per node would wake them all when
        one fits, and a cluster of n nodes would write n evaluations for each change under the limit. That evaluation
        names the outermost of their limits, which is told of the events of the others too. When a limit refuses only
        what a node would grant, something freed on the node may help as well: such allocations wait with their node,
        for both.
        """
        groups: dict[str, set[str]] = {}
        limits: dict[str, set[str]] = {}
        for node_id, names in self.failed_nodes.items():
            for pair in ((node_id, name) for name in names):
                waits_at = "" if pair in self._limited else node_id
                groups.setdefault(waits_at, set()).add(pair[1])
                limit = self._limited.get(pair) or self._limited_grants.get(pair, "")
                limits.setdefault(waits_at, set()).add(limit)
        return {
            node_id: _Wait(frozenset(waiting), self._limits.outermost(*limits[node_id]))
            for node_id, waiting in sorted(groups.items())
        }

    def _classes(self) -> tuple[str, ...]:
        """The classes of the nodes: none of them has what an evaluation lacks that waits for a limit alone."""
        return tuple(sorted({node.computed_class for node in self.context.snapshot.nodes.values()}))

    def _outcome(self, plan: Plan) -> Outcome:
        context, draft, evaluation = self.context, self.draft, self.context.evaluation
        created = list(draft.results.followups)
        waits = self._waits()
        again = waits.pop(evaluation.node_id, None) if evaluation.status == EVAL_BLOCKED else None
        for node_id, wait in waits.items():
            id = context.ids.next("blocked")
            snapshot_index = context.snapshot.index
            waiting = self._capacity_wait(node_id, wait)
            created.append(
                blocked_eval(
                    evaluation, waiting, id=id, now=context.now, snapshot_index=snapshot_index, job=context.job
                )
            )
        if again is not None:
            reblocked = self._reblocked(self._capacity_wait(evaluation.node_id, again))
            return Outcome(evaluation=reblocked, created=tuple(created), reblock=reblocked)
        deployment = draft.deployment
        ended = completed(
            context,
            draft,
            plan,
            limit_reached=self.limit_reached,
            deployment_id=deployment.id if deployment is not None else self._version_deployment_id,
        )
        return Outcome(evaluation=ended, created=tuple(created))

    def _capacity_wait(self, node_id: str, wait: _Wait) -> CapacityWait:
        return CapacityWait(
            failed={name: self.draft.failed[name] for name in sorted(wait.groups)},
            classes={} if node_id else dict.fromkeys(self._classes(), False),
            node_id=node_id,
            limit=wait.limit,
        )

    def _reblocked(self, wait: CapacityWait) -> Evaluation:
        """The blocked evaluation of this attempt with the reasons why it waits again."""
        return replace(
            self.context.evaluation,
            # One that waited after refused plans waits for capacity now: nothing is to be tried again every minute.
            triggered_by=TRIGGER_QUEUED_ALLOCS,
            status_description=REMAINING,
            class_eligibility=wait.classes,
            escaped_computed_class=False,
            quota_limit_reached=wait.limit,
            failed_tg_allocs=wait.failed,
            queued_allocations={name: self.draft.queued[name] for name in wait.failed},
            snapshot_index=self.context.snapshot.index,
            modify_time=self.context.now,
        )


def _is_busy(counts: Counts, failed_fresh: Mapping[str, int]) -> bool:
    """Whether a deployment still has changes to make.

    A new node without room is not waited for: nothing bounds that wait, since the deadline of a deployment is that of
    the nodes which it began with, and those are healthy.
    """
    return any(
        each[key] > (failed_fresh.get(name, 0) if key == "place" else 0)
        for name, each in counts.items()
        for key in BUSY
    )


def _desired(counts: Counts) -> dict[str, DesiredUpdates]:
    return {name: DesiredUpdates(**of_group) for name, of_group in counts.items()}
