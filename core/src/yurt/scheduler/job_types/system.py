"""System and sysbatch jobs: one allocation of each group on every node that can take it (semantics 26)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from yurt.scheduler.capacity.limits import Limit, exceeded, take
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.feasibility.masks import is_row_feasible
from yurt.scheduler.ids import SeededIds
from yurt.scheduler.job_types.blocked_evals import CapacityWait, blocked_eval
from yurt.scheduler.placing.group_placer import GroupPlacer, PlacedAlloc
from yurt.scheduler.placing.preemption import evictions
from yurt.scheduler.reconcile import results as why
from yurt.scheduler.reconcile.alloc_names import alloc_name
from yurt.scheduler.reconcile.classify import (
    DISCONNECTING,
    EXPIRING,
    LOST,
    MIGRATE,
    RECONNECTING,
    classify,
    is_abandoned,
    strategy_of,
)
from yurt.scheduler.reconcile.deployments import (
    cancel_unneeded,
    fresh_state,
    is_complete,
    new_deployment,
)
from yurt.scheduler.reconcile.followups import followups
from yurt.scheduler.reconcile.results import InPlaceRequest, PlacementRequest, Results, StopRequest
from yurt.scheduler.reconcile.update_kind import is_destructive
from yurt.sdk.value import UnixNano, replace
from yurt.state.store import Snapshot
from yurt.structs.alloc import Allocation, AllocDeploymentStatus
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import DesiredUpdates, Evaluation, PlanAnnotations
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.plan import AllocStop, AttributeUpdate, DeploymentUpdate, InPlaceUpdate, Outcome, Placement, Plan
from yurt.structs.questions import is_for_node, is_of_version, is_ready
from yurt.structs.resources import Resources
from yurt.structs.status import (
    CLIENT_LOST,
    CLIENT_TERMINAL,
    CLIENT_UNKNOWN,
    DEPLOYMENT_ACTIVE,
    DEPLOYMENT_PAUSED,
    DEPLOYMENT_SUCCESSFUL,
    EVAL_BLOCKED,
    EVAL_COMPLETE,
    JOB_SYSBATCH,
    JOB_SYSTEM,
    SERVER_TERMINAL,
    TRIGGER_MAX_DISCONNECT,
    ClientStatus,
    NotGiven,
)


class _GroupTargets(NamedTuple):
    """What a group is to get: replacements on their own nodes, and new ones by row."""

    placer: GroupPlacer
    destructive: list[PlacementRequest]
    fresh: list[tuple[int, PlacementRequest]]


class SystemAttempt:
    """One attempt at an evaluation of a system or sysbatch job."""

    kind: Final = "system"

    def __init__(self, snapshot: Snapshot, evaluation: Evaluation, *, now: UnixNano, ids: SeededIds, seed: int) -> None:
        self.snapshot = snapshot
        self.evaluation = evaluation
        self.now = now
        self.ids = ids
        self.seed = seed
        self.job = snapshot.jobs.get((evaluation.namespace, evaluation.job_id))
        self.allocs = snapshot.allocs_of_job(evaluation.namespace, evaluation.job_id)
        self.view = ClusterView(snapshot)
        self.results = Results()
        self.current: Deployment | None = None
        self.deployment: Deployment | None = None
        self.told_deployment = evaluation.deployment_id
        """The version's deployment, also one that has ended: the evaluation names it."""
        self.placements: list[Placement] = []
        self.failed: dict[str, AllocationMetric] = {}
        self.done: dict[str, int] = {}
        """By group the nodes on which a sysbatch job has ended."""
        self.failed_nodes: dict[str, set[str]] = {}
        self.replacing: dict[str, list[Allocation]] = {}
        """By group what placements without room would have replaced, each on its own node."""
        self.queued: dict[str, int] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.disconnected: list[tuple[Allocation, int]] = []
        """Allocations that become unknown, and until when."""
        self.stops: list[AllocStop] = []
        self.preemptions: list[AllocStop] = []
        self.placers: dict[str, GroupPlacer] = {}
        self.canaries: dict[str, int] = {}
        """For groups that try a new version on some nodes first: on how many."""
        self.limits: tuple[Limit, ...] = ()
        self.limit_reached = ""

    def run(self) -> tuple[Plan, Outcome]:
        """Plan and outcome."""
        results, job = self.results, self.job
        for alloc in self.allocs:
            if is_abandoned(alloc, self.snapshot.nodes.get(alloc.node_id), now=self.now):
                self._end(alloc, why.LOST, CLIENT_LOST)
        latest = self.snapshot.latest_deployment(self.evaluation.namespace, self.evaluation.job_id)
        self.current = cancel_unneeded(latest, job, results)
        if latest is not None and job is not None and not job.stop and is_of_version(latest, job):
            self.told_deployment = latest.id
        if job is None or job.stop:
            for alloc in self.allocs:
                self._stop_if_live(alloc)
            self.queued = {} if job is None or job.stop else self.queued
        else:
            self._diff(job)
        plan = self._plan()
        return plan, self._outcome(plan)

    # -- what there is against what is wanted ----------------------------------------------------------------------

    def _diff(self, job: Job) -> None:
        groups = {group.name: group for group in job.task_groups}
        for alloc in self.allocs:
            wanted = groups.get(alloc.task_group)
            if wanted is None or wanted.count <= 0:
                self._stop_if_live(alloc)
        for group in job.task_groups:
            self.counts.setdefault(group.name, dict.fromkeys(DesiredUpdates.__struct_fields__, 0))
            self.queued[group.name] = 0
        self._place_all(job, [self._diff_group(job, group) for group in job.task_groups if group.count > 0])
        self._follow_up(job)

    def _place_all(self, job: Job, wanted: list[_GroupTargets]) -> None:
        """Place once all that goes is known, and first what replaces: what a group gives up, the next may take."""
        for placer, destructive, _ in wanted:
            for place in destructive:
                at = self.view.row(place.previous.node_id) if place.previous is not None else None
                assert at is not None
                self._place(job, placer, at, place)
        for placer, _, fresh in wanted:
            for row, place in fresh:
                self._place(job, placer, row, place)

    def _diff_group(self, job: Job, group: TaskGroup) -> _GroupTargets:
        placer = self.placers[group.name] = GroupPlacer(self.view, job, group, seed=self.seed, own=())
        wanted = np.flatnonzero(placer.candidates.mask)
        covered: set[str] = set()
        done: set[str] = set()
        updates: list[Allocation] = []
        previous: dict[str, Allocation] = {}
        for alloc in sorted(self.allocs, key=lambda a: (a.create_index, a.id)):
            if alloc.task_group != group.name:
                continue
            if self._is_done(alloc, job):
                done.add(alloc.node_id)
            elif self._keep(job, group, alloc, updates):
                covered.add(alloc.node_id)
            elif not (alloc.desired_status in SERVER_TERMINAL and alloc.client_status not in CLIENT_TERMINAL):
                previous[alloc.node_id] = alloc
        self.done[group.name] = len(done - covered)
        covered |= done
        destructive = self._updates(job, group, updates)
        fresh = []
        ids = self.view.rows.ids
        if placer.volumes.is_used:
            placer.look_at_volumes(0)
        outside = tuple(placer.volumes_refused.values())
        for row in sorted(wanted.tolist(), key=lambda row: ids[row]):
            if ids[row] not in covered and placer.feasible.mask[row] and not any(mask[row] for mask in outside):
                name = alloc_name(job.name or job.id, group.name, 0)
                fresh.append((row, PlacementRequest(group.name, name, previous.get(ids[row]))))
        self._track(job, group, destructive, fresh)
        return _GroupTargets(placer, destructive, fresh)

    def _is_done(self, alloc: Allocation, job: Job) -> bool:
        """A sysbatch allocation that ended is not run again for the same version."""
        old = alloc.job
        is_same = old is not None and old.version == job.version and old.create_index == job.create_index
        return job.type == JOB_SYSBATCH and is_same and alloc.client_status in CLIENT_TERMINAL - {CLIENT_LOST}

    def _keep(self, job: Job, group: TaskGroup, alloc: Allocation, updates: list[Allocation]) -> bool:
        """Decide about one allocation; whether its node needs no other one."""
        if alloc.client_status in CLIENT_TERMINAL or alloc.desired_status in SERVER_TERMINAL:
            return False
        node = self.snapshot.nodes.get(alloc.node_id)
        found = classify(alloc, node, is_batch=job.type == JOB_SYSBATCH, now=self.now)
        counts = self.counts[group.name]
        if found == MIGRATE:
            self._stop(alloc, why.NODE_TAINTED)
            return True
        if found in (LOST, EXPIRING):
            self._stop(alloc, why.LOST, CLIENT_LOST)
            return False
        if found == DISCONNECTING:
            self._disconnect(alloc)
            counts["disconnect"] += 1
            return True
        if found == RECONNECTING:
            counts["reconnect"] += 1
            self._attribute(alloc, append_state=(alloc.client_status, self.now))
        row = self.view.row(alloc.node_id)
        is_current = self._is_current(alloc, job)
        if row is None or node is None or not self._suits(job, group, node, row=row, is_current=is_current):
            self._stop(alloc, why.NOT_NEEDED)
        elif is_current or not is_ready(node):
            counts["ignore"] += 1
        else:
            updates.append(alloc)
        return True

    def _suits(self, job: Job, group: TaskGroup, node: Node, *, row: int, is_current: bool) -> bool:
        """Whether an allocation may stay: what else a version asks of a node is asked once, before it is placed."""
        return is_for_node(job, node) if is_current else is_row_feasible(self.snapshot, job, group, row)

    def _is_current(self, alloc: Allocation, job: Job) -> bool:
        old = alloc.job
        return old is not None and old.version == job.version and old.create_index == job.create_index

    def _updates(self, job: Job, group: TaskGroup, updates: list[Allocation]) -> list[PlacementRequest]:
        destructive = []
        for alloc in updates:
            if alloc.job is not None and not is_destructive(alloc.job, job, group.name):
                self.results.in_place.append(InPlaceRequest(alloc))
                self.counts[group.name]["in_place_update"] += 1
            else:
                destructive.append(PlacementRequest(group.name, alloc.name, alloc, stops=why.UPDATING))
        canaries = self._canaries_wanted(group, len(destructive))
        if canaries is not None:
            self.counts[group.name]["ignore"] += len(destructive) - canaries
            return [replace(place, is_canary=True) for place in destructive[:canaries]]
        budget = self._budget(group, len(destructive))
        self.counts[group.name]["ignore"] += len(destructive) - budget
        return destructive[:budget]

    def _canaries_wanted(self, group: TaskGroup, destructive: int) -> int | None:
        """How many more nodes get the new version before its promotion; None when the group rolls without canaries."""
        update, deployment = group.update, self.current
        if update is None or update.canary <= 0 or update.max_parallel <= 0 or self.evaluation.type != JOB_SYSTEM:
            return None
        state = deployment.task_groups.get(group.name) if deployment is not None else None
        if (state is not None and (state.promoted or not state.desired_canaries)) or (deployment and state is None):
            return None
        existing = sum(1 for alloc in self.allocs if deployment is not None and _is_canary(alloc, deployment, group))
        desired = canaries_of(update.canary, destructive + existing)
        self.canaries[group.name] = desired
        if deployment is not None and deployment.status not in DEPLOYMENT_ACTIVE - {DEPLOYMENT_PAUSED}:
            return 0
        return max(0, min(desired - existing, destructive)) if desired else None

    def _budget(self, group: TaskGroup, wanted: int) -> int:
        update = group.update
        if update is None or update.max_parallel <= 0 or self.evaluation.type != JOB_SYSTEM:
            return wanted
        deployment = self.current
        if deployment is None:
            return min(wanted, update.max_parallel)
        if deployment.status not in DEPLOYMENT_ACTIVE or deployment.status == DEPLOYMENT_PAUSED:
            return 0
        own = [
            alloc.deployment_status.healthy if alloc.deployment_status is not None else None
            for alloc in self.allocs
            if alloc.deployment_id == deployment.id
            and alloc.task_group == group.name
            and alloc.client_status not in CLIENT_TERMINAL
            and alloc.desired_status not in SERVER_TERMINAL
        ]
        if False in own:
            return 0
        return max(0, min(wanted, update.max_parallel - own.count(None)))

    def _track(
        self, job: Job, group: TaskGroup, destructive: list[PlacementRequest], fresh: list[tuple[int, PlacementRequest]]
    ) -> None:
        """Begin a deployment when a new version starts to roll out."""
        update = group.update
        if job.type == JOB_SYSTEM and self.current is None and update is not None and update.max_parallel > 0:
            is_known = any(self._is_current(a, job) for a in self.allocs if a.task_group == group.name)
            older = self.counts[group.name]["ignore"] + len(destructive)
            in_place = self.counts[group.name]["in_place_update"]
            total = in_place + len(fresh) + older
            if total and (destructive or in_place or (fresh and not is_known)):
                canaries = self.canaries.get(group.name, 0)
                state = replace(fresh_state(group), desired_total=total, desired_canaries=canaries)
                self.results.states[group.name] = state
                made = new_deployment(job, None, self.results, ids=self.ids, now=self.now)
                kept = self.deployment.id if self.deployment is not None else ""
                self.deployment = made if made is None or not kept else replace(made, id=kept)
        elif self.current is not None and self.current.status in DEPLOYMENT_ACTIVE:
            self.deployment = self.current

    # -- changes ---------------------------------------------------------------------------------------------------

    def _stop_if_live(self, alloc: Allocation) -> None:
        if alloc.client_status in CLIENT_TERMINAL or alloc.desired_status in SERVER_TERMINAL:
            return
        self.counts.setdefault(alloc.task_group, dict.fromkeys(DesiredUpdates.__struct_fields__, 0))
        self._stop(alloc, why.NOT_NEEDED)

    def _stop(self, alloc: Allocation, description: str, client_status: ClientStatus | NotGiven = "") -> None:
        self.counts[alloc.task_group]["stop"] += 1
        self._end(alloc, description, client_status)

    def _end(self, alloc: Allocation, description: str, client_status: ClientStatus | NotGiven) -> None:
        self.stops.append(StopRequest(alloc, description, client_status).as_plan())
        self.view.release(alloc)

    def _attribute(self, alloc: Allocation, **changes: object) -> None:
        known = self.results.attributes.get(alloc.id) or AttributeUpdate(id=alloc.id, node_id=alloc.node_id)
        self.results.attributes[alloc.id] = replace(known, **changes)

    def _disconnect(self, alloc: Allocation) -> None:
        self._attribute(
            alloc,
            client_status=CLIENT_UNKNOWN,
            client_description=why.UNKNOWN,
            append_state=(CLIENT_UNKNOWN, self.now),
        )
        lost_after = strategy_of(alloc).lost_after
        if lost_after > 0:
            self.disconnected.append((alloc, self.now + lost_after))

    def _follow_up(self, job: Job) -> None:
        """Come back when the time of what is unknown is over."""
        made, eval_of = followups(
            job, self.disconnected, TRIGGER_MAX_DISCONNECT, ids=self.ids, parent=self.evaluation, now=self.now
        )
        self.results.followups.extend(made)
        for alloc, _ in self.disconnected:
            self._attribute(alloc, followup_eval_id=eval_of[alloc.id])

    def _place(self, job: Job, placer: GroupPlacer, row: int, place: PlacementRequest) -> None:
        previous, counts = place.previous, self.counts[place.group]
        counts["canary" if place.is_canary else "destructive_update" if place.stops else "place"] += 1
        if place.stops and previous is not None:
            self.view.release(previous)
        found = self._place_within_limits(placer, row)
        if isinstance(found, AllocationMetric):
            if place.stops and previous is not None:
                self.replacing.setdefault(place.group, []).append(previous)
                self.view.restore(previous)
            self._fail(place.group, self.view.rows.ids[row], found)
            return
        _, grant, metrics, preempted = found
        take(self.limits, grant.usage)
        if place.stops and previous is not None:
            self.stops.append(AllocStop(id=previous.id, node_id=previous.node_id, description=place.stops))
        alloc_id = self.ids.next("alloc")
        self.preemptions.extend(evictions(preempted, alloc_id))
        counts["preemptions"] += len(preempted)
        is_rolling = self.deployment is not None and place.group in self.deployment.task_groups
        self.placements.append(
            Placement(
                id=alloc_id,
                name=place.name,
                task_group=place.group,
                node_id=self.view.rows.ids[row],
                node_name=self.view.node(row).name,
                job_version=job.version,
                resources=grant.resources,
                metrics=metrics,
                deployment_id=self.deployment.id if is_rolling and self.deployment is not None else "",
                deployment_status=AllocDeploymentStatus(canary=True) if place.is_canary else None,
                previous_allocation=previous.id if previous is not None else "",
                preempted_allocations=tuple(victim.id for victim in preempted),
            )
        )

    def _place_within_limits(self, placer: GroupPlacer, row: int) -> PlacedAlloc | AllocationMetric:
        reached = exceeded(self.limits, placer.ask.plain.usage)
        if reached is None:
            return placer.place_on(row)
        self.limit_reached = reached[0]
        return AllocationMetric(nodes_evaluated=1, node_pool=placer.job.node_pool, quota_exhausted=reached[1])

    def _fail(self, group: str, node_id: str, metric: AllocationMetric) -> None:
        self.queued[group] += 1
        self.failed_nodes.setdefault(node_id, set()).add(group)
        known = self.failed.get(group)
        if known is None:
            self.failed[group] = metric
            return
        self.failed[group] = _merged(known, metric)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        evaluation, results, job = self.evaluation, self.results, self.job
        self.results.deployment = self.deployment if self.current is None else None
        updates = list(results.deployment_updates)
        deployment = self.current
        is_busy = any(
            c[key] for c in self.counts.values() for key in ("place", "destructive_update", "in_place_update", "canary")
        )
        if deployment is not None and not is_busy and is_complete(deployment):
            updates.append(
                DeploymentUpdate(
                    deployment_id=deployment.id,
                    status=DEPLOYMENT_SUCCESSFUL,
                    status_description="Deployment completed successfully",
                )
            )
        rolled = self.deployment.task_groups if self.deployment is not None else {}
        deployment_id = self.deployment.id if self.deployment is not None else ""
        return Plan(
            eval_id=evaluation.id,
            namespace=evaluation.namespace,
            job_id=evaluation.job_id,
            priority=job.priority if job is not None else evaluation.priority,
            all_at_once=job is not None and job.all_at_once,
            snapshot_index=self.snapshot.index,
            placements=tuple(self.placements),
            in_place=tuple(
                InPlaceUpdate(
                    id=update.alloc.id,
                    node_id=update.alloc.node_id,
                    job_version=job.version if job is not None else 0,
                    deployment_id=deployment_id if update.alloc.task_group in rolled else "",
                )
                for update in results.in_place
            ),
            attributes=tuple(results.attributes[key] for key in sorted(results.attributes)),
            stops=tuple(self.stops),
            preemptions=tuple(self.preemptions),
            deployment=results.deployment,
            deployment_updates=tuple(updates),
            annotations=PlanAnnotations(
                desired_tg_updates={name: DesiredUpdates(**counts) for name, counts in self.counts.items()},
                preempted_allocs=tuple(stop.id for stop in self.preemptions),
            ),
            now=self.now,
        )

    def _outcome(self, plan: Plan) -> Outcome:
        evaluation = self.evaluation
        ended = replace(
            evaluation,
            status=EVAL_COMPLETE,
            status_description="",
            failed_tg_allocs=dict(sorted(self.failed.items())),
            queued_allocations=dict(sorted(self.queued.items())),
            quota_limit_reached=self.limit_reached,
            deployment_id=self.deployment.id if self.deployment is not None else self.told_deployment,
            plan_annotations=plan.annotations if evaluation.annotate_plan else None,
            snapshot_index=self.snapshot.index,
            modify_time=self.now,
        )
        created = list(self.results.followups)
        nodes = sorted(self.failed_nodes)
        if evaluation.status == EVAL_BLOCKED and evaluation.node_id in self.failed_nodes:
            nodes.remove(evaluation.node_id)
            reblocked = replace(evaluation, snapshot_index=self.snapshot.index, modify_time=self.now)
        else:
            reblocked = None
        for node_id in nodes:
            failed = {name: self.failed[name] for name in sorted(self.failed_nodes[node_id])}
            created.append(
                blocked_eval(
                    evaluation,
                    CapacityWait(failed=failed, node_id=node_id, limit=self.limit_reached),
                    id=self.ids.next("blocked"),
                    now=self.now,
                    snapshot_index=self.snapshot.index,
                    job=self.job,
                )
            )
        if reblocked is not None:
            return Outcome(evaluation=reblocked, created=tuple(created), reblock=reblocked)
        return Outcome(evaluation=ended, created=tuple(created))


def _merged(known: AllocationMetric, metric: AllocationMetric) -> AllocationMetric:
    """What failed on some nodes and what failed on one more: numbers of nodes add up, what ran out somewhere stays.

    Only nodes that were asked for room tell how many nodes were looked at; those beyond a limit were not.
    """
    looked_at = max(known, metric, key=lambda each: each.nodes_evaluated)
    return replace(
        looked_at,
        coalesced_failures=known.coalesced_failures + 1,
        nodes_exhausted=known.nodes_exhausted + metric.nodes_exhausted,
        dimension_exhausted=_added(known.dimension_exhausted, metric.dimension_exhausted),
        class_exhausted=_added(known.class_exhausted, metric.class_exhausted),
        resources_exhausted=_ran_out(known.resources_exhausted, metric.resources_exhausted),
        quota_exhausted=known.quota_exhausted or metric.quota_exhausted,
    )


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def _ran_out(one: Mapping[str, Resources], other: Mapping[str, Resources]) -> dict[str, Resources]:
    """What each task asks of the dimensions that ran out on any of the nodes: 0 of those that never did."""
    found = dict(one)
    for task, asked in other.items():
        before = found.get(task, asked)
        found[task] = replace(
            before,
            cpu=max(before.cpu, asked.cpu),
            memory_mb=max(before.memory_mb, asked.memory_mb),
            disk_mb=max(before.disk_mb, asked.disk_mb),
        )
    return dict(sorted(found.items()))


def canaries_of(percent: int, nodes: int) -> int:
    """How many nodes try a new version first: a share of those that it replaces, rounded up (semantics 11)."""
    return min(nodes, -(-percent * nodes // 100))


def _is_canary(alloc: Allocation, deployment: Deployment, group: TaskGroup) -> bool:
    return (
        alloc.deployment_id == deployment.id
        and alloc.task_group == group.name
        and alloc.deployment_status is not None
        and alloc.deployment_status.canary
        and alloc.client_status not in CLIENT_TERMINAL
        and alloc.desired_status not in SERVER_TERMINAL
    )
