"""System and sysbatch jobs: one allocation of each group on every node that can take it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from yurt.scheduler.capacity.limits import LimitCheck
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.job_types.blocked_evals import CapacityWait, blocked_eval
from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.node_placement import NodePlacement
from yurt.scheduler.job_types.outcome import completed
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.scheduler.job_types.system_diff import Counts, SystemDiff, stop, stop_live
from yurt.scheduler.job_types.system_rollout import SystemRollout
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.scheduler.reconcile import results as why
from yurt.scheduler.reconcile.classify import is_abandoned
from yurt.scheduler.reconcile.deployments import cancel_unneeded
from yurt.scheduler.reconcile.results import Results, StopRequest
from yurt.sdk.value import replace
from yurt.structs.evaluation import DesiredUpdates
from yurt.structs.plan import Outcome, Plan
from yurt.structs.predicates import is_of_version
from yurt.structs.status import CLIENT_LOST, EVAL_BLOCKED

BUSY: Final = ("place", "destructive_update", "in_place_update", "canary")
"""While any of these counts is above 0, a deployment is not complete."""


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
        self._limited: Collection[tuple[str, str]] = ()
        """The (node, group) that a limit refused."""
        self._limits = LimitCheck(context.limits, context.job, context.guarantees)
        self.view.guarantees = self._limits.guarantees
        self._version_deployment_id = context.evaluation.deployment_id
        """The deployment of the job's version, ended or not, which the evaluation names."""

    @property
    def limit_reached(self) -> str:
        """The cluster-wide limit that refused a placement; "" for none."""
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
            rollout.end(is_busy=_is_busy(counts, placement.failed_fresh))
            self.placers, self.done, self.failed_nodes = diff.placers, diff.done, placement.failed_nodes
            self._limited = placement.limited
        plan = draft.as_plan(_desired(counts))
        return plan, self._outcome(plan)

    def _waits(self) -> dict[str, set[str]]:
        """The groups of each evaluation to block, by its node.

        One for each node without room: capacity on other nodes does not help the allocation that waits for this one.
        Allocations that a limit refused wait in one evaluation without a node: one per node would wake them all when
        one fits, and a cluster of n nodes would write n evaluations for each change under the limit.
        """
        waits: dict[str, set[str]] = {}
        for node_id, groups in self.failed_nodes.items():
            for group in groups:
                waits.setdefault("" if (node_id, group) in self._limited else node_id, set()).add(group)
        return waits

    def _classes(self) -> tuple[str, ...]:
        """The classes of the nodes: none of them has what an evaluation lacks that waits for a limit alone."""
        return tuple(sorted({node.computed_class for node in self.context.snapshot.nodes.values()}))

    def _outcome(self, plan: Plan) -> Outcome:
        context, draft, evaluation = self.context, self.draft, self.context.evaluation
        created = list(draft.results.followups)
        waits = self._waits()
        is_blocked_again = evaluation.status == EVAL_BLOCKED and evaluation.node_id in waits
        if is_blocked_again:
            del waits[evaluation.node_id]
        for node_id, groups in sorted(waits.items()):
            wait = CapacityWait(
                failed={name: draft.failed[name] for name in sorted(groups)},
                classes={} if node_id else dict.fromkeys(self._classes(), False),
                node_id=node_id,
                limit=self.limit_reached,
            )
            id = context.ids.next("blocked")
            snapshot_index = context.snapshot.index
            created.append(
                blocked_eval(evaluation, wait, id=id, now=context.now, snapshot_index=snapshot_index, job=context.job)
            )
        if is_blocked_again:
            reblocked = replace(
                evaluation,
                class_eligibility={} if evaluation.node_id else dict.fromkeys(self._classes(), False),
                quota_limit_reached=self.limit_reached,
                snapshot_index=context.snapshot.index,
                modify_time=context.now,
            )
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
