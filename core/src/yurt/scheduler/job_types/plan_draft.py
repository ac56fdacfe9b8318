"""The draft of a plan: placements, stops and changes of an attempt, and its unplaced groups."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.placing.group_placer import PlacedAlloc
from yurt.scheduler.placing.preemption import evictions
from yurt.scheduler.reconcile.results import PlacementRequest, Results
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, RescheduleTracker
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import DesiredUpdates, PlanAnnotations
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.node import Node
from yurt.structs.plan import AllocStop, AttributeUpdate, InPlaceUpdate, Placement, Plan

NONE: Mapping[str, int] = {}


class PlanDraft:
    """Collects the results of placement; `as_plan` completes the plan."""

    def __init__(self, context: AttemptContext, results: Results, deployment: Deployment | None = None) -> None:
        self.results = results
        self._context = context
        self.deployment = deployment
        """The active deployment of the job's version, to which placements and updates belong."""
        self.placements: list[Placement] = []
        self.preemptions: list[AllocStop] = []
        self.stops: list[AllocStop] = [stop.as_plan() for stop in results.stops]
        self.attributes: dict[str, AttributeUpdate] = dict(results.attributes)
        self.queued: dict[str, int] = {}
        """The number of unplaced requests by group."""
        self.failed: dict[str, AllocationMetric] = {}
        """The metrics of each group's first request that found no node."""
        self.replacing: dict[str, list[Allocation]] = {}
        """Allocations, by group, whose capacity counted as free for a request that found no node even so."""
        self.missing: set[str] = set()
        """Volumes that requests need and that are not registered."""
        self.withdrawn: Mapping[str, int] = {}
        """The withdrawn placements, by group, of a job that is placed as a whole or not at all."""

    def without_groups(self, broken: Mapping[str, AllocationMetric]) -> PlanDraft:
        """A new draft without broken gangs, but with their recorded failures."""
        fresh = PlanDraft(self._context, self.results, self.deployment)
        fresh.missing = self.missing
        # The first request of the group adds 1: one that failed by itself counts no coalesced failure.
        fresh.failed = {name: replace(metric, coalesced_failures=-1) for name, metric in broken.items()}
        fresh.replacing = {name: allocs for name, allocs in self.replacing.items() if name in broken}
        return fresh

    def add(
        self,
        request: PlacementRequest,
        placed: PlacedAlloc,
        node: Node,
        *,
        version: int,
        deployment: Deployment | None,
        tracker: RescheduleTracker | None = None,
    ) -> None:
        """Add a placement with the allocations it replaces and preempts; `version` is that of the job."""
        previous, victims = request.previous, placed.preempted
        if request.stops and previous is not None:
            self.stops.append(AllocStop(id=previous.id, node_id=previous.node_id, description=request.stops))
        alloc_id = self._context.ids.next("alloc")
        self.preemptions.extend(evictions(victims, alloc_id, placed.reclaimed_for))
        is_rolled_out = deployment is not None and request.group in deployment.task_groups
        self.placements.append(
            Placement(
                id=alloc_id,
                name=request.name,
                task_group=request.group,
                node_id=node.id,
                node_name=node.name,
                job_version=version,
                resources=placed.grant.resources,
                metrics=placed.metrics,
                deployment_id=deployment.id if deployment is not None and is_rolled_out else "",
                deployment_status=AllocDeploymentStatus(canary=True) if request.is_canary else None,
                previous_allocation=previous.id if previous is not None else "",
                reschedule_tracker=tracker,
                preempted_allocations=tuple(victim.id for victim in victims),
            )
        )

    def change(self, alloc: Allocation, **changes: object) -> None:
        """Change attributes of a running allocation."""
        update = self.attributes.get(alloc.id) or AttributeUpdate(id=alloc.id, node_id=alloc.node_id)
        self.attributes[alloc.id] = replace(update, **changes)

    def deployment_id(self, group: str) -> str:
        """The deployment of a group's allocations, or an empty string."""
        deployment = self.deployment
        return deployment.id if deployment is not None and group in deployment.task_groups else ""

    def withdraw(self) -> None:
        """Withdraw all placements with their stops and preemptions."""
        withdrawn: dict[str, int] = {}
        for placement in self.placements:
            withdrawn[placement.task_group] = withdrawn.get(placement.task_group, 0) + 1
        self.withdrawn = withdrawn
        assert len(self.stops) >= len(self.results.stops), "the reconciler's own stops stay"
        self.placements.clear()
        self.preemptions.clear()
        del self.stops[len(self.results.stops) :]
        self.attributes = dict(self.results.attributes)

    def stopped_ids(self) -> set[str]:
        """The allocations that the plan stops."""
        return {stop.id for stop in self.stops}

    def as_plan(
        self, desired: Mapping[str, DesiredUpdates], gangs: Mapping[str, int] = NONE, members: Mapping[str, int] = NONE
    ) -> Plan:
        """The plan, with the reconciler's counts and the minimums of gangs (`Gangs.minimums`)."""
        context, results = self._context, self.results
        evaluation, job = context.evaluation, context.job
        assert len(self.stopped_ids()) == len(self.stops), "a plan stops an allocation once"
        assert self.stopped_ids().isdisjoint([stop.id for stop in self.preemptions]), "what stops is nobody's victim"
        assert not self.withdrawn or not self.placements, (
            "a job that is placed whole or not at all is not placed in part"
        )
        return Plan(
            eval_id=evaluation.id,
            namespace=evaluation.namespace,
            job_id=evaluation.job_id,
            priority=job.priority if job is not None else evaluation.priority,
            all_at_once=job is not None and job.all_at_once,
            gangs=gangs,
            gang_members=members,
            snapshot_index=context.snapshot.index,
            placements=tuple(self.placements),
            in_place=tuple(
                InPlaceUpdate(
                    id=update.alloc.id,
                    node_id=update.alloc.node_id,
                    job_version=job.version if job is not None else 0,
                    deployment_id=self.deployment_id(update.alloc.task_group),
                )
                for update in results.in_place
            ),
            attributes=tuple(self.attributes[key] for key in sorted(self.attributes)),
            stops=tuple(self.stops),
            preemptions=tuple(self.preemptions),
            deployment=results.deployment,
            deployment_updates=tuple(results.deployment_updates),
            annotations=PlanAnnotations(
                desired_tg_updates=dict(desired),
                preempted_allocs=tuple(stop.id for stop in self.preemptions),
            ),
            now=context.now,
        )
