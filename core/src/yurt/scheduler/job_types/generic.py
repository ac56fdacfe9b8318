"""Service and batch jobs: reconciles, places, and decides how the evaluation ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from yurt.scheduler.capacity.limits import LimitCheck
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.feasibility.masks import is_row_feasible
from yurt.scheduler.job_types.blocked_evals import CapacityWait, blocked_eval, reclaim_later
from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.gangs import Gangs
from yurt.scheduler.job_types.group_placers import GroupPlacers
from yurt.scheduler.job_types.outcome import completed
from yurt.scheduler.job_types.placement_round import PlacementRound
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.scheduler.placing.warm_start import WarmStart
from yurt.scheduler.reconcile.job import Situation, reconcile
from yurt.scheduler.reconcile.results import PlacementRequest, Results
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import DesiredUpdates, Evaluation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job
from yurt.structs.plan import Outcome, Plan
from yurt.structs.status import DEPLOYMENT_ACTIVE, EVAL_BLOCKED, TRIGGER_RETRY_FAILED_ALLOC


class GenericAttempt:
    """One attempt at an evaluation of a service or batch job."""

    kind: Final = "generic"
    draft: PlanDraft
    """The placements and failures of the last round; set once the attempt has run."""

    def __init__(self, context: AttemptContext, warm_start: WarmStart | None = None) -> None:
        """`warm_start` is the state after attempts at other jobs; only a job that `is_new` may continue from it."""
        self.context = context
        self.version_deployment: Deployment | None = None
        """The deployment of the job's version, ended or not, which the evaluation names."""
        self.requests: Sequence[PlacementRequest] = ()
        """All placements that the reconciler requests, replacements first."""
        self._placers = GroupPlacers(context, warm_start)
        self._gangs = Gangs(context)
        self._limits = LimitCheck(context.limits, context.job, context.guarantees)

    @property
    def view(self) -> ClusterView:
        """The cluster including the placements so far."""
        return self._placers.view

    @property
    def placers(self) -> Mapping[str, GroupPlacer]:
        """By group: its feasible nodes, its ranking and the refusals of nodes."""
        return self._placers.by_group

    @property
    def broken(self) -> Mapping[str, AllocationMetric]:
        """Gangs with too few placed members, with the reason."""
        return self._gangs.broken

    @property
    def limit_reached(self) -> str:
        """The cluster-wide limit that refused a placement; "" for none."""
        return self._limits.reached

    def warm_start_after(self) -> WarmStart:
        """The warm start for an attempt at the next new job."""
        return self._placers.warm_start_after()

    def run(self) -> tuple[Plan, Outcome]:
        """Run the attempt; returns the plan and the outcome."""
        context = self.context
        latest = context.snapshot.latest_deployment(context.evaluation.namespace, context.evaluation.job_id)
        results = reconcile(self._situation(latest))
        current = latest if latest is not None and self._is_current(latest) else None
        self.version_deployment = results.deployment or current
        active = current if current is not None and current.status in DEPLOYMENT_ACTIVE else None
        # Replacements first: capacity that an allocation frees beyond its replacement's need is available to later
        # placements.
        self.requests = (*results.destructive, *results.place)
        self.draft = PlanDraft(context, results, results.deployment or active)
        self._begin(results)
        if context.job is not None and not context.job.stop:
            self._place(context.job, results)
        plan = self.draft.as_plan(self._desired(results), *self._gangs.minimums(self.draft))
        return plan, self._outcome(plan)

    def _situation(self, latest: Deployment | None) -> Situation:
        context = self.context
        return Situation(
            job=context.job,
            evaluation=context.evaluation,
            allocs=context.allocs,
            nodes=context.nodes_of_allocs,
            waiting_evals=context.waiting_evals,
            deployment=latest,
            now=context.now,
            ids=context.ids,
            fits_in_place=self._fits_in_place,
        )

    def _is_current(self, deployment: Deployment) -> bool:
        job = self.context.job
        return (
            job is not None
            and not job.stop
            and deployment.job_version == job.version
            and deployment.job_create_index == job.create_index
        )

    def _fits_in_place(self, alloc: Allocation) -> bool:
        job, snapshot = self.context.job, self.context.snapshot
        assert job is not None
        group = job.group(alloc.task_group)
        row = self.view.row(alloc.node_id)
        if group is None or row is None or alloc.node_id not in snapshot.nodes:
            return False
        return is_row_feasible(snapshot, job, group, row)

    def _place(self, job: Job, results: Results) -> None:
        """Place all desired allocations, and again without broken gangs."""
        self._run_round(job)
        # A gang without capacity for its minimum gives all of its capacity back, and other groups may need it. So
        # everything is placed again; each round leaves out at least one gang more, which bounds the rounds.
        broken_before = 0
        while self._gangs.find_broken(job, self.draft):
            assert len(self._gangs.broken) > broken_before, (broken_before, "each round leaves out one gang more")
            broken_before = len(self._gangs.broken)
            self.draft = self.draft.without_groups(self._gangs.broken)
            self._placers.restart(self._gangs.broken)
            self._limits.restart()
            self._begin(results)
            self._run_round(job)

    def _run_round(self, job: Job) -> None:
        PlacementRound(self.context, job, self.draft, placers=self._placers, limits=self._limits).run(self.requests)

    def _begin(self, results: Results) -> None:
        """Start without placements, with the resources of stopped allocations free."""
        job = self.context.job
        self.view.guarantees = self._limits.guarantees
        self.draft.queued = {} if job is None else {group.name: 0 for group in job.task_groups}
        for stop in results.stops:
            self.view.release(stop.alloc)
            if self._limits.is_counting:
                self._limits.give_back(stop.alloc)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _desired(self, results: Results) -> dict[str, DesiredUpdates]:
        """The `DesiredUpdates` counts of each group, including the allocations it preempts."""
        if not self.draft.preemptions:
            return results.desired
        preempted = Counter(p.task_group for p in self.draft.placements for _ in p.preempted_allocations)
        return {name: replace(counts, preemptions=preempted[name]) for name, counts in results.desired.items()}

    def _outcome(self, plan: Plan) -> Outcome:
        context, draft, evaluation = self.context, self.draft, self.context.evaluation
        deployment = self.version_deployment
        ended = completed(
            context,
            draft,
            plan,
            limit_reached=self.limit_reached,
            deployment_id=deployment.id if deployment is not None else evaluation.deployment_id,
        )
        followups = (*draft.results.followups, *self._reclaim_later())
        is_delayed = evaluation.wait_until <= 0 and any(
            later.triggered_by == TRIGGER_RETRY_FAILED_ALLOC for later in followups
        )
        if not draft.failed or (is_delayed and evaluation.status != EVAL_BLOCKED):
            return Outcome(evaluation=ended, created=followups)
        classes, is_escaped = self._eligibility()
        missing = tuple(sorted(draft.missing))
        if evaluation.status == EVAL_BLOCKED:
            reblocked = replace(
                evaluation,
                class_eligibility=classes,
                escaped_computed_class=is_escaped,
                quota_limit_reached=self.limit_reached,
                missing_non_node_resources=missing,
                snapshot_index=context.snapshot.index,
                failed_tg_allocs=ended.failed_tg_allocs,
                queued_allocations=ended.queued_allocations,
                modify_time=context.now,
            )
            return Outcome(evaluation=reblocked, created=followups, reblock=reblocked)
        waiting = blocked_eval(
            evaluation,
            CapacityWait(
                failed=ended.failed_tg_allocs,
                classes=classes,
                is_escaped=is_escaped,
                limit=self.limit_reached,
                missing=missing,
            ),
            id=context.ids.next("blocked"),
            now=context.now,
            snapshot_index=context.snapshot.index,
            job=context.job,
        )
        return Outcome(evaluation=replace(ended, blocked_eval=waiting.id), created=(*followups, waiting))

    def _reclaim_later(self) -> tuple[Evaluation, ...]:
        """The evaluation for the time when protected borrowers may be reclaimed for unplaced groups: one, or none."""
        guarantees, context = self._limits.guarantees, self.context
        if guarantees is None or context.job is None or not self.draft.failed:
            return ()
        from yurt.scheduler.placing.reclaim import next_chance

        placers = [self._placers.of(context.job, name, self.draft) for name in self.draft.failed]
        ends = [next_chance(self.view, each.ask, guarantees, each.mask) for each in placers]
        due = min((end for end in ends if end), default=0)
        return reclaim_later(context, due) if due else ()

    def _eligibility(self) -> tuple[dict[str, bool], bool]:
        """The node classes that could take the unplaced groups, and whether more than the class matters."""
        job, classes, is_escaped = self.context.job, dict[str, bool](), False
        assert job is not None
        for name in self.draft.failed:
            placer = self._placers.of(job, name, self.draft)
            is_escaped |= placer.feasible.is_escaped or placer.volumes.is_used
            for computed, is_eligible in placer.metrics.eligible_classes().items():
                classes[computed] = classes.get(computed, False) or is_eligible
        return dict(sorted(classes.items())), is_escaped
