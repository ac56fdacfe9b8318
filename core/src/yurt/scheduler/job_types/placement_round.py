"""One placement round: each request of the reconciler is placed or queued, in order.

Requests that replace allocations come first: what an allocation gives back beyond what its replacement takes is free
for the requests after it. Equal requests that follow each other are placed as one run (`placing.runs`). All others are
placed one after another, and so is what a run leaves over, because preemption picks victims for one placement at a
time. After the first request of a group that finds no node, the others of the group are queued without a look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from operator import attrgetter

from yurt.scheduler.capacity.limits import LimitCheck, LimitedGrants
from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.group_placers import GroupPlacers
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.scheduler.placing.group_placer import PlacedAlloc
from yurt.scheduler.reconcile.classify import is_unplaced
from yurt.scheduler.reconcile.reschedule_policy import tracker_after, unplaced
from yurt.scheduler.reconcile.results import PlacementRequest
from yurt.sdk.value import replace
from yurt.state.namespace_usage import counted
from yurt.structs.alloc import AllocDeploymentStatus, RescheduleTracker
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop, Placement
from yurt.structs.predicates import alloc_index, is_terminal
from yurt.structs.queueing.requeue import requeued_tracker
from yurt.structs.status import CLIENT_FAILED, SERVER_TERMINAL


class PlacementRound:
    """Places the requests of one job; each round starts with a new draft."""

    def __init__(
        self, context: AttemptContext, job: Job, draft: PlanDraft, *, placers: GroupPlacers, limits: LimitCheck
    ) -> None:
        self._context = context
        self._job = job
        self._draft = draft
        self._placers = placers
        self._limits = limits
        self._singly: set[str] = set()
        """Groups of which a run found no more capacity: further allocations are placed singly, by preemption."""

    def run(self, requests: Sequence[PlacementRequest]) -> None:
        """Place the requests; unplaceable ones are queued."""
        draft = self._draft
        draft.queued.update(_by_group(requests))
        remaining = dict(draft.queued)
        at = 0
        while at < len(requests):
            request = requests[at]
            length = self._run_length(requests, at) if request.group not in draft.failed else 0
            if length:
                placed = self._place_run(requests[at : at + length])
                remaining[request.group] -= placed
                at += placed
                if placed == length:
                    continue
                # The run ended early: no node has capacity. Preemption works one placement at a time, so the rest of
                # the group does too. (A run never ends early for a limit, which bounds its length.)
                self._singly.add(request.group)
                request = requests[at]
            self._place_next(request, remaining)
            at += 1
        assert len(draft.placements) + sum(draft.queued.values()) == len(requests), "each request is placed or queued"
        assert not draft.queued or min(draft.queued.values()) >= 0, draft.queued
        if self._job.all_at_once and draft.failed:
            draft.withdraw()
            draft.queued = {name: sum(1 for request in requests if request.group == name) for name in draft.queued}

    def _run_length(self, requests: Sequence[PlacementRequest], at: int) -> int:
        """The number of equal consecutive requests that can be placed as one run."""
        first = requests[at]
        # A replacement frees capacity, so it is not part of a run.
        if first.previous is not None or first.group in self._singly:
            return 0
        placer = self._placers.of(self._job, first.group, self._draft)
        if not placer.can_run:
            return 0
        length = 0
        for request in islice(requests, at, None):
            if request.previous is not None or request.group != first.group:
                break
            length += 1
        return self._limits.fitting(counted(placer.ask.plain.usage), length) if self._limits.current else length

    def _place_run(self, requests: Sequence[PlacementRequest]) -> int:
        """Place equal requests; returns the number placed."""
        name, draft, placers = requests[0].group, self._draft, self._placers
        placer = placers.of(self._job, name, draft)
        rows, metrics = placer.run(len(requests))
        if not rows:
            return 0
        assert len(rows) <= len(requests), (len(rows), len(requests))
        for other in placers.others(name):
            other.placed_run_elsewhere(rows, name)
        node_ids, node_names = placers.view.rows.ids, placers.names_of(rows)
        ids = self._context.ids.next_many("alloc", len(rows))
        assert len(ids) == len(rows), (len(ids), len(rows))
        # One placement is made as a pattern and copied: the copies share objects, which the columns, the plan check and
        # the log recognise by their identity.
        plain = Placement(
            id="",
            name="",
            task_group=name,
            node_id="",
            job_version=self._job.version,
            resources=placer.ask.plain.resources,
            deployment_id=draft.deployment_id(name),
        )
        canary = replace(plain, deployment_status=AllocDeploymentStatus(canary=True))
        draft.placements.extend(
            [
                replace(
                    canary if request.is_canary else plain,
                    id=alloc_id,
                    name=request.name,
                    node_id=node_ids[row],
                    node_name=node_names[row],
                    metrics=metric,
                )
                for alloc_id, request, row, metric in zip(ids, requests, rows, metrics, strict=False)
            ]
        )
        draft.queued[name] -= len(rows)
        if self._limits.is_counting:
            self._limits.take(counted(placer.ask.plain.usage), len(rows))
        return len(rows)

    def _place_next(self, request: PlacementRequest, remaining: dict[str, int]) -> None:
        draft, group = self._draft, request.group
        if group in draft.failed:
            metric = draft.failed[group]
            draft.failed[group] = replace(metric, coalesced_failures=metric.coalesced_failures + 1)
            self._note_unplaced(request)
            return
        if self._place_one(request, expected=remaining[group]):
            draft.queued[group] -= 1
        remaining[group] -= 1

    def _place_one(self, request: PlacementRequest, *, expected: int) -> bool:
        draft, placers = self._draft, self._placers
        # A lost allocation is replaced in its own version while canaries try the newest, if that version is still kept.
        older = request.job if request.job is not None and self._has_version(request.job) else None
        job = older or self._job
        placer = (placers.of if older is None else placers.of_older)(job, request.group, draft)
        replaced = request.previous if request.stops else None
        # The capacity of the replaced allocation is free for the placement; it is taken back if none is found.
        if replaced is not None:
            placers.view.release(replaced)
            if not is_terminal(replaced):
                placer.count(replaced, -1)
                placer.recount()
        refused = self._limits.refuses(placer.ask.least_amounts, replaced) if self._limits.current else ()
        placer.limits = LimitedGrants(self._limits, replaced) if self._limits.current else None
        placed = None
        if not refused:
            placed = placer.place(
                expected=expected,
                penalised=self._penalised(request),
                preferred=self._preferred(job, request),
                index=alloc_index(request.name),
            )
        elif self._limits.guarantees is not None:
            # Borrowers use up a limit above the guarantee: capacity reclaimed from them becomes available under it.
            placed = placer.reclaim(index=alloc_index(request.name))
        if placed is not None:
            self._note_placed(request, placed, older)
            return True
        refused = refused or (placer.limits.reached() if placer.limits is not None else ())
        draft.failed[request.group] = replace(placer.failure(), quota_exhausted=refused)
        draft.missing.update(placer.volumes.missing(alloc_index(request.name)))
        if replaced is not None:
            draft.replacing[request.group] = [replaced]
            placers.view.restore(replaced)
            if not is_terminal(replaced):
                placer.count(replaced, 1)
        self._note_unplaced(request)
        return False

    def _note_placed(self, request: PlacementRequest, placed: PlacedAlloc, older: Job | None) -> None:
        draft, view, group = self._draft, self._placers.view, request.group
        if self._limits.is_counting:
            self._limits.take(counted(placed.grant.usage))
            stopped = (request.previous,) if request.stops and request.previous is not None else ()
            for alloc in (*stopped, *placed.preempted):
                self._limits.give_back(alloc)
            self._limits.note_reclaim(frozenset(placed.reclaimed_for.values()))
        for name, other in self._placers.by_group.items():
            if name != group or older is not None:
                other.placed_elsewhere(placed.row, group)
        draft.add(
            request,
            placed,
            view.node(placed.row),
            version=self._job.version if older is None else older.version,
            deployment=draft.deployment if older is None else None,
            tracker=self._tracker(request),
        )

    def _has_version(self, job: Job) -> bool:
        """Whether the state still has this job version."""
        return self._context.snapshot.version(job.namespace, job.id, job.version) is not None

    def _tracker(self, request: PlacementRequest) -> RescheduleTracker | None:
        """The replacement's reschedule history; empty for a replacement by a new version."""
        if request.previous is None:
            return None
        if request.is_requeued:
            return requeued_tracker(request.previous, self._context.now)
        if request.is_rescheduled:
            return tracker_after(request.previous, self._context.now)
        return None if request.stops else request.previous.reschedule_tracker

    def _penalised(self, request: PlacementRequest) -> frozenset[int]:
        """The nodes on which the allocation or a predecessor failed, whatever the reason of the replacement."""
        previous = request.previous
        if previous is None:
            return frozenset()
        tracker = previous.reschedule_tracker
        nodes = [event.prev_node_id for event in (tracker.events if tracker else ())]
        if request.is_rescheduled or previous.client_status == CLIENT_FAILED:
            nodes.append(previous.node_id)
        return frozenset(row for node in nodes if (row := self._placers.view.row(node)) is not None)

    def _preferred(self, job: Job, request: PlacementRequest) -> int | None:
        """The node with the data of a sticky disk, unless the allocation failed there."""
        group = job.group(request.group)
        if request.previous is None or request.is_rescheduled or group is None or not group.ephemeral_disk.sticky:
            return None
        return self._placers.view.row(request.previous.node_id)

    def _note_unplaced(self, request: PlacementRequest) -> None:
        """Record an unplaced replacement: a failed allocation stops even so, and evaluations retry until it is
        replaced."""
        previous, draft = request.previous, self._draft
        if not request.is_rescheduled or previous is None:
            return
        if previous.desired_status not in SERVER_TERMINAL:
            draft.stops.append(AllocStop(id=previous.id, node_id=previous.node_id, description=request.stops))
        if not is_unplaced(previous):
            draft.change(previous, reschedule_tracker=unplaced(previous))


def _by_group(requests: Sequence[PlacementRequest]) -> Mapping[str, int]:
    """The number of requests by group."""
    # Most evaluations place one allocation: a counter would cost more than the addition.
    return {requests[0].group: 1} if len(requests) == 1 else Counter(map(attrgetter("group"), requests))
