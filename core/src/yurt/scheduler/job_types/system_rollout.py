"""The roll-out of a new version of a system job: the number of nodes that get it now, and its deployment.

A system job rolls by nodes, not by a count. With canaries, a share of the nodes gets the new version first and the
others wait for its promotion. After that, and without canaries, at most `max_parallel` nodes roll at a time.

A deployment counts the nodes that it begins with. Some of them may leave before they have the new version: they are
removed, become ineligible or lose a volume. Then it ends without them, once nothing is left to place, update or wait
for. Otherwise it would never end if none had been placed, or fail at its deadline although the version runs well. If
its version has been healthy on no node, it is cancelled: success would mark a version stable that nobody has seen run.

A canary may leave with its node too. Then another node gets the version as a canary: one with an outdated allocation,
or one without any, such as the lost node when it is back. Where too few nodes are left for the canaries that the
deployment desires, it desires fewer, but at least one: otherwise its promotion would be refused until its deadline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.scheduler.reconcile import results as why
from yurt.scheduler.reconcile.deployments import fresh_state, is_group_complete, is_promoted, new_deployment
from yurt.scheduler.reconcile.results import InPlaceRequest, PlacementRequest
from yurt.scheduler.reconcile.update_kind import is_current, is_destructive
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment, DeploymentState
from yurt.structs.job import Job, TaskGroup
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.predicates import is_canary, is_terminal
from yurt.structs.rules import FEWER_CANARIES_RULES
from yurt.structs.status import (
    DEPLOYMENT_ACTIVE,
    DEPLOYMENT_CANCELLED,
    DEPLOYMENT_PAUSED,
    DEPLOYMENT_SUCCESSFUL,
    JOB_SYSTEM,
)

SUCCESSFUL = "Deployment completed successfully"
NODES_LEFT = "Cancelled because all nodes left before the version was healthy on one"


class SystemRollout:
    """The roll-out of one job's groups; `current` is the existing deployment of the version."""

    def __init__(self, context: AttemptContext, job: Job, draft: PlanDraft, current: Deployment | None) -> None:
        self.current = current
        self._context = context
        self._job = job
        self._draft = draft
        self._canaries: dict[str, int] = {}
        """The number of canary nodes of groups that have canaries."""
        self._missing_canaries: dict[str, int] = {}
        """The canaries of each group for which the current deployment finds no outdated allocation to replace."""
        self._waiting: dict[str, int] = {}
        """The outdated allocations of each group that are replaced later."""

    def updates(
        self, group: TaskGroup, outdated: Sequence[Allocation], counts: dict[str, int]
    ) -> list[PlacementRequest]:
        """The replacements of outdated allocations that may start now; some are updated in place instead."""
        job = self._job
        destructive = []
        for alloc in outdated:
            if alloc.job is not None and not is_destructive(alloc.job, job, group.name):
                self._draft.results.in_place.append(InPlaceRequest(alloc))
                counts["in_place_update"] += 1
            else:
                destructive.append(PlacementRequest(group.name, alloc.name, alloc, stops=why.UPDATING))
        canaries = self._canary_budget(group, len(destructive))
        if canaries is not None:
            self._wait(group, len(destructive) - canaries, counts)
            return [replace(place, is_canary=True) for place in destructive[:canaries]]
        budget = self._budget(group, len(destructive))
        assert 0 <= budget <= len(destructive), (group.name, budget, len(destructive))
        self._wait(group, len(destructive) - budget, counts)
        return destructive[:budget]

    def _wait(self, group: TaskGroup, number: int, counts: dict[str, int]) -> None:
        self._waiting[group.name] = number
        counts["ignore"] += number

    def _canary_budget(self, group: TaskGroup, destructive: int) -> int | None:
        """The number of further nodes that get the new version before its promotion; None without canaries."""
        update, deployment = group.update, self.current
        if (
            update is None
            or update.canary <= 0
            or update.max_parallel <= 0
            or self._context.evaluation.type != JOB_SYSTEM
        ):
            return None
        state = deployment.task_groups.get(group.name) if deployment is not None else None
        if (state is not None and (state.promoted or not state.desired_canaries)) or (deployment and state is None):
            return None
        existing = 0 if deployment is None else sum(map(is_canary, self._staying(deployment, group.name)))
        begun = 0 if state is None else state.desired_canaries
        desired = max(canaries_of(update.canary, destructive + existing), min(begun, destructive + existing))
        self._canaries[group.name] = desired
        if deployment is not None and deployment.status not in DEPLOYMENT_ACTIVE - {DEPLOYMENT_PAUSED}:
            return 0
        self._missing_canaries[group.name] = max(0, begun - existing - destructive)
        return max(0, min(desired - existing, destructive)) if desired else None

    def with_canaries(self, group: TaskGroup, fresh: Sequence[PlacementRequest]) -> list[PlacementRequest]:
        """The requests for nodes without an allocation, as canaries where the current deployment lacks some."""
        missing = self._missing_canaries.get(group.name, 0)
        if not missing:  # also a group that the deployment lacks, because it began with none of its nodes
            return list(fresh)
        self._missing_canaries[group.name] = max(0, missing - len(fresh))
        return [replace(request, is_canary=True) for request in fresh[:missing]] + list(fresh[missing:])

    def _budget(self, group: TaskGroup, desired: int) -> int:
        update = group.update
        if update is None or update.max_parallel <= 0 or self._context.evaluation.type != JOB_SYSTEM:
            return desired
        deployment = self.current
        if deployment is None:
            return min(desired, update.max_parallel)
        if deployment.status not in DEPLOYMENT_ACTIVE or deployment.status == DEPLOYMENT_PAUSED:
            return 0
        own = [
            alloc.deployment_status.healthy if alloc.deployment_status is not None else None
            for alloc in self._staying(deployment, group.name)
        ]
        if False in own:
            return 0
        return max(0, min(desired, update.max_parallel - own.count(None)))

    def begin(self, group: TaskGroup, counts: dict[str, int], *, replaced: int, new: int) -> None:
        """Start a deployment if a new version replaces allocations of the group or reaches new nodes."""
        job = self._job
        update = group.update
        if job.type == JOB_SYSTEM and self.current is None and update is not None and update.max_parallel > 0:
            has_current = any(is_current(a, job) for a in self._context.allocs if a.task_group == group.name)
            # Not those that stay as they are: of the newest version, or on nodes that are not ready.
            older = self._waiting.get(group.name, 0) + replaced
            in_place = counts["in_place_update"]
            total = in_place + new + older
            if total and (replaced or in_place or (new and not has_current)):
                canaries = self._canaries.get(group.name, 0)
                state = replace(fresh_state(group), desired_total=total, desired_canaries=canaries)
                self._draft.results.states[group.name] = state
                made = new_deployment(job, None, self._draft.results, ids=self._context.ids, now=self._context.now)
                deployment_id = self._draft.deployment.id if self._draft.deployment is not None else ""
                self._draft.deployment = made if made is None or not deployment_id else replace(made, id=deployment_id)
        elif self.current is not None and self.current.status in DEPLOYMENT_ACTIVE:
            self._draft.deployment = self.current

    def end(self, counts: Mapping[str, Mapping[str, int]], *, is_busy: bool) -> None:
        """Refer the plan to the new deployment, or complete the current one if no changes are left.

        `counts` are the `DesiredUpdates` of each group; `is_busy`: the plan has changes that the deployment waits for.
        """
        results, current = self._draft.results, self.current
        self._lower_canaries()
        results.deployment = self._draft.deployment if current is None else None
        if current is None or is_busy or current.status not in DEPLOYMENT_ACTIVE:
            return
        if all(self._is_over(name, state, counts.get(name, {})) for name, state in current.task_groups.items()):
            results.deployment_updates.append(
                DeploymentUpdate(deployment_id=current.id, status=DEPLOYMENT_SUCCESSFUL, status_description=SUCCESSFUL)
                if is_proven(current)
                else DeploymentUpdate(
                    deployment_id=current.id, status=DEPLOYMENT_CANCELLED, status_description=NODES_LEFT
                )
            )

    def _is_over(self, name: str, state: DeploymentState, counts: Mapping[str, int]) -> bool:
        """Whether nothing is left to roll out in a group of the current deployment: nodes that left are not awaited."""
        if self._waiting.get(name):
            return False
        return is_group_complete(state) or (is_promoted(state) and not counts.get("place") and self._is_healthy(name))

    def _lower_canaries(self) -> None:
        """Have the current deployment desire no more canaries than there are nodes for them."""
        current = self.current
        # An older server would take this for a new status and end a pause.
        if current is None or self._context.snapshot.last_rules < FEWER_CANARIES_RULES:
            return
        fewer = {
            name: canaries
            for name, missing in self._missing_canaries.items()
            if (canaries := max(1, current.task_groups[name].desired_canaries - missing))
            < current.task_groups[name].desired_canaries
        }
        if fewer:
            self._draft.results.deployment_updates.append(
                DeploymentUpdate(
                    deployment_id=current.id,
                    status=current.status,
                    status_description=current.status_description,
                    canaries=fewer,
                )
            )

    def _is_healthy(self, name: str) -> bool:
        """Whether all allocations of the group in the current deployment that stay are healthy."""
        assert self.current is not None
        return all(
            alloc.deployment_status is not None and alloc.deployment_status.healthy is True
            for alloc in self._staying(self.current, name)
        )

    def _staying(self, deployment: Deployment, group: str) -> list[Allocation]:
        """The live allocations of a group in a deployment that the plan does not stop, as it does on a lost node."""
        stopped = self._draft.stopped_ids()
        return [
            alloc
            for alloc in self._context.allocs
            if alloc.deployment_id == deployment.id
            and alloc.task_group == group
            and not is_terminal(alloc)
            and alloc.id not in stopped
        ]


def is_proven(deployment: Deployment) -> bool:
    """Whether an allocation of the deployment has become healthy: only then its version may be marked stable."""
    return any(state.healthy_allocs for state in deployment.task_groups.values())


def has_lost_all_nodes(deployment: Deployment) -> bool:
    """Whether the deployment was cancelled before its version ran anywhere: the next nodes begin another deployment."""
    return deployment.status == DEPLOYMENT_CANCELLED and not is_proven(deployment)


def canaries_of(percent: int, nodes: int) -> int:
    """The number of canary nodes: a percentage of those to be replaced, rounded up."""
    assert nodes >= 0, nodes
    return min(nodes, -(-percent * nodes // 100))
