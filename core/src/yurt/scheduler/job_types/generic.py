"""Service and batch jobs: reconcile, place, and say how the evaluation ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

from yurt.scheduler.capacity.limits import Limit, exceeded, take
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.feasibility.masks import is_row_feasible
from yurt.scheduler.ids import SeededIds
from yurt.scheduler.job_types.blocked_evals import CapacityWait, blocked_eval
from yurt.scheduler.placing.group_placer import GroupPlacer, PlacedAlloc
from yurt.scheduler.placing.preemption import evictions
from yurt.scheduler.placing.warm_start import WarmStart
from yurt.scheduler.reconcile.classify import is_unplaced
from yurt.scheduler.reconcile.job import Situation, reconcile
from yurt.scheduler.reconcile.replacements import ran_successfully
from yurt.scheduler.reconcile.reschedule_policy import tracker_after, unplaced
from yurt.scheduler.reconcile.results import PlacementRequest, Results
from yurt.sdk.value import UnixNano, replace
from yurt.state.store import Snapshot
from yurt.state.usage import Usage, is_using
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, RescheduleTracker
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import DesiredUpdates, Evaluation, PlanAnnotations
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job, TaskGroup
from yurt.structs.plan import AllocStop, AttributeUpdate, InPlaceUpdate, Outcome, Placement, Plan
from yurt.structs.questions import alloc_index
from yurt.structs.status import (
    CLIENT_FAILED,
    CLIENT_TERMINAL,
    DEPLOYMENT_ACTIVE,
    EVAL_BLOCKED,
    EVAL_COMPLETE,
    JOB_BATCH,
    SERVER_TERMINAL,
    TRIGGER_RETRY_FAILED_ALLOC,
)


def words_of_room(found: int, asked: str) -> str:
    """`1 of 5 finds room`, `4 of 5 find room`: how many of those that belong together could be placed."""
    return f"{found} of {asked} {'finds' if found == 1 else 'find'} room"


class GenericAttempt:
    """One attempt at an evaluation of a service or batch job."""

    kind: Final = "generic"

    def __init__(self, snapshot: Snapshot, evaluation: Evaluation, *, now: UnixNano, ids: SeededIds, seed: int) -> None:
        self.snapshot = snapshot
        self.evaluation = evaluation
        self.now = now
        self.ids = ids
        self.seed = seed
        self.job = snapshot.jobs.get((evaluation.namespace, evaluation.job_id))
        self.allocs = snapshot.allocs_of_job(evaluation.namespace, evaluation.job_id)
        self.deployment: Deployment | None = None
        self.told_deployment: Deployment | None = None
        """The version's deployment, also one that has ended: the evaluation names it."""
        self.placers: dict[str, GroupPlacer] = {}
        self.broken: dict[str, AllocationMetric] = {}
        """Gangs of which too few members found room: they are left out, and why."""
        self.followups: list[Evaluation] = []
        self.limits_of: Callable[[], Sequence[Limit]] = tuple
        """Makes the limits of the job, as they are before the plan."""
        self.limits: Sequence[Limit] = ()
        self.limit_reached = ""
        self.replacing: dict[str, list[Allocation]] = {}
        """By group what the first placement without room would have replaced: that was free when it was tried."""
        self.wanted: Sequence[PlacementRequest] = ()
        """All that is to be placed, those first that replace others."""
        self.withdrawn: dict[str, int] = {}
        """By group the placements of a job that is placed whole or not at all, when it is not."""
        self.missing: set[str] = set()
        """Volumes that placements would need, and that nobody has registered."""
        self.singly: set[str] = set()
        """Groups of which a run found no more room: what else they get, they get one by one, by preemption."""
        self._first_generation = 0
        self.warm_start = WarmStart(ClusterView(snapshot))
        self._begin(Results())

    @property
    def view(self) -> ClusterView:
        """The cluster with what is placed so far."""
        return self.warm_start.view

    def continue_from(self, warm_start: WarmStart) -> None:
        """Begin where attempts at other jobs have ended; only for a job that `is_new`."""
        assert not self.allocs, "the view of the attempt before lacks the stops of this job"
        self.warm_start = warm_start
        self._first_generation = warm_start.view.generation

    def _begin(self, results: Results) -> None:
        """Nothing is placed yet, and what the reconciler stops is stopped."""
        if self.view.generation != self._first_generation:
            assert not self._first_generation, "what others have placed would be lost"
            self.warm_start = WarmStart(ClusterView(self.snapshot))
        self.placements: list[Placement] = []
        self.preemptions: list[AllocStop] = []
        self.attributes: dict[str, AttributeUpdate] = dict(results.attributes)
        self.failed = {name: replace(metric, coalesced_failures=-1) for name, metric in self.broken.items()}
        self.queued = {} if self.job is None else {group.name: 0 for group in self.job.task_groups}
        self.placers = {name: placer for name, placer in self.placers.items() if name in self.broken}
        self.replacing = {name: allocs for name, allocs in self.replacing.items() if name in self.broken}
        self.singly.clear()
        self.limits = self.limits_of()
        self.stops: list[AllocStop] = [stop.as_plan() for stop in results.stops]
        for stop in results.stops:
            self.view.release(stop.alloc)

    def run(self) -> tuple[Plan, Outcome]:
        """Plan and outcome."""
        latest = self.snapshot.latest_deployment(self.evaluation.namespace, self.evaluation.job_id)
        results = reconcile(self._situation(latest))
        self.followups = results.followups
        current = latest if latest is not None and self._is_current(latest) else None
        self.deployment = results.deployment or (
            current if current is not None and current.status in DEPLOYMENT_ACTIVE else None
        )
        self.told_deployment = results.deployment or current
        self._begin(results)
        if self.job is not None and not self.job.stop:
            self._place_all(self.job, results)
            # A gang without capacity for its minimum gives all of its capacity back, and other groups may need it. So
            # everything is placed again; each round leaves out at least one gang more, which bounds the rounds.
            while self._breaks_gangs(self.job):
                self._begin(results)
                self._place_all(self.job, results)
        plan = self._plan(results)
        return plan, self._outcome(results, plan)

    def _situation(self, latest: Deployment | None) -> Situation:
        return Situation(
            job=self.job,
            evaluation=self.evaluation,
            allocs=self.allocs,
            nodes={alloc.node_id: self.snapshot.nodes.get(alloc.node_id) for alloc in self.allocs},
            deployment=latest,
            now=self.now,
            ids=self.ids,
            fits_in_place=self._fits_in_place,
        )

    def _is_current(self, deployment: Deployment) -> bool:
        job = self.job
        return (
            job is not None
            and not job.stop
            and deployment.job_version == job.version
            and deployment.job_create_index == job.create_index
        )

    def _fits_in_place(self, alloc: Allocation) -> bool:
        assert self.job is not None
        group = self.job.group(alloc.task_group)
        row = self.view.row(alloc.node_id)
        if group is None or row is None or alloc.node_id not in self.snapshot.nodes:
            return False
        return is_row_feasible(self.snapshot, self.job, group, row)

    # -- placing ---------------------------------------------------------------------------------------------------

    def _place_all(self, job: Job, results: Results) -> None:
        # Replacements first: what an allocation gives back beyond what its replacement takes is free for the placements
        # after it.
        self.wanted = wanted = [*results.destructive, *results.place]
        self.queued.update(Counter(map(attrgetter("group"), wanted)))
        left = dict(self.queued)
        at = 0
        while at < len(wanted):
            place = wanted[at]
            length = self._run_length(job, wanted, at) if place.group not in self.failed else 0
            if length:
                placed = self._place_run(job, wanted[at : at + length])
                left[place.group] -= placed
                at += placed
                if placed == length:
                    continue
                # The run ended early: no node has capacity. Preemption works one placement at a time, so the rest of
                # the group does too.
                self.singly.add(place.group)
                place = wanted[at]
            self._place_next(job, place, left)
            at += 1
        assert len(self.placements) + sum(self.queued.values()) == len(wanted), "every request is placed or queued"
        if job.all_at_once and self.failed:
            self._withdraw(wanted, results)

    def _withdraw(self, wanted: list[PlacementRequest], results: Results) -> None:
        """A gang is placed whole or not at all: some found no room, so none is placed and nothing is ended for it."""
        self.withdrawn = Counter(placement.task_group for placement in self.placements)
        self.placements.clear()
        self.preemptions.clear()
        del self.stops[len(results.stops) :]
        self.attributes = dict(results.attributes)
        self.queued = {name: sum(1 for place in wanted if place.group == name) for name in self.queued}

    def _breaks_gangs(self, job: Job) -> bool:
        """Whether gangs have too few members for what was placed of them: all is placed anew without those."""
        found = False
        for group in job.task_groups:
            if group.name not in self.failed or group.name in self.broken:
                continue
            placed = sum(1 for placement in self.placements if placement.task_group == group.name)
            members = self._members(group) + placed
            if members < group.least:
                text = words_of_room(members, f"the {group.least} that must run together")
                self.broken[group.name] = replace(self.failed[group.name], gang=text)
                found = True
        return found

    def _members(self, group: TaskGroup) -> int:
        """The allocations of a gang that count, besides new ones: those that go on running, and that have finished."""
        stopped = {stop.id for stop in self.stops}
        return sum(
            1
            for alloc in self.allocs
            if alloc.task_group == group.name
            and alloc.id not in stopped
            and (self._is_running(alloc) or self._is_finished(alloc))
        )

    def _gangs(self) -> dict[str, int]:
        """How many placements of each gang must be accepted."""
        groups = [group for group in self.job.task_groups if group.gang is not None] if self.job is not None else []
        if not groups:
            return {}
        placed = {placement.task_group for placement in self.placements}
        least = {g.name: g.least - self._members(g) for g in groups if g.name in placed}
        return {name: number for name, number in least.items() if number > 0}

    def _place_next(self, job: Job, place: PlacementRequest, left: dict[str, int]) -> None:
        if place.group in self.failed:
            metric = self.failed[place.group]
            self.failed[place.group] = replace(metric, coalesced_failures=metric.coalesced_failures + 1)
            self._note_unplaced(place)
            return
        if self._place_one(job, place, expected=left[place.group]):
            self.queued[place.group] -= 1
        left[place.group] -= 1

    def _run_length(self, job: Job, wanted: list[PlacementRequest], at: int) -> int:
        """How many equal placements follow that can be placed as one run."""
        first = wanted[at]
        if self.limits:
            return 0
        if first.previous is not None or first.group in self.singly or not self._placer(job, first.group).can_run:
            return 0
        length = 0
        for place in islice(wanted, at, None):
            if place.previous is not None or place.group != first.group:
                break
            length += 1
        return length

    def _place_run(self, job: Job, places: list[PlacementRequest]) -> int:
        """Place as many as fit of some equal placements; the answer is how many."""
        name = places[0].group
        placer = self._placer(job, name)
        rows, metrics = placer.run(len(places))
        if not rows:
            return 0
        for other_name, other in self.placers.items():
            if other_name != name:
                other.placed_run_elsewhere(rows, name)
        deployment = self.deployment
        deployment_id = deployment.id if deployment is not None and name in deployment.task_groups else ""
        node_ids, node_names = self.view.rows.ids, self._names_of(rows)
        ids = self.ids.next_many("alloc", len(rows))
        plain = Placement(
            id="",
            name="",
            task_group=name,
            node_id="",
            job_version=job.version,
            resources=placer.ask.plain.resources,
            deployment_id=deployment_id,
        )
        canary = replace(plain, deployment_status=AllocDeploymentStatus(canary=True))
        self.placements.extend(
            [
                replace(
                    canary if place.is_canary else plain,
                    id=alloc_id,
                    name=place.name,
                    node_id=node_ids[row],
                    node_name=node_names[row],
                    metrics=metric,
                )
                for alloc_id, place, row, metric in zip(ids, places, rows, metrics, strict=False)
            ]
        )
        self.queued[name] -= len(rows)
        return len(rows)

    def _names_of(self, rows: Sequence[int]) -> Mapping[int, str]:
        """The names of these rows' nodes, perhaps with others: they are looked up once for all attempts."""
        known: dict[int, str] = self.view.rows.names
        unknown = list(set(rows).difference(known))
        if unknown:
            ids = self.view.rows.ids
            nodes = self.snapshot.nodes.rows([ids[row] for row in unknown])
            known.update((row, node.name) for row, node in zip(unknown, nodes, strict=True))
        return known

    def _place_one(self, job: Job, place: PlacementRequest, *, expected: int) -> bool:
        older = place.job if place.job is not None and self._is_known(place.job) else None
        job = older or job
        placer = self._placer(job, place.group) if older is None else self._older_placer(job, place.group)
        previous = place.previous
        if place.stops and previous is not None:
            self.view.release(previous)
            if self._is_running(previous):
                placer.count(previous, -1)
                placer.recount()
        reached = self._reached(placer, previous if place.stops else None)
        found = None
        if not reached:
            penalised = self._penalised(place)
            found = placer.place(
                expected=expected,
                penalised=penalised,
                preferred=self._preferred(job, place),
                index=alloc_index(place.name),
            )
        if found is None:
            self.failed[place.group] = replace(placer.failure(), quota_exhausted=reached)
            self.missing.update(placer.volumes.missing(alloc_index(place.name)))
            if place.stops and previous is not None:
                self.replacing[place.group] = [previous]
                self.view.restore(previous)
                if self._is_running(previous):
                    placer.count(previous, 1)
            self._note_unplaced(place)
            return False
        self._take(place, found, job=job)
        return True

    def _take(self, place: PlacementRequest, found: PlacedAlloc, *, job: Job) -> None:
        """Note a placement, with what it ends."""
        row, grant, metrics, preempted = found
        is_older = job is not self.job
        previous, name = place.previous, place.group
        if self.limits:
            self._count_limits(grant.usage, previous if place.stops else None)
        for other_name, other in self.placers.items():
            if other_name != name or is_older:
                other.placed_elsewhere(row, name)
        if place.stops and previous is not None:
            self.stops.append(AllocStop(id=previous.id, node_id=previous.node_id, description=place.stops))
        deployment = None if is_older else self.deployment
        alloc_id = self.ids.next("alloc")
        self.preemptions.extend(evictions(preempted, alloc_id))
        self.placements.append(
            Placement(
                id=alloc_id,
                name=place.name,
                task_group=name,
                node_id=self.view.rows.ids[row],
                node_name=self.view.node(row).name,
                job_version=job.version,
                resources=grant.resources,
                metrics=metrics,
                deployment_id=deployment.id if deployment is not None and name in deployment.task_groups else "",
                deployment_status=AllocDeploymentStatus(canary=True) if place.is_canary else None,
                previous_allocation=previous.id if previous is not None else "",
                reschedule_tracker=self._tracker(place),
                preempted_allocations=tuple(victim.id for victim in preempted),
            )
        )

    def _reached(self, placer: GroupPlacer, replaced: Allocation | None) -> tuple[str, ...]:
        """How one more allocation would exceed a limit; what it replaces is given back."""
        back = self.view.usage_of(replaced) if replaced is not None and is_using(replaced) else None
        if back is not None:
            take(self.limits, back, -1)
        found = exceeded(self.limits, placer.ask.plain.usage)
        if back is not None:
            take(self.limits, back)
        if found is None:
            return ()
        self.limit_reached = found[0]
        return found[1]

    def _count_limits(self, usage: Usage, replaced: Allocation | None) -> None:
        take(self.limits, usage)
        if replaced is not None and is_using(replaced):
            take(self.limits, self.view.usage_of(replaced), -1)

    def _tracker(self, place: PlacementRequest) -> RescheduleTracker | None:
        """The history that it carries on; what a new version replaces begins anew."""
        if place.previous is None:
            return None
        if place.is_rescheduled:
            return tracker_after(place.previous, self.now)
        return None if place.stops else place.previous.reschedule_tracker

    def _placer(self, job: Job, name: str) -> GroupPlacer:
        placer = self.placers.get(name)
        if placer is None:
            group = job.group(name)
            assert group is not None
            placer = self.placers[name] = self.warm_start.placer(job, group) or self._new_placer(job, group)
        return placer

    def _is_known(self, job: Job) -> bool:
        """Whether the state still has this version of the job."""
        return self.snapshot.version(job.namespace, job.id, job.version) is not None

    def _older_placer(self, job: Job, name: str) -> GroupPlacer:
        """For one placement of an older version; what it looks at is of this moment."""
        group = job.group(name)
        assert group is not None
        return self._new_placer(job, group)

    def _new_placer(self, job: Job, group: TaskGroup) -> GroupPlacer:
        """A placer that knows of what runs and of what is placed so far."""
        placer = GroupPlacer(self.view, job, group, seed=self.seed, own=list(self._running()))
        if placer.distinct.is_used and self.placements:
            for placement in self.placements:
                row = self.view.row(placement.node_id)
                if row is not None:
                    placer.distinct.count((row,), placement.task_group)
            placer.recount()
        return placer

    def _running(self) -> Iterable[Allocation]:
        """The job's allocations that the plan leaves running."""
        stopped = {stop.id for stop in self.stops}
        for alloc in self.allocs:
            if self._is_running(alloc) and alloc.id not in stopped:
                yield alloc

    def _is_running(self, alloc: Allocation) -> bool:
        return alloc.client_status not in CLIENT_TERMINAL and alloc.desired_status not in SERVER_TERMINAL

    def _is_finished(self, alloc: Allocation) -> bool:
        """Whether it has done its work in this version of a batch job."""
        job = self.job
        is_own = job is not None and alloc.job is not None and alloc.job.version == job.version
        return is_own and self.evaluation.type == JOB_BATCH and ran_successfully(alloc)

    def _penalised(self, place: PlacementRequest) -> frozenset[int]:
        """The nodes on which the allocation, or one before it, failed: whatever it is replaced for."""
        previous = place.previous
        if previous is None:
            return frozenset()
        tracker = previous.reschedule_tracker
        nodes = [event.prev_node_id for event in (tracker.events if tracker else ())]
        if place.is_rescheduled or previous.client_status == CLIENT_FAILED:
            nodes.append(previous.node_id)
        return frozenset(row for node in nodes if (row := self.view.row(node)) is not None)

    def _preferred(self, job: Job, place: PlacementRequest) -> int | None:
        group = job.group(place.group)
        if place.previous is None or place.is_rescheduled or group is None or not group.ephemeral_disk.sticky:
            return None
        return self.view.row(place.previous.node_id)

    def _note_unplaced(self, place: PlacementRequest) -> None:
        """One that failed is stopped also when nothing can replace it yet; evaluations try again until it has been."""
        previous = place.previous
        if not place.is_rescheduled or previous is None:
            return
        if previous.desired_status not in SERVER_TERMINAL:
            self.stops.append(AllocStop(id=previous.id, node_id=previous.node_id, description=place.stops))
        if not is_unplaced(previous):
            known = self.attributes.get(previous.id) or AttributeUpdate(id=previous.id, node_id=previous.node_id)
            self.attributes[previous.id] = replace(known, reschedule_tracker=unplaced(previous))

    # -- the end ---------------------------------------------------------------------------------------------------

    def _plan(self, results: Results) -> Plan:
        evaluation = self.evaluation
        deployment_id = self.deployment.id if self.deployment is not None else ""
        version = self.job.version if self.job is not None else 0
        in_place = tuple(
            InPlaceUpdate(
                id=update.alloc.id,
                node_id=update.alloc.node_id,
                job_version=version,
                deployment_id=deployment_id if self._is_rolled_out(update.alloc.task_group) else "",
            )
            for update in results.in_place
        )
        return Plan(
            eval_id=evaluation.id,
            namespace=evaluation.namespace,
            job_id=evaluation.job_id,
            priority=self.job.priority if self.job is not None else evaluation.priority,
            all_at_once=self.job is not None and self.job.all_at_once,
            gangs=self._gangs(),
            snapshot_index=self.snapshot.index,
            placements=tuple(self.placements),
            in_place=in_place,
            attributes=tuple(self.attributes[key] for key in sorted(self.attributes)),
            stops=tuple(self.stops),
            preemptions=tuple(self.preemptions),
            deployment=results.deployment,
            deployment_updates=tuple(results.deployment_updates),
            annotations=PlanAnnotations(
                desired_tg_updates=self._desired(results),
                preempted_allocs=tuple(stop.id for stop in self.preemptions),
            ),
            now=self.now,
        )

    def _desired(self, results: Results) -> dict[str, DesiredUpdates]:
        """The counts of each group, with the allocations that it preempts."""
        preempted = Counter(p.task_group for p in self.placements for _ in p.preempted_allocations)
        return {name: replace(counts, preemptions=preempted[name]) for name, counts in results.desired.items()}

    def _is_rolled_out(self, group: str) -> bool:
        return self.deployment is not None and group in self.deployment.task_groups

    def _outcome(self, results: Results, plan: Plan) -> Outcome:
        evaluation = self.evaluation
        created = list(results.followups)
        ended = replace(
            evaluation,
            status=EVAL_COMPLETE,
            status_description="",
            failed_tg_allocs=dict(sorted(self.failed.items())),
            queued_allocations=dict(sorted(self.queued.items())),
            quota_limit_reached=self.limit_reached,
            deployment_id=self.told_deployment.id if self.told_deployment is not None else evaluation.deployment_id,
            plan_annotations=plan.annotations if evaluation.annotate_plan else None,
            snapshot_index=self.snapshot.index,
            modify_time=self.now,
        )
        is_delayed = evaluation.wait_until <= 0 and any(
            later.triggered_by == TRIGGER_RETRY_FAILED_ALLOC for later in results.followups
        )
        if not self.failed or (is_delayed and evaluation.status != EVAL_BLOCKED):
            return Outcome(evaluation=ended, created=tuple(created))
        classes, is_escaped = self._eligibility()
        if evaluation.status == EVAL_BLOCKED:
            reblocked = replace(
                evaluation,
                class_eligibility=classes,
                escaped_computed_class=is_escaped,
                quota_limit_reached=self.limit_reached,
                missing_non_node_resources=tuple(sorted(self.missing)),
                snapshot_index=self.snapshot.index,
                failed_tg_allocs=ended.failed_tg_allocs,
                queued_allocations=ended.queued_allocations,
                modify_time=self.now,
            )
            return Outcome(evaluation=reblocked, created=tuple(created), reblock=reblocked)
        waiting = blocked_eval(
            evaluation,
            CapacityWait(
                failed=ended.failed_tg_allocs,
                classes=classes,
                is_escaped=is_escaped,
                limit=self.limit_reached,
                missing=tuple(sorted(self.missing)),
            ),
            id=self.ids.next("blocked"),
            now=self.now,
            snapshot_index=self.snapshot.index,
            job=self.job,
        )
        return Outcome(evaluation=replace(ended, blocked_eval=waiting.id), created=(*created, waiting))

    def _eligibility(self) -> tuple[dict[str, bool], bool]:
        classes: dict[str, bool] = {}
        is_escaped = False
        for name in self.failed:
            assert self.job is not None
            placer = self._placer(self.job, name)
            is_escaped |= placer.feasible.is_escaped or placer.volumes.is_used
            for computed, is_eligible in placer.eligible_classes().items():
                classes[computed] = classes.get(computed, False) or is_eligible
        return dict(sorted(classes.items())), is_escaped
