"""The roll-out of a new version of one group: the number of allocations to replace now, and the permitted
placements."""

from __future__ import annotations

from collections.abc import Sequence

from yurt.scheduler.reconcile.deployments import fresh_state
from yurt.scheduler.reconcile.group_context import GroupContext
from yurt.scheduler.reconcile.reschedule_policy import due
from yurt.scheduler.reconcile.results import PlacementRequest, Results
from yurt.scheduler.reconcile.update_kind import is_current
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.status import (
    CLIENT_FAILED,
    DEPLOYMENT_ACTIVE,
    DEPLOYMENT_FAILED,
    DEPLOYMENT_PAUSED,
    JOB_SERVICE,
)


class GroupRollout:
    """One group in the deployment of the job's version; `state` is None when the deployment excludes it."""

    __slots__ = ("_context", "is_failed", "is_paused", "state")

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        deployment = context.deployment
        self.is_paused = deployment is not None and deployment.status == DEPLOYMENT_PAUSED
        self.is_failed = deployment is not None and deployment.status == DEPLOYMENT_FAILED
        self.state = deployment.task_groups.get(context.group.name) if deployment is not None else None

    @property
    def is_promoted(self) -> bool:
        """Whether the canaries count as ordinary allocations."""
        return self.state is not None and self.state.promoted

    def budget(
        self,
        retained: list[Allocation],
        destructive: list[Allocation],
        migrate: list[Allocation],
        *,
        is_canarying: bool,
    ) -> int:
        """The number of allocations that may be replaced now, by the update block and the health of earlier
        replacements.

        `retained` holds the failed ones that are rescheduled now as well: a version that fails must not take the place
        of one that works. What the group lacks is placed first, out of the same budget.
        """
        budget = self._context.group.max_parallel
        if budget <= 0 or not (destructive or migrate):
            return self._context.group.count
        if self.is_paused or self.is_failed or is_canarying:
            return 0
        deployment = self._context.deployment
        if deployment is None:
            return budget
        for alloc in retained:
            if alloc.deployment_id != deployment.id:
                continue
            healthy = alloc.deployment_status.healthy if alloc.deployment_status is not None else None
            # An unhealthy one stops the roll-out until it is replaced; one without a verdict holds its slot.
            if healthy is False:
                return 0
            budget -= healthy is None
        return max(0, budget)

    def permitted(self, requests: Sequence[PlacementRequest], *, is_canarying: bool) -> list[PlacementRequest]:
        """The requests that the deployment permits now."""
        is_open = not (self.is_paused or self.is_failed or is_canarying)
        deployment = self._context.deployment
        permitted = []
        for request in requests:
            previous = request.previous
            is_own = deployment is not None and previous is not None and previous.deployment_id == deployment.id
            # Lost and failed allocations are replaced even so, but a failed version's own failures are not.
            if is_open or (previous is not None and not (request.is_rescheduled and self.is_failed and is_own)):
                permitted.append(request)
        assert not is_open or len(permitted) == len(requests), "an open deployment holds nothing back"
        return permitted

    def begin(
        self, allocs: Sequence[Allocation], results: Results, *, updated: int, placed: int, canarying: bool
    ) -> None:
        """Add the group to the deployment that starts with this plan; allocations waiting for canaries count.

        The canaries count as well while the group waits for a lost client and none can be placed yet.
        """
        context, group = self._context, self._context.group
        if context.deployment is not None or group.max_parallel <= 0:
            return
        if context.job.type != JOB_SERVICE:
            return
        total = updated + placed
        if not total or (not updated and any(is_current(alloc, context.job) for alloc in allocs)):
            return
        assert group.name not in results.states, (group.name, "a group begins to roll out once")
        results.states[group.name] = replace(
            fresh_state(group), desired_total=total, desired_canaries=group.canaries if canarying else 0
        )

    def holds_failed(self, present: list[Allocation]) -> bool:
        """Whether failed allocations of the deployment wait to be marked for replacement.

        The deployment watcher marks them, but only while the deployment is active.
        """
        deployment = self._context.deployment
        if deployment is None or deployment.status not in DEPLOYMENT_ACTIVE:
            return False
        return any(
            alloc.client_status == CLIENT_FAILED and alloc.deployment_id == deployment.id and due(alloc).is_eligible
            for alloc in present
        )
