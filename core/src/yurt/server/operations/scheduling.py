"""Changes to allocations, deployments and evaluations, found by id; the namespace comes from their row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from yurt.access import Access, Scope
from yurt.sdk.errors import NotFound
from yurt.sdk.value import Duration
from yurt.server.log.log_writer import LogWriter
from yurt.server.resources.allocs import Allocs
from yurt.server.resources.deployments import Deployments
from yurt.server.results import AllocStopped, DeploymentChanged, IdleDeferral
from yurt.structs.commands import DeleteEvaluations

DELETE_BATCH: Final = 200
"""Evaluations deleted by one command: bounds the time its application blocks the loop."""


class AllocationOperations:
    """Operations on allocations for one caller."""

    __slots__ = ("_access", "_allocs", "_writer")

    def __init__(self, allocs: Allocs, writer: LogWriter, access: Access) -> None:
        self._allocs = allocs
        self._writer = writer
        self._access = access

    async def stop(self, alloc_id: str, *, no_shutdown_delay: bool, reschedule: bool) -> AllocStopped:
        """Stop an allocation; raises NotFound also for one the caller may not see."""
        alloc = self._writer.state.allocs.get(alloc_id)
        if alloc is None or not self._access.allows(Scope(namespace=alloc.namespace)):
            raise NotFound("allocation not found")
        return await self._allocs.stop(alloc_id, no_shutdown_delay=no_shutdown_delay, reschedule=reschedule)

    async def keep(self, alloc_id: str, duration: Duration) -> IdleDeferral:
        """Put off the end of an idle allocation; raises NotFound also for one the caller may not see."""
        alloc = self._writer.state.allocs.get(alloc_id)
        if alloc is None or not self._access.allows(Scope(namespace=alloc.namespace)):
            raise NotFound("allocation not found")
        return await self._allocs.keep(alloc_id, duration)


class DeploymentOperations:
    """Operations on deployments for one caller; each raises NotFound also for one the caller may not see."""

    __slots__ = ("_access", "_deployments", "_writer")

    def __init__(self, deployments: Deployments, writer: LogWriter, access: Access) -> None:
        self._deployments = deployments
        self._writer = writer
        self._access = access

    async def fail(self, deployment_id: str) -> DeploymentChanged:
        """Fail a deployment, with the rollback that its groups require."""
        self._require(deployment_id)
        return await self._deployments.fail(deployment_id)

    async def pause(self, deployment_id: str, *, pause: bool) -> DeploymentChanged:
        """Pause or resume a deployment."""
        self._require(deployment_id)
        return await self._deployments.pause(deployment_id, pause=pause)

    async def promote(self, deployment_id: str, *, groups: tuple[str, ...] | None) -> DeploymentChanged:
        """Promote the canaries of the named groups, or of all."""
        self._require(deployment_id)
        return await self._deployments.promote(deployment_id, groups=groups)

    async def set_alloc_health(
        self, deployment_id: str, *, healthy: tuple[str, ...], unhealthy: tuple[str, ...]
    ) -> DeploymentChanged:
        """Set the health of a deployment's allocations manually."""
        self._require(deployment_id)
        return await self._deployments.set_alloc_health(deployment_id, healthy=healthy, unhealthy=unhealthy)

    def _require(self, deployment_id: str) -> None:
        deployment = self._writer.state.deployments.get(deployment_id)
        # An unknown deployment is left to the operation, which decides on the newest state.
        if deployment is not None and not self._access.allows(Scope(namespace=deployment.namespace)):
            raise NotFound("deployment not found")


class EvaluationOperations:
    """Operations on evaluations; their route needs a management token in any namespace."""

    __slots__ = ("_writer",)

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer

    async def delete(self, eval_ids: Sequence[str], *, is_strict: bool) -> tuple[int, int]:
        """Delete ended evaluations in batches; returns the last index and the number deleted.

        With `is_strict` one that is live again refuses the remaining ones; without it `apply` leaves that one out. A
        broker that is not paused refuses the remaining ones as well. No evaluations are an empty command:
        that nothing is deleted is decided in the log, too.
        """
        if not eval_ids:
            return (await self._writer.propose(DeleteEvaluations(requires_pause=True))).index, 0
        index, deleted = self._writer.state.index, 0
        async for part in self._writer.turns.slices(eval_ids, DELETE_BATCH):
            command = DeleteEvaluations(eval_ids=tuple(part), is_strict=is_strict, requires_pause=True)
            done = await self._writer.propose(command)
            index, deleted = done.index, deleted + sum(eval_id not in done.state.evals for eval_id in part)
        return index, deleted
