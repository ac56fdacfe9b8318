"""Canaries: allocations of a new version beyond the group's count, until the version is promoted.

A canary bears the name of the allocation that it will replace. Until the promotion it belongs to none of the group's
own sets: it neither counts nor gives up its name.
"""

from __future__ import annotations

from collections.abc import Collection

from yurt.scheduler.reconcile import results as why
from yurt.scheduler.reconcile.alloc_names import NameIndex
from yurt.scheduler.reconcile.classify import Classified
from yurt.scheduler.reconcile.group_context import GroupContext
from yurt.scheduler.reconcile.group_results import GroupResults
from yurt.scheduler.reconcile.group_rollout import GroupRollout
from yurt.scheduler.reconcile.replacements import Replacements
from yurt.scheduler.reconcile.results import GangShortfall, PlacementRequest
from yurt.scheduler.reconcile.update_kind import is_older
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.predicates import is_terminal
from yurt.structs.status import CLIENT_FAILED, JOB_SERVICE, SERVER_TERMINAL

NONE: frozenset[str] = frozenset()


class Canaries:
    """The canaries of one group; `ids` are those placed by the deployment."""

    def __init__(self, context: GroupContext, rollout: GroupRollout, results: GroupResults) -> None:
        self._context = context
        self._rollout = rollout
        self._results = results
        # The canaries of a failed deployment are strays: they will never be promoted.
        is_over = rollout.state is None or rollout.is_failed
        self.ids = NONE if is_over or rollout.state is None else frozenset(rollout.state.placed_canaries)

    def drop_obsolete(self, allocs: list[Allocation]) -> list[Allocation]:
        """Stop canaries that no current deployment includes.

        One that a drain was to move and that has ended counts no more: nothing is left to move, and a replacement of it
        would be a member that the group is not waiting for.
        """
        promoted = self._rollout.is_promoted
        retained = []
        for alloc in allocs:
            status = alloc.deployment_status
            is_obsolete = status is not None and status.canary and alloc.id not in self.ids and not promoted
            if is_obsolete and not is_terminal(alloc):
                self._results.stop(alloc, why.NOT_NEEDED)
            elif is_obsolete and alloc.desired_transition.migrate and alloc.desired_status not in SERVER_TERMINAL:
                self._results.counts["ignore"] += 1
            else:
                retained.append(alloc)
        return retained

    @property
    def unpromoted(self) -> frozenset[str]:
        """The ids of the canaries that are not members of the group yet."""
        return NONE if self._rollout.state is None or self._rollout.state.promoted else self.ids

    def members(self, allocs: list[Allocation]) -> list[Allocation]:
        """The allocations without canaries, save for promoted ones."""
        own = self.ids - self.unpromoted
        return [
            alloc
            for alloc in allocs
            if alloc.id in own or alloc.deployment_status is None or not alloc.deployment_status.canary
        ]

    def take_out_leaving(
        self, classes: Classified, present: Replacements, lost: list[Allocation], away: list[Allocation]
    ) -> list[Allocation]:
        """Take out canaries that need replacements: those on draining, lost or disconnected nodes and failed ones.

        They leave the group's own sets, as do disconnected ones that have a replacement; those that migrate are
        stopped. A disconnected one that gets none (`replace = false`) still counts.
        """
        if not self.unpromoted:
            return []
        replaced_ids = {alloc.id for alloc in away}
        unreplaced = [alloc for alloc in away if not alloc.next_allocation and not is_terminal(alloc)]
        leaving = [alloc for alloc in (*classes.migrate, *present.now, *lost, *unreplaced) if alloc.id in self.ids]
        for alloc in classes.migrate:
            if alloc.id in self.ids and alloc.desired_status not in SERVER_TERMINAL:
                self._results.stop(alloc, why.MIGRATING)
        disconnecting = [alloc for alloc in classes.disconnecting if alloc.id in self.ids]
        for others in (classes.migrate, classes.disconnecting, present.now, away):
            others[:] = [alloc for alloc in others if alloc.id not in self.ids]
        present.present.extend(alloc for alloc in disconnecting if alloc.id not in replaced_ids)
        return leaving

    def place(
        self,
        names: NameIndex,
        destructive: list[Allocation],
        retained: list[Allocation],
        leaving: list[Allocation],
        *,
        is_waiting: bool,
    ) -> bool:
        """Place missing canaries, replacements first; returns whether the group waits for its canaries.

        Without a deployment, which `max_parallel = 0` means, nobody could promote any.
        """
        group = self._context.group
        desired = group.canaries if group.max_parallel and self._context.job.type == JOB_SERVICE else 0
        promoted = self._rollout.is_promoted
        canaries = [alloc for alloc in retained if alloc.id in self.ids]
        in_state = self._rollout.state is not None and self._rollout.state.desired_canaries > 0 and not promoted
        # Also without any older allocation: after all were lost, only canaries can be promoted and bring the others.
        is_required = bool(destructive or leaving or in_state) and len(canaries) < desired and not promoted
        missing = desired - len(canaries)
        placed = leaving[:missing] if is_required else []
        assert not is_required or missing > 0, (desired, len(canaries))
        if is_required and not (self._rollout.is_paused or self._rollout.is_failed or is_waiting):
            if self._would_miss_others(canaries, placing=missing):
                placed = [alloc for alloc in placed if alloc.desired_transition.migrate and not is_terminal(alloc)]
                missing = len(placed)  # as a drain moves members while others are missing
            # Those in place of others first: they carry on their history, new ones begin without any.
            places = [self._canary_for(alloc) for alloc in placed]
            replaced_ids = {alloc.id for alloc in destructive}
            staying = [alloc for alloc in retained if alloc.id not in replaced_ids]
            new = names.next_canaries(missing - len(placed), destructive, [*canaries, *staying, *placed])
            places.extend(PlacementRequest(self._context.group.name, name, is_canary=True) for name in new)
            assert len(places) <= missing, (len(places), missing, "no more canaries than the update asks for")
            self._results.of_job.place.extend(places)
            self._results.counts["canary"] += missing
        return is_required or in_state

    def _would_miss_others(self, canaries: list[Allocation], placing: int) -> bool:
        """Whether canaries of a gang, which are one of their own, would be too few because those that have failed are
        replaced later, or never. The evaluation that replaces these places all of them."""
        least = self._context.group.least
        shortfall = least - placing - sum(1 for alloc in canaries if not is_terminal(alloc))
        if shortfall > 0:
            self._results.of_job.gang_shortfalls[self._context.group.name] = GangShortfall(shortfall, least)
        return shortfall > 0

    def _canary_for(self, alloc: Allocation) -> PlacementRequest:
        """A replacement of a canary under its name; for a failed one with its reschedule history."""
        if alloc.client_status != CLIENT_FAILED or alloc.desired_transition.migrate:
            return PlacementRequest(self._context.group.name, alloc.name, alloc, is_canary=True)
        self._results.counts["reschedule_now"] += 1
        self._results.counts["stop"] += 1
        return PlacementRequest(
            self._context.group.name, alloc.name, alloc, is_canary=True, is_rescheduled=True, stops=why.RESCHEDULED
        )

    def surplus(self, retained: Collection[Allocation]) -> frozenset[str]:
        """The canaries beyond the desired count, whose names other allocations share until the promotion."""
        if self._rollout.state is None or self._rollout.state.promoted:
            return NONE
        return self.ids if any(alloc.id in self.ids for alloc in retained) else NONE

    def version_for(self, alloc: Allocation) -> Job | None:
        """The version for an allocation's replacement: its own, while canaries test a newer one."""
        old = alloc.job
        state, job = self._rollout.state, self._context.job
        is_trying = self._results.counts["canary"] > 0 or (
            state is not None and state.desired_canaries > 0 and not state.promoted
        )
        if not is_trying or alloc.id in self.ids or old is None or not is_older(alloc, job):
            return None
        is_usable = old.create_index == job.create_index and old.group(self._context.group.name) is not None
        return old if is_usable else None
