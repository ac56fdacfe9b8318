"""One group of a service or batch job: from its allocations to what has to be done (semantics 23)."""

from __future__ import annotations

from yurt.scheduler.reconcile import results as why
from yurt.scheduler.reconcile.alloc_names import NameIndex, index_of
from yurt.scheduler.reconcile.classify import Classified, classify_all, has_each_once, strategy_of
from yurt.scheduler.reconcile.client_stop import client_stops_by
from yurt.scheduler.reconcile.deployments import fresh_state
from yurt.scheduler.reconcile.followups import followups
from yurt.scheduler.reconcile.group_context import GroupContext
from yurt.scheduler.reconcile.reconnect import decide
from yurt.scheduler.reconcile.replacements import Replacements, split
from yurt.scheduler.reconcile.reschedule_policy import due
from yurt.scheduler.reconcile.results import InPlaceRequest, PlacementRequest, Results, StopRequest
from yurt.scheduler.reconcile.scale_down import scale_down_order
from yurt.scheduler.reconcile.update_kind import is_destructive
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import DesiredUpdates
from yurt.structs.job import Job
from yurt.structs.plan import AttributeUpdate
from yurt.structs.questions import is_terminal
from yurt.structs.status import (
    CLIENT_FAILED,
    CLIENT_LOST,
    CLIENT_TERMINAL,
    CLIENT_UNKNOWN,
    DEPLOYMENT_ACTIVE,
    DEPLOYMENT_FAILED,
    DEPLOYMENT_PAUSED,
    JOB_BATCH,
    JOB_SERVICE,
    NODE_READY,
    SERVER_TERMINAL,
    TRIGGER_MAX_DISCONNECT,
    TRIGGER_RETRY_FAILED_ALLOC,
    ClientStatus,
    NotGiven,
    Trigger,
)


class GroupReconciler:
    """Fills `results` with what one group needs."""

    def __init__(self, context: GroupContext, results: Results) -> None:
        self.context = context
        self.results = results
        self.job, self.group = context.job, context.group
        self.is_batch = context.job.type == JOB_BATCH
        deployment = context.deployment
        self.is_paused = deployment is not None and deployment.status == DEPLOYMENT_PAUSED
        self.is_failed = deployment is not None and deployment.status == DEPLOYMENT_FAILED
        self.state = deployment.task_groups.get(self.group.name) if deployment is not None else None
        self.counts = dict.fromkeys(DesiredUpdates.__struct_fields__, 0)
        self.canary_ids = self._canary_ids()
        self.taken: set[str] = set()
        self.waiting: dict[str, str] = {}
        """Lost allocations that their clients stop by themselves, and the evaluations that look at them then."""

    def run(self, allocs: list[Allocation]) -> bool:
        """Reconcile; whether the group has nothing left to do."""
        # Most evaluations of new jobs end here: without allocations no later step has anything to decide.
        if not allocs and self.state is None:
            return self._begin()
        # Canaries that no deployment knows go first: every later step would count them as ordinary allocations.
        allocs = self._relevant(allocs)
        allocs = self._drop_old_canaries(allocs)
        classes = classify_all(allocs, self.context.nodes, is_batch=self.is_batch, now=self.context.now)
        assert has_each_once(classes, allocs), (self.group.name, len(allocs))
        self.counts["ignore"] += len(classes.ignored)
        # Unknown allocations with a stand-in leave before anything is counted: they count for nothing until their
        # client returns, whatever became of the stand-in.
        away = self._away(classes.untainted)
        present = self._split(classes.untainted)
        for alloc in present.again:
            if not is_terminal(alloc):
                self._stop(alloc, why.NOT_NEEDED_RECONNECT)
        # Returning allocations are decided before counts are made: the losers leave all sets, so that no pair of an
        # original and its replacement counts twice.
        self._reconnect(classes, present, away)
        lost = [*classes.lost, *classes.expiring]
        away.extend(self._disconnect(classes.disconnecting))
        is_waiting = self._wait_for_clients(lost, allocs)
        # Canaries run beside the count under names of others, so they leave the sets before names are indexed.
        leaving = self._leaving_canaries(classes.migrate, present.now, lost)
        canaries = [alloc for alloc in present.present if alloc.id in self.canary_ids]
        left = [alloc for alloc in (*lost, *away) if alloc not in leaving]
        names = NameIndex(
            self.job.id,
            self.group.name,
            self.group.count,
            [*present.present, *classes.migrate, *present.now, *classes.disconnecting, *left],
        )
        # Scale down before replacing: what is beyond the count deserves neither a replacement nor a follow-up.
        kept = self._scale_down(
            present.present, classes.migrate, lost, names, has_canaries=self._is_canarying(canaries)
        )
        self._reschedule_later(present.later, kept)
        self._drop_unneeded(present.now, kept, classes, names)
        destructive, in_place = self._updates(kept)
        is_canarying = self._place_canaries(names, destructive, canaries, leaving, is_waiting=is_waiting)
        # What the group lacks is placed out of the update budget first: a version whose allocations keep failing must
        # not replace more of the version that works.
        placing = 0 if is_waiting else len(present.now) + self._missing(kept, classes, present.now)
        budget = self._budget([*kept, *present.now], destructive, classes.migrate, is_canarying=is_canarying)
        budget = max(0, budget - placing)
        chosen = self._chosen(destructive, budget)
        # A name is free for a replacement as soon as its holder is replaced in this plan; names are given out in the
        # order placements, updates, migrations, and none twice.
        vacating = {alloc.id for alloc in chosen} | self._held_back(kept)
        self.taken = {alloc.name for alloc in kept if alloc.id not in vacating}
        place = [] if is_waiting else self._placements(kept, classes, present.now, left, names)
        self._place(place, present.now, is_canarying=is_canarying)
        self._update(chosen, names)
        self._migrate(classes.migrate, names)
        self._track(allocs, destructive, in_place, place, is_canarying=is_canarying)
        self.results.desired[self.group.name] = DesiredUpdates(**self.counts)
        is_moving = bool(classes.migrate or present.now or present.later or self._holds_failed(kept))
        return not (destructive or in_place or place or is_moving or classes.reconnecting or is_canarying)

    def _begin(self) -> bool:
        """As `run` for a group that has no allocations and is in no deployment: it only has to be placed."""
        name = self.group.name
        names = NameIndex(self.job.id, name, self.group.count, ())
        place = [PlacementRequest(name, free) for free in names.next(self.group.count)]
        self._place(place, [], is_canarying=False)
        self._track([], [], [], place, is_canarying=False)
        self.results.desired[name] = DesiredUpdates(**self.counts)
        return not place

    def _holds_failed(self, present: list[Allocation]) -> bool:
        """Whether failed allocations of the deployment wait to be marked for replacement.

        Whoever watches the deployment marks them; once it has ended nobody would.
        """
        deployment = self.context.deployment
        if deployment is None or deployment.status not in DEPLOYMENT_ACTIVE:
            return False
        return any(
            alloc.client_status == CLIENT_FAILED and alloc.deployment_id == deployment.id and due(alloc).is_eligible
            for alloc in present
        )

    # -- which allocations take part -------------------------------------------------------------------------------

    def _relevant(self, allocs: list[Allocation]) -> list[Allocation]:
        if not self.is_batch:
            return allocs
        kept = [alloc for alloc in allocs if not is_terminal(alloc) or not self._is_older(alloc)]
        self.counts["ignore"] += len(allocs) - len(kept)
        return kept

    def _is_older(self, alloc: Allocation) -> bool:
        old = alloc.job
        return old is None or old.version < self.job.version or old.create_index < self.job.create_index

    def _canary_ids(self) -> frozenset[str]:
        if self.state is None or self.is_failed:
            return frozenset()
        return frozenset(self.state.placed_canaries)

    def _drop_old_canaries(self, allocs: list[Allocation]) -> list[Allocation]:
        """Canaries that no current deployment knows are stopped."""
        promoted = self.state is not None and self.state.promoted
        kept = []
        for alloc in allocs:
            status = alloc.deployment_status
            is_stray = status is not None and status.canary and alloc.id not in self.canary_ids and not promoted
            if is_stray and not is_terminal(alloc):
                self._stop(alloc, why.NOT_NEEDED)
            else:
                kept.append(alloc)
        return kept

    def _away(self, untainted: list[Allocation]) -> list[Allocation]:
        """Take out the unknown allocations that others stand in for: they wait until their client returns.

        They never count, whether their replacement runs, failed or found no room yet; with `replace = false` they do.
        """
        away = [a for a in untainted if a.client_status == CLIENT_UNKNOWN and strategy_of(a).replace]
        gone = {alloc.id for alloc in away}
        untainted[:] = [alloc for alloc in untainted if alloc.id not in gone]
        self.counts["ignore"] += len(away)
        return away

    def _split(self, untainted: list[Allocation]) -> Replacements:
        deployment = self.context.deployment
        return split(
            untainted,
            is_batch=self.is_batch,
            eval_id=self.context.evaluation.id,
            now=self.context.now,
            deployment=deployment,
        )

    def _is_canarying(self, canaries: list[Allocation]) -> bool:
        return bool(canaries) and self.state is not None and not self.state.promoted

    # -- nodes that come and go ------------------------------------------------------------------------------------

    def _reconnect(self, classes: Classified, present: Replacements, away: list[Allocation]) -> None:
        """Choose between each returning allocation and its replacements; the losers leave all sets.

        A replacement that has failed takes part: when the original stays, it is not replaced any more. An original
        that is stopped leaves a place to fill when nobody stands in for it.
        """
        for original in classes.reconnecting:
            everyone = (*present.present, *present.now, *classes.migrate)
            rivals = [
                alloc
                for alloc in everyone
                if alloc.name == original.name and alloc.id != original.id and _may_replace(alloc)
            ]
            keeps, stopped = decide(original, rivals, self.job)
            gone = {loser.id for loser in stopped}
            for loser in stopped:
                self._stop(loser, why.NOT_NEEDED_RECONNECT)
            for found in (present.present, present.now, classes.migrate):
                found[:] = [alloc for alloc in found if alloc.id not in gone]
            present.later[:] = [pair for pair in present.later if pair[0].id not in gone]
            if keeps:
                self.counts["reconnect"] += 1
                present.present.append(original)
                self._attribute(original, append_state=(original.client_status, self.context.now))
            else:
                away.append(original)

    def _disconnect(self, disconnecting: list[Allocation]) -> list[Allocation]:
        """Mark allocations unknown and come back when their time is over; those to replace meanwhile."""
        due_at = []
        for alloc in disconnecting:
            strategy = strategy_of(alloc)
            if strategy.lost_after > 0:
                due_at.append((alloc, self.context.now + strategy.lost_after))
            self.counts["disconnect"] += 1
            self._attribute(
                alloc,
                client_status=CLIENT_UNKNOWN,
                client_description=why.UNKNOWN,
                append_state=(CLIENT_UNKNOWN, self.context.now),
            )
        self._note(self._follow_up(due_at, TRIGGER_MAX_DISCONNECT), due_at)
        return [alloc for alloc in disconnecting if strategy_of(alloc).replace]

    def _wait_for_clients(self, lost: list[Allocation], allocs: list[Allocation]) -> bool:
        """Lost allocations whose clients stop them by themselves are replaced only after that.

        The evaluation that was made for that moment has waited, whatever this server's clock says: no other one comes.
        """
        now = self.context.now
        due_at = [(alloc, at) for alloc in lost if (at := client_stops_by(alloc, now)) > now]
        self.waiting = self._follow_up(due_at, TRIGGER_RETRY_FAILED_ALLOC)
        return bool(due_at) or any(
            alloc.client_status == CLIENT_LOST
            and alloc.followup_eval_id not in ("", self.context.evaluation.id)
            and not alloc.next_allocation
            and client_stops_by(alloc, now) > now
            for alloc in allocs
        )

    def _reschedule_later(self, later: list[tuple[Allocation, int]], kept: list[Allocation]) -> None:
        """Come back for those that keep their places until they are replaced."""
        staying = {alloc.id for alloc in kept}
        later[:] = [pair for pair in later if pair[0].id in staying]
        self.counts["reschedule_later"] += len(later)
        self._note(self._follow_up(later, TRIGGER_RETRY_FAILED_ALLOC), later)

    def _note(self, eval_of: dict[str, str], due_at: list[tuple[Allocation, int]]) -> None:
        for alloc, _ in due_at:
            self._attribute(alloc, followup_eval_id=eval_of[alloc.id])

    def _follow_up(self, due_at: list[tuple[Allocation, int]], trigger: Trigger) -> dict[str, str]:
        """Come back at those times; the evaluation of each allocation."""
        context = self.context
        made, eval_of = followups(
            self.job, due_at, trigger, ids=context.ids, parent=context.evaluation, now=context.now
        )
        self.results.followups.extend(made)
        return eval_of

    def _attribute(self, alloc: Allocation, **changes: object) -> None:
        known = self.results.attributes.get(alloc.id) or AttributeUpdate(id=alloc.id, node_id=alloc.node_id)
        self.results.attributes[alloc.id] = replace(known, **changes)

    # -- counts ----------------------------------------------------------------------------------------------------

    def _scale_down(
        self,
        present: list[Allocation],
        migrate: list[Allocation],
        lost: list[Allocation],
        names: NameIndex,
        *,
        has_canaries: bool,
    ) -> list[Allocation]:
        """Stop what is lost and what is too many; the answer is what stays, canaries included."""
        for alloc in lost:
            self._stop(alloc, why.LOST, CLIENT_LOST, self.waiting.get(alloc.id, ""))
        held_back = self.canary_ids if has_canaries else frozenset()
        counted = [alloc for alloc in present if alloc.id not in held_back]
        surplus = len(counted) + len(migrate) - self.group.count
        if surplus <= 0:
            return present
        promoted = self.state is not None and self.state.promoted
        order = scale_down_order(counted, migrate, names, self.canary_ids if promoted else ())
        assert len(order) - surplus == self.group.count, (self.group.name, len(order), surplus)
        gone, staying = set(), {alloc.name for alloc in order[surplus:]}
        for alloc in order[:surplus]:
            if is_terminal(alloc):
                self.counts["ignore"] += 1
            else:
                self._stop(alloc, why.NOT_NEEDED)
            if alloc.name not in staying:
                names.free(alloc)
            gone.add(alloc.id)
        migrate[:] = [alloc for alloc in migrate if alloc.id not in gone]
        return [alloc for alloc in present if alloc.id not in gone]

    def _drop_unneeded(
        self, now: list[Allocation], kept: list[Allocation], classes: Classified, names: NameIndex
    ) -> None:
        """Failed allocations beyond the count are not replaced, and others may have their names."""
        held_back = self.canary_ids if self._is_canarying([a for a in kept if a.id in self.canary_ids]) else frozenset()
        counted = sum(1 for alloc in kept if alloc.id not in held_back)
        room = max(0, self.group.count - counted - len(classes.migrate) - len(classes.disconnecting))
        now.sort(key=lambda alloc: (index_of(alloc), alloc.create_index, alloc.id))
        needed = {alloc.name for alloc in (*kept, *classes.migrate, *classes.disconnecting, *now[:room])}
        for alloc in now[room:]:
            if alloc.name not in needed:
                names.free(alloc)
        self.counts["ignore"] += len(now[room:])
        del now[room:]

    def _updates(self, kept: list[Allocation]) -> tuple[list[Allocation], list[Allocation]]:
        """Those to replace and those updated in place; the rest is as it should be."""
        destructive, in_place = [], []
        for alloc in kept:
            old = alloc.job
            if old is not None and old.version == self.job.version and old.create_index == self.job.create_index:
                self.counts["ignore"] += 1
            elif old is None or is_destructive(old, self.job, self.group.name):
                destructive.append(alloc)
            elif is_terminal(alloc) or not self._is_reachable(alloc):
                self.counts["ignore"] += 1
            elif self.context.fits_in_place(alloc):
                in_place.append(alloc)
            else:
                destructive.append(alloc)
        self.counts["in_place_update"] += len(in_place)
        self.results.in_place.extend(InPlaceRequest(alloc) for alloc in in_place)
        return destructive, in_place

    def _is_reachable(self, alloc: Allocation) -> bool:
        """Whether its node takes updates; one that does not is looked at again when it is back."""
        node = self.context.nodes.get(alloc.node_id)
        return node is not None and node.status == NODE_READY

    # -- placing ---------------------------------------------------------------------------------------------------

    def _leaving_canaries(
        self, migrate: list[Allocation], now: list[Allocation], lost: list[Allocation]
    ) -> list[Allocation]:
        """The canaries beside the count that others stand in for: their nodes leave or are gone, or they failed.

        They leave the group's own sets; those that migrate are stopped.
        """
        if self.state is None or self.state.promoted:
            return []
        found = [alloc for alloc in (*migrate, *now, *lost) if alloc.id in self.canary_ids]
        for alloc in migrate:
            if alloc.id in self.canary_ids and alloc.desired_status not in SERVER_TERMINAL:
                self._stop(alloc, why.MIGRATING)
        for others in (migrate, now):
            others[:] = [alloc for alloc in others if alloc.id not in self.canary_ids]
        return found

    def _place_canaries(
        self,
        names: NameIndex,
        destructive: list[Allocation],
        canaries: list[Allocation],
        leaving: list[Allocation],
        *,
        is_waiting: bool,
    ) -> bool:
        """Place missing canaries, those in place of others first; whether the group waits for its canaries.

        Without a deployment, which `max_parallel = 0` means, nobody could promote any.
        """
        update = self.group.update
        wanted = update.canary if update is not None and update.max_parallel and self.job.type == JOB_SERVICE else 0
        promoted = self.state is not None and self.state.promoted
        is_required = bool(destructive or leaving) and len(canaries) < wanted and not promoted
        missing = wanted - len(canaries)
        placed = leaving[:missing] if is_required else []
        if is_required and not (self.is_paused or self.is_failed or is_waiting):
            places = [self._canary_for(alloc) for alloc in placed]
            new = names.next_canaries(missing - len(placed), destructive, [*canaries, *placed])
            places.extend(PlacementRequest(self.group.name, name, is_canary=True) for name in new)
            self.results.place.extend(places)
            self.counts["canary"] += missing
        in_state = self.state is not None and self.state.desired_canaries > 0 and not promoted
        return is_required or in_state

    def _canary_for(self, alloc: Allocation) -> PlacementRequest:
        """A canary in place of another one, under its name; of one that failed it carries on the history."""
        if alloc.client_status != CLIENT_FAILED or alloc.desired_transition.migrate:
            return PlacementRequest(self.group.name, alloc.name, alloc, is_canary=True)
        self.counts["reschedule_now"] += 1
        self.counts["stop"] += 1
        return PlacementRequest(
            self.group.name, alloc.name, alloc, is_canary=True, is_rescheduled=True, stops=why.RESCHEDULED
        )

    def _placements(
        self,
        kept: list[Allocation],
        classes: Classified,
        now: list[Allocation],
        left: list[Allocation],
        names: NameIndex,
    ) -> list[PlacementRequest]:
        """Replacements for what failed, what was lost and what is out of reach; new allocations up to the count."""
        group = self.group.name
        places = [
            PlacementRequest(
                group,
                self._name(alloc, names),
                alloc,
                is_rescheduled=True,
                stops=why.RESCHEDULED,
                job=self._tried_job(alloc),
            )
            for alloc in now
        ]
        missing = self._missing(kept, classes, now)
        held_back = self._held_back(kept)
        served = {alloc.name for alloc in (*kept, *now, *classes.migrate) if alloc.id not in held_back}
        vacant = {
            alloc.name: alloc
            for alloc in sorted(left, key=lambda alloc: (alloc.create_index, alloc.id))
            if alloc.name not in served and not names.is_above(alloc)
        }
        for alloc in sorted(vacant.values(), key=index_of)[:missing]:
            places.append(PlacementRequest(group, self._name(alloc, names), alloc, job=self._tried_job(alloc)))
        places.extend(PlacementRequest(group, name) for name in names.next(max(0, missing - len(vacant))))
        return places

    def _tried_job(self, alloc: Allocation) -> Job | None:
        """The version that replaces an allocation when it is not the newest: its own, while canaries try that."""
        old = alloc.job
        is_trying = self.counts["canary"] > 0 or (
            self.state is not None and self.state.desired_canaries > 0 and not self.state.promoted
        )
        if not is_trying or alloc.id in self.canary_ids or old is None or not self._is_older(alloc):
            return None
        return old if old.create_index == self.job.create_index and old.group(self.group.name) is not None else None

    def _held_back(self, kept: list[Allocation]) -> frozenset[str]:
        """The canaries that run beside the group's count, under names of others, until they are promoted."""
        return self.canary_ids if self._is_canarying([a for a in kept if a.id in self.canary_ids]) else frozenset()

    def _missing(self, kept: list[Allocation], classes: Classified, now: list[Allocation]) -> int:
        """How many allocations the group lacks, lost ones included, replacements of failed ones not."""
        held_back = self._held_back(kept)
        existing = sum(1 for alloc in kept if alloc.id not in held_back)
        kept_unknown = sum(1 for alloc in classes.disconnecting if not strategy_of(alloc).replace)
        return max(0, self.group.count - existing - len(classes.migrate) - kept_unknown - len(now))

    def _place(self, places: list[PlacementRequest], now: list[Allocation], *, is_canarying: bool) -> None:
        """Place what the deployment permits."""
        is_open = not (self.is_paused or self.is_failed or is_canarying)
        deployment = self.context.deployment
        permitted = []
        for place in places:
            previous = place.previous
            is_own = deployment is not None and previous is not None and previous.deployment_id == deployment.id
            if is_open or (previous is not None and not (place.is_rescheduled and self.is_failed and is_own)):
                permitted.append(place)
        rescheduled = sum(1 for place in permitted if place.is_rescheduled)
        self.counts["place"] += len(permitted)
        self.counts["reschedule_now"] += rescheduled
        self.counts["stop"] += rescheduled
        self.counts["ignore"] += len(now) - rescheduled
        self.results.place.extend(permitted)

    def _budget(
        self, kept: list[Allocation], destructive: list[Allocation], migrate: list[Allocation], *, is_canarying: bool
    ) -> int:
        """How many may be replaced now, by the update block and the health of what was replaced before.

        `kept` holds the failed ones that are rescheduled now as well: a version that fails must not take the place of
        one that works. What the group lacks is placed first, out of the same budget.
        """
        update = self.group.update
        if update is None or update.max_parallel <= 0 or not (destructive or migrate):
            return self.group.count
        if self.is_paused or self.is_failed or is_canarying:
            return 0
        deployment = self.context.deployment
        if deployment is None:
            return update.max_parallel
        budget = update.max_parallel
        for alloc in kept:
            if alloc.deployment_id != deployment.id:
                continue
            healthy = alloc.deployment_status.healthy if alloc.deployment_status is not None else None
            if healthy is False:
                return 0
            budget -= healthy is None
        return max(0, budget)

    def _name(self, alloc: Allocation, names: NameIndex) -> str:
        """The name of a replacement: the allocation's own, unless another one that stays has it or it is too high."""
        name = names.next(1)[0] if alloc.name in self.taken or names.is_above(alloc) else alloc.name
        self.taken.add(name)
        return name

    def _chosen(self, destructive: list[Allocation], budget: int) -> list[Allocation]:
        """Those that are replaced now, in the order of their names."""
        ordered = sorted(destructive, key=lambda alloc: (index_of(alloc), alloc.name, alloc.id))
        chosen = ordered[:budget]
        self.counts["destructive_update"] += len(chosen)
        self.counts["ignore"] += len(ordered) - len(chosen)
        return chosen

    def _update(self, chosen: list[Allocation], names: NameIndex) -> None:
        for alloc in chosen:
            place = PlacementRequest(self.group.name, self._name(alloc, names), alloc, stops=why.UPDATING)
            self.results.destructive.append(place)

    def _migrate(self, migrate: list[Allocation], names: NameIndex) -> None:
        self.counts["migrate"] += len(migrate)
        for alloc in sorted(migrate, key=lambda alloc: (index_of(alloc), alloc.id)):
            if alloc.desired_status not in SERVER_TERMINAL:
                self.results.stops.append(StopRequest(alloc, why.MIGRATING))
            if not alloc.desired_transition.migrate_disable_placement:
                job = self._tried_job(alloc)
                self.results.place.append(PlacementRequest(self.group.name, self._name(alloc, names), alloc, job=job))

    def _stop(
        self,
        alloc: Allocation,
        description: str,
        client_status: ClientStatus | NotGiven = "",
        followup_eval_id: str = "",
    ) -> None:
        self.counts["stop"] += 1
        self.results.stops.append(StopRequest(alloc, description, client_status, followup_eval_id))

    # -- the roll-out ----------------------------------------------------------------------------------------------

    def _track(
        self,
        allocs: list[Allocation],
        destructive: list[Allocation],
        in_place: list[Allocation],
        place: list[PlacementRequest],
        *,
        is_canarying: bool,
    ) -> None:
        """Note the group's roll-out, for the deployment that begins with this plan: what waits for canaries counts.

        The canaries count as well while the group waits for a lost client and none can be placed yet.
        """
        update = self.group.update
        if self.context.deployment is not None or update is None or update.max_parallel <= 0:
            return
        if self.job.type != JOB_SERVICE:
            return
        is_running_before = any(
            alloc.job is not None
            and alloc.job.version == self.job.version
            and alloc.job.create_index == self.job.create_index
            for alloc in allocs
        )
        total = len(destructive) + len(in_place) + len(place)
        if not total or (is_running_before and not destructive and not in_place):
            return
        self.results.states[self.group.name] = replace(
            fresh_state(self.group), desired_total=total, desired_canaries=update.canary if is_canarying else 0
        )


def _may_replace(alloc: Allocation) -> bool:
    """Whether it is still wanted: it lives, or it failed and may be replaced in its turn."""
    return alloc.desired_status not in SERVER_TERMINAL and (
        alloc.client_status not in CLIENT_TERMINAL or alloc.client_status == CLIENT_FAILED
    )
