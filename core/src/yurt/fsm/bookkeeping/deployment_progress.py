"""The effect of a command on deployments' progress: placed, healthy and unhealthy allocations by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from yurt.sdk.value import replace
from yurt.state import Tables, Transaction
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment, DeploymentState

_health_of: Final = attrgetter("deployment_status")


class GroupProgress:
    """The effect of one command on a group's deployment state."""

    __slots__ = ("canaries", "healthy", "healthy_at", "placed", "placed_at", "unhealthy")

    def __init__(self) -> None:
        self.placed = 0
        self.placed_at = 0
        self.healthy = 0
        self.healthy_at = 0
        self.unhealthy = 0
        self.canaries: list[str] = []


class DeploymentProgress:
    """The effect of one command on deployments, by deployment and group."""

    def __init__(self) -> None:
        self._by_group: dict[tuple[str, str], GroupProgress] = {}

    def note(self, before: Allocation | None, after: Allocation) -> None:
        """Record a placement in a deployment, or a change of health."""
        is_new = before is None or before.deployment_id != after.deployment_id
        was = None if is_new or before is None or before.deployment_status is None else before.deployment_status.healthy
        health = after.deployment_status
        now = None if health is None else health.healthy
        is_canary = health is not None and health.canary
        if not is_new and was == now:
            return
        progress = self._by_group.setdefault((after.deployment_id, after.task_group), GroupProgress())
        if is_new:
            progress.placed += 1
            progress.placed_at = progress.placed_at or after.modify_time
            if is_canary:
                progress.canaries.append(after.id)
        if was != now and now is not None and health is not None:
            progress.healthy += (1 if now else 0) - (1 if was else 0)
            progress.unhealthy += 0 if now else 1
            if now:
                progress.healthy_at = max(progress.healthy_at, health.timestamp)

    def note_placed(self, group: Sequence[Allocation]) -> None:
        """Record placements in one group of a deployment; most plans place none with a health of its own."""
        first = group[0]
        plain = list(map(_health_of, group)).count(None)  # in C: a plan places thousands
        for alloc in group if plain < len(group) else (first,):
            self.note(None, alloc)
        if plain == len(group):
            self._by_group[(first.deployment_id, first.task_group)].placed += plain - 1

    def changed(self, tx: Transaction, index: int) -> Iterator[Deployment]:
        """Each deployment with the progress of one group added; write each before requesting the next."""
        for (deployment_id, group), progress in self._by_group.items():
            assert progress.placed >= 0 and progress.unhealthy >= 0, "an allocation is placed, or found bad, once"
            assert progress.placed >= len(progress.canaries), "canaries are placed allocations"
            deployment: Deployment | None = tx.get(Tables.deployments, deployment_id)
            state = deployment.task_groups.get(group) if deployment is not None else None
            if deployment is not None and state is not None:
                yield _with_group(deployment, group, _advanced(state, progress), index=index)


def _advanced(state: DeploymentState, progress: GroupProgress) -> DeploymentState:
    return replace(
        state,
        placed_allocs=state.placed_allocs + progress.placed,
        healthy_allocs=state.healthy_allocs + progress.healthy,
        unhealthy_allocs=state.unhealthy_allocs + progress.unhealthy,
        placed_canaries=_with_new(state.placed_canaries, progress.canaries),
        require_progress_by=_progress_by(state, progress),
    )


def _progress_by(state: DeploymentState, progress: GroupProgress) -> int:
    """The progress deadline: the first placement starts it, and each newly healthy allocation extends it."""
    deadline = state.require_progress_by
    if not state.progress_deadline:
        return deadline
    if progress.placed and not deadline:
        deadline = progress.placed_at + state.progress_deadline
    if progress.healthy > 0:
        deadline = max(deadline, progress.healthy_at + state.progress_deadline)
    assert deadline >= state.require_progress_by, "a deadline moves on, never back"
    return deadline


def _with_new(ids: tuple[str, ...], added: list[str]) -> tuple[str, ...]:
    """The ids followed by those added that are not among them."""
    return (*ids, *(one for one in added if one not in ids)) if added else ids


def _with_group(deployment: Deployment, group: str, state: DeploymentState, *, index: int) -> Deployment:
    """A copy with one group's state changed."""
    groups = {**deployment.task_groups, group: state}
    return replace(deployment, task_groups=groups, modify_index=index)
