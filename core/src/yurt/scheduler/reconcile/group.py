"""Reconciles one group of a service or batch job (docs/explanation/reconciling.md)."""

from __future__ import annotations

from yurt.scheduler.reconcile import results as why
from yurt.scheduler.reconcile.alloc_names import NameIndex, index_of
from yurt.scheduler.reconcile.canaries import Canaries
from yurt.scheduler.reconcile.classify import Classified, classify_all, has_each_once, strategy_of
from yurt.scheduler.reconcile.disconnects import Disconnects
from yurt.scheduler.reconcile.group_context import GroupContext
from yurt.scheduler.reconcile.group_results import GroupResults
from yurt.scheduler.reconcile.group_rollout import GroupRollout
from yurt.scheduler.reconcile.replacements import ReplacementBasis, Replacements, split
from yurt.scheduler.reconcile.results import GangShortfall, InPlaceRequest, PlacementRequest, Results, StopRequest
from yurt.scheduler.reconcile.scale_down import scale_down_order
from yurt.scheduler.reconcile.update_kind import is_destructive, is_older, is_replaced_elsewhere
from yurt.structs.alloc import Allocation
from yurt.structs.predicates import is_terminal
from yurt.structs.status import (
    CLIENT_COMPLETE,
    CLIENT_LOST,
    DESIRED_EVICT,
    DESIRED_RUN,
    JOB_BATCH,
    NODE_READY,
    SERVER_TERMINAL,
    TRIGGER_PREEMPTION,
    TRIGGER_RETRY_FAILED_ALLOC,
)


def reconcile_group(context: GroupContext, of_job: Results, allocs: list[Allocation]) -> bool:
    """Add one group's results to those of its job; returns whether the group is complete."""
    rollout, results = GroupRollout(context), GroupResults(context, of_job)
    # Most evaluations of new jobs end here: without allocations no later step has anything to decide.
    if not allocs and rollout.state is None:
        return _place_new_group(context, rollout, results)
    return GroupReconciler(context, rollout, results).run(allocs)


def _place_new_group(context: GroupContext, rollout: GroupRollout, results: GroupResults) -> bool:
    """Place a group without allocations and deployment."""
    group = context.group
    names = NameIndex(context.job.id, group.name, group.count, ()).next(group.count)
    requests = rollout.permitted([PlacementRequest(group.name, name) for name in names], is_canarying=False)
    results.counts["place"] += len(requests)
    results.of_job.place.extend(requests)
    rollout.begin((), results.of_job, updated=0, placed=len(names), canarying=False)
    results.end()
    return not names


class GroupReconciler:
    """The comparison of one group with its allocations."""

    def __init__(self, context: GroupContext, rollout: GroupRollout, results: GroupResults) -> None:
        self.context = context
        self.job, self.group = context.job, context.group
        self.is_batch = context.job.type == JOB_BATCH
        self.rollout = rollout
        self.results = results
        self.canaries = Canaries(context, rollout, results)
        self.disconnects = Disconnects(context, results)
        self.used_names: set[str] = set()
        """The names of allocations that stay, and those assigned so far."""

    def run(self, allocs: list[Allocation]) -> bool:
        """Reconcile; returns whether the group is complete. docs/explanation/reconciling.md shows the steps."""
        results, rollout, canaries, disconnects = self.results, self.rollout, self.canaries, self.disconnects
        # Canaries without a deployment go first: every later step would count them as ordinary allocations.
        allocs = self._relevant(allocs)
        allocs = canaries.drop_obsolete(allocs)
        classes = classify_all(allocs, self.context.nodes, is_batch=self.is_batch, now=self.context.now)
        assert has_each_once(classes, allocs), (self.group.name, len(allocs))
        self.results.counts["ignore"] += len(classes.ignored)
        # Unknown allocations with a replacement leave before any count: they do not count until their client returns,
        # whatever happened to the replacement.
        away = disconnects.take_out_replaced(classes.untainted)
        present = self._split(classes.untainted)
        for alloc in present.again:
            if not is_terminal(alloc):
                self.results.stop(alloc, why.NOT_NEEDED_RECONNECT)
        # Returning allocations are decided before counts are made: the losers leave all sets, so that no pair of an
        # original and its replacement counts twice.
        disconnects.reconnect(classes, present, away, canary_ids=canaries.unpromoted)
        lost = [*classes.lost, *classes.expiring]
        away.extend(disconnects.disconnect(classes.disconnecting))
        is_waiting = disconnects.wait_for_clients(lost, allocs)
        # Canaries run beyond the count under names of others, so they leave the sets before names are indexed.
        leaving = canaries.take_out_leaving(classes, present, lost, away)
        absent = [alloc for alloc in (*lost, *away) if alloc not in leaving]
        absent += canaries.members(disconnects.awaited(allocs))
        names = NameIndex(
            self.job.id,
            self.group.name,
            self.group.count,
            [*present.present, *classes.migrate, *present.now, *classes.disconnecting, *absent],
        )
        # Scale down before replacing: allocations beyond the count get neither a replacement nor a follow-up.
        retained = self._scale_down(present.present, classes.migrate, lost, names)
        self._reschedule_later(present.later, retained)
        self._drop_unneeded(present.now, retained, classes, names)
        destructive, in_place = self._updates(retained)
        is_canarying = canaries.place(names, destructive, retained, leaving, is_waiting=is_waiting)
        # Missing allocations use the update budget first: a version whose allocations keep failing must not replace
        # more of the version that works.
        placing = 0 if is_waiting else len(present.now) + self._missing(retained, classes, present.now)
        allowed = rollout.budget([*retained, *present.now], destructive, classes.migrate, is_canarying=is_canarying)
        budget = max(0, allowed - placing)
        assert not is_canarying or budget == 0 or not destructive, (self.group.name, "canaries first, the rest waits")
        # Canaries are a gang of their own until the promotion.
        members = [alloc for alloc in retained if alloc.id not in canaries.surplus(retained)]
        renewed = self._renewed_with_gang(placing, destructive, members, classes) if allowed else frozenset()
        chosen = self._chosen(destructive, budget, renewed)
        # A name is free for a replacement as soon as its holder is replaced in this plan; names are given out in the
        # order placements, updates, migrations, and none twice.
        replaced_ids = {alloc.id for alloc in chosen} | canaries.surplus(retained)
        self.used_names = {alloc.name for alloc in retained if alloc.id not in replaced_ids}
        place = [] if is_waiting else self._placements(retained, classes, present.now, absent, names)
        permitted = rollout.permitted(place, is_canarying=is_canarying)
        ended = self._ended_members(members) if chosen and self.group.gang is not None else set()
        renewing = [alloc for alloc in chosen if alloc.id in ended]  # each makes the gang larger
        least, is_held = self._least(permitted, has_own=bool(renewing)), len(permitted) < len(place)
        shortfall = self._gang_shortfall(least - len(permitted), chosen, members, classes, is_held=is_held)
        if shortfall and (permitted or renewing):
            results.of_job.gang_shortfalls[self.group.name] = GangShortfall(shortfall, least)
            place = permitted = []
            chosen = self._without_renewed(chosen, renewing)
        self._place(permitted, present.now)
        self._update(chosen, names)
        self._migrate(classes.migrate, names)
        updated = len(destructive) + len(in_place)
        rollout.begin(allocs, results.of_job, updated=updated, placed=len(place), canarying=is_canarying)
        results.end()
        is_moving = bool(classes.migrate or present.now or present.later or rollout.holds_failed(retained))
        return not (destructive or in_place or place or shortfall or is_moving or classes.reconnecting or is_canarying)

    # -- which allocations take part -------------------------------------------------------------------------------

    def _relevant(self, allocs: list[Allocation]) -> list[Allocation]:
        if not self.is_batch:
            return allocs
        relevant = [alloc for alloc in allocs if not is_terminal(alloc) or not is_older(alloc, self.job)]
        self.results.counts["ignore"] += len(allocs) - len(relevant)
        return relevant

    def _split(self, untainted: list[Allocation]) -> Replacements:
        return split(
            untainted,
            is_batch=self.is_batch,
            eval_id=self.context.evaluation.id,
            now=self.context.now,
            basis=ReplacementBasis(self.context.deployment, self.context.nodes, self.context.waiting_evals),
        )

    def _reschedule_later(self, later: list[tuple[Allocation, int]], retained: list[Allocation]) -> None:
        """Schedule follow-ups for allocations that are replaced later."""
        staying = {alloc.id for alloc in retained}
        later[:] = [pair for pair in later if pair[0].id in staying]
        self.results.counts["reschedule_later"] += len(later)
        preempted = [pair for pair in later if pair[0].desired_status == DESIRED_EVICT]
        self.results.follow_up_and_note(preempted, TRIGGER_PREEMPTION)
        failed = [pair for pair in later if pair[0].desired_status != DESIRED_EVICT]
        self.results.follow_up_and_note(failed, TRIGGER_RETRY_FAILED_ALLOC)

    # -- counts ----------------------------------------------------------------------------------------------------

    def _scale_down(
        self,
        present: list[Allocation],
        migrate: list[Allocation],
        lost: list[Allocation],
        names: NameIndex,
    ) -> list[Allocation]:
        """Stop lost and surplus allocations; returns the rest, including canaries."""
        for alloc in lost:
            self.results.stop(alloc, why.LOST, CLIENT_LOST, self.disconnects.waiting.get(alloc.id, ""))
        extra_canaries = self.canaries.surplus(present)
        counted = [alloc for alloc in present if alloc.id not in extra_canaries]
        # Migrating allocations count: their replacements take their places, so others would be surplus after the drain.
        surplus = len(counted) + len(migrate) - self.group.count
        if surplus <= 0:
            return present
        promoted = self.canaries.ids if self.rollout.is_promoted else ()
        order = scale_down_order(counted, migrate, names, promoted)
        assert len(order) - surplus == self.group.count, (self.group.name, len(order), surplus)
        stopped_ids, staying = set(), {alloc.name for alloc in order[surplus:]}
        for alloc in order[:surplus]:
            if is_terminal(alloc):
                self.results.counts["ignore"] += 1
            else:
                self.results.stop(alloc, why.NOT_NEEDED)
            # The name is free again, unless another staying allocation has it too.
            if alloc.name not in staying:
                names.free(alloc)
            stopped_ids.add(alloc.id)
        assert len(stopped_ids) == surplus, (self.group.name, len(stopped_ids), surplus, "exactly the surplus stops")
        migrate[:] = [alloc for alloc in migrate if alloc.id not in stopped_ids]
        return [alloc for alloc in present if alloc.id not in stopped_ids]

    def _drop_unneeded(
        self, now: list[Allocation], retained: list[Allocation], classes: Classified, names: NameIndex
    ) -> None:
        """Drop failed allocations beyond the count, which need no replacement; their names become free."""
        extra_canaries = self.canaries.surplus(retained)
        counted = sum(1 for alloc in retained if alloc.id not in extra_canaries)
        capacity = max(0, self.group.count - counted - len(classes.migrate) - len(classes.disconnecting))
        now.sort(key=lambda alloc: (index_of(alloc), alloc.create_index, alloc.id))
        needed = {alloc.name for alloc in (*retained, *classes.migrate, *classes.disconnecting, *now[:capacity])}
        for alloc in now[capacity:]:
            if alloc.name not in needed:
                names.free(alloc)
        self.results.counts["ignore"] += len(now[capacity:])
        del now[capacity:]
        assert len(now) <= capacity, (self.group.name, len(now), capacity, "no replacement beyond the count")

    def _updates(self, retained: list[Allocation]) -> tuple[list[Allocation], list[Allocation]]:
        """Allocations to replace and to update in place; the others are current."""
        destructive, in_place = [], []
        for alloc in retained:
            old = alloc.job
            if old is not None and old.version == self.job.version and old.create_index == self.job.create_index:
                self.results.counts["ignore"] += 1
            elif old is None or is_destructive(old, self.job, self.group.name):
                destructive.append(alloc)
            elif is_terminal(alloc) or not self._is_reachable(alloc):
                self.results.counts["ignore"] += 1
            elif self.context.fits_in_place(alloc):
                in_place.append(alloc)
            else:
                destructive.append(alloc)
        self.results.counts["in_place_update"] += len(in_place)
        self.results.of_job.in_place.extend(InPlaceRequest(alloc) for alloc in in_place)
        return destructive, in_place

    def _is_reachable(self, alloc: Allocation) -> bool:
        """Whether its node accepts updates; others are evaluated again when their node returns."""
        node = self.context.nodes.get(alloc.node_id)
        return node is not None and node.status == NODE_READY

    # -- placing ---------------------------------------------------------------------------------------------------

    def _placements(
        self,
        retained: list[Allocation],
        classes: Classified,
        now: list[Allocation],
        absent: list[Allocation],
        names: NameIndex,
    ) -> list[PlacementRequest]:
        """Replacements for failed, lost and disconnected allocations; new allocations up to the count."""
        group = self.group.name
        places = [self._replacement(alloc, names) for alloc in now]
        missing = self._missing(retained, classes, now)
        extra_canaries = self.canaries.surplus(retained)
        served = {alloc.name for alloc in (*retained, *now, *classes.migrate) if alloc.id not in extra_canaries}
        vacant = {
            alloc.name: alloc
            for alloc in sorted(absent, key=lambda alloc: (alloc.create_index, alloc.id))
            if alloc.name not in served and not names.is_above(alloc)
        }
        for alloc in sorted(vacant.values(), key=index_of)[:missing]:
            places.append(
                PlacementRequest(group, self._name(alloc, names), alloc, job=self.canaries.version_for(alloc))
            )
        places.extend(PlacementRequest(group, name) for name in names.next(max(0, missing - len(vacant))))
        return places

    def _least(self, requests: list[PlacementRequest], *, has_own: bool) -> int:
        """The number of members that must run together with the requested ones, by their versions; 0 without a gang.

        While canaries try a version, others are replaced by the version before, which may have another minimum.
        `has_own`: members of this version are placed besides the requested ones.
        """
        groups = [each.job.group(self.group.name) for each in requests if each.job is not None]
        has_own = has_own or any(each.job is None for each in requests)
        known = [group for group in (*groups, self.group if has_own else None) if group is not None]
        return min(self.group.count, max((group.least for group in known), default=0))

    def _gang_shortfall(
        self, needed: int, chosen: list[Allocation], members: list[Allocation], classes: Classified, *, is_held: bool
    ) -> int:
        """The members that a gang would miss because those that failed or leave are replaced later, or never; 0 when it
        reaches its minimum. It needs `needed` ones besides those to place; `is_held`: a deployment does not permit all.

        They are placed together then: the evaluation that replaces the others places these too.
        """
        ended = self._ended_members(members)
        renewed = sum(1 for alloc in chosen if alloc.id in ended)
        is_shrinking = bool(ended) or is_held or self._staying(classes) < len(classes.migrate)
        return max(0, needed - self._remaining(members, ended, classes) - renewed) if is_shrinking else 0

    def _renewed_with_gang(
        self, placing: int, destructive: list[Allocation], members: list[Allocation], classes: Classified
    ) -> frozenset[str]:
        """The ended members of older versions that start with the others, so that a gang reaches its minimum.

        They take the place of no running one, so `max_parallel` does not bound them: one by one, none could start.
        """
        ended = self._ended_members(members) if self.group.gang is not None else set()
        if not ended:
            return frozenset()
        old = [alloc.id for alloc in self._by_name(destructive) if alloc.id in ended]
        missing = max(0, self.group.least - self._remaining(members, ended, classes) - placing)
        return frozenset(old[:missing] if missing <= len(old) else ())

    def _without_renewed(self, chosen: list[Allocation], renewing: list[Allocation]) -> list[Allocation]:
        """The allocations to replace without those that wait for other members of the gang; they keep their names."""
        self.used_names.update(alloc.name for alloc in renewing)
        self.results.counts["destructive_update"] -= len(renewing)
        self.results.counts["ignore"] += len(renewing)
        return [alloc for alloc in chosen if alloc not in renewing]

    def _ended_members(self, members: list[Allocation]) -> set[str]:
        """The members of a gang that count but no longer run; those of a batch job that have done their work do.

        One that a drain or its user has stopped has not, although its client reports it as complete too.
        """
        return {
            alloc.id
            for alloc in members
            if is_terminal(alloc)
            and not (self.is_batch and alloc.client_status == CLIENT_COMPLETE and alloc.desired_status == DESIRED_RUN)
        }

    def _remaining(self, members: list[Allocation], ended: set[str], classes: Classified) -> int:
        """The number of members that a gang keeps, apart from those to place."""
        return len(members) - len(ended) + self._staying(classes) + len(classes.disconnecting)

    def _staying(self, classes: Classified) -> int:
        """The number of migrating members that get a replacement."""
        return sum(1 for alloc in classes.migrate if is_replaced_elsewhere(alloc, self.job))

    def _replacement(self, alloc: Allocation, names: NameIndex) -> PlacementRequest:
        """The placement for a failed allocation, which stops with it, or for a preempted one, which has stopped."""
        is_requeued = alloc.desired_status == DESIRED_EVICT
        return PlacementRequest(
            self.group.name,
            self._name(alloc, names),
            alloc,
            is_rescheduled=not is_requeued,
            is_requeued=is_requeued,
            stops="" if is_requeued else why.RESCHEDULED,
            job=self.canaries.version_for(alloc),
        )

    def _missing(self, retained: list[Allocation], classes: Classified, now: list[Allocation]) -> int:
        """The number of allocations that the group lacks, including lost but not failed ones."""
        extra_canaries = self.canaries.surplus(retained)
        existing = sum(1 for alloc in retained if alloc.id not in extra_canaries)
        unknown_count = sum(1 for alloc in classes.disconnecting if not strategy_of(alloc).replace)
        return max(0, self.group.count - existing - len(classes.migrate) - unknown_count - len(now))

    def _place(self, permitted: list[PlacementRequest], now: list[Allocation]) -> None:
        """Request the placements that the deployment permits."""
        rescheduled = sum(1 for place in permitted if place.is_rescheduled)
        requeued = sum(1 for place in permitted if place.is_requeued)
        self.results.counts["place"] += len(permitted)
        self.results.counts["reschedule_now"] += rescheduled
        self.results.counts["stop"] += rescheduled
        self.results.counts["ignore"] += len(now) - rescheduled - requeued
        self.results.of_job.place.extend(permitted)

    def _name(self, alloc: Allocation, names: NameIndex) -> str:
        """A replacement's name: the allocation's own, unless a retained one has it or its index is too high."""
        name = names.next(1)[0] if alloc.name in self.used_names or names.is_above(alloc) else alloc.name
        self.used_names.add(name)
        return name

    def _chosen(self, destructive: list[Allocation], budget: int, renewed: frozenset[str]) -> list[Allocation]:
        """The allocations to replace now: those to renew, then the others in the order of their names."""
        ordered = sorted(self._by_name(destructive), key=lambda alloc: alloc.id not in renewed)
        chosen = ordered[: max(budget, len(renewed))]
        stopping = sum(1 for alloc in chosen if alloc.id not in renewed)
        assert stopping <= budget, (self.group.name, stopping, budget, "max_parallel bounds a step")
        self.results.counts["destructive_update"] += len(chosen)
        self.results.counts["ignore"] += len(ordered) - len(chosen)
        return chosen

    @staticmethod
    def _by_name(allocs: list[Allocation]) -> list[Allocation]:
        return sorted(allocs, key=lambda alloc: (index_of(alloc), alloc.name, alloc.id))

    def _update(self, chosen: list[Allocation], names: NameIndex) -> None:
        for alloc in chosen:
            place = PlacementRequest(self.group.name, self._name(alloc, names), alloc, stops=why.UPDATING)
            self.results.of_job.destructive.append(place)

    def _migrate(self, migrate: list[Allocation], names: NameIndex) -> None:
        self.results.counts["migrate"] += len(migrate)
        for alloc in sorted(migrate, key=lambda alloc: (index_of(alloc), alloc.id)):
            if alloc.desired_status not in SERVER_TERMINAL:
                self.results.of_job.stops.append(StopRequest(alloc, why.MIGRATING))
            if is_replaced_elsewhere(alloc, self.job):
                job = self.canaries.version_for(alloc)
                self.results.of_job.place.append(
                    PlacementRequest(self.group.name, self._name(alloc, names), alloc, job=job)
                )
