"""Operations on deployments: fail, pause, promote, health by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.duties.deployments import failed_by_user
from yurt.duties.evals import Mint, evaluation_of
from yurt.sdk.errors import Invalid, NotFound
from yurt.sdk.value import replace
from yurt.server.results import DeploymentChanged
from yurt.structs import status
from yurt.structs.commands import (
    AnyCommand,
    PromoteDeployment,
    SetDeploymentAllocHealth,
    SetDeploymentStatus,
)
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.questions import is_deployment_active

if TYPE_CHECKING:
    from yurt.server.server import Server


class Deployments:
    """Operations on deployments."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def fail(self, deployment_id: str) -> DeploymentChanged:
        """End a deployment as failed, with the roll-back that its groups ask for."""
        deployment, job = self._find_active(deployment_id, "can't fail terminal deployment")
        command = failed_by_user(self._server.state, deployment, job, self._mint())
        reverted = _reverted_version(command)
        changed = await self._store(command, command.evaluation)
        return replace(changed, reverted_job_version=reverted)

    async def pause(self, deployment_id: str, *, pause: bool) -> DeploymentChanged:
        """Pause a deployment or let it go on."""
        deployment, job = self._find_active(
            deployment_id, f"can't {'pause' if pause else 'resume'} terminal deployment"
        )
        update = DeploymentUpdate(
            deployment_id=deployment_id,
            status=status.DEPLOYMENT_PAUSED if pause else status.DEPLOYMENT_RUNNING,
            status_description="Deployment is paused" if pause else "Deployment is running",
        )
        evaluation = None if pause else self._evaluation(job, deployment)
        command = SetDeploymentStatus(update=update, evaluation=evaluation, now=self._server.env.now())
        return await self._store(command, evaluation)

    async def promote(self, deployment_id: str, *, groups: tuple[str, ...] = ()) -> DeploymentChanged:
        """Promote the canaries of some groups, or of all when none is named."""
        deployment, job = self._find_active(deployment_id, "can't promote terminal deployment")
        evaluation = self._evaluation(job, deployment)
        command = PromoteDeployment(
            deployment_id=deployment_id, groups=groups, evaluation=evaluation, now=self._server.env.now()
        )
        return await self._store(command, evaluation)

    async def set_alloc_health(
        self, deployment_id: str, *, healthy: tuple[str, ...] = (), unhealthy: tuple[str, ...] = ()
    ) -> DeploymentChanged:
        """Decide by hand which allocations of a deployment are healthy."""
        deployment, job = self._find_active(deployment_id, "can't set health of allocations for a terminal deployment")
        if not healthy and not unhealthy:
            raise Invalid("must specify at least one healthy/unhealthy allocation ID")
        evaluation = self._evaluation(job, deployment)
        command = SetDeploymentAllocHealth(
            deployment_id=deployment_id,
            healthy=healthy,
            unhealthy=unhealthy,
            evaluation=evaluation,
            now=self._server.env.now(),
        )
        return await self._store(command, evaluation)

    async def _store(self, command: AnyCommand, evaluation: Evaluation | None) -> DeploymentChanged:
        applied = await self._server.propose(command)
        return DeploymentChanged(
            eval_id=evaluation.id if evaluation is not None else "",
            eval_create_index=applied.index if evaluation is not None else 0,
            deployment_modify_index=applied.index,
            index=applied.index,
        )

    def _find_active(self, deployment_id: str, refusal: str) -> tuple[Deployment, Job]:
        state = self._server.state
        deployment = state.deployments.get(deployment_id)
        if deployment is None:
            raise NotFound("deployment not found")
        if not is_deployment_active(deployment):
            raise Invalid(refusal)
        job = state.jobs.get((deployment.namespace, deployment.job_id))
        if job is None:
            raise NotFound(f'job "{deployment.job_id}" of the deployment not found')
        return deployment, job

    def _evaluation(self, job: Job, deployment: Deployment) -> Evaluation:
        evaluation = evaluation_of(job, status.TRIGGER_DEPLOYMENT_WATCHER, self._mint())
        return replace(evaluation, deployment_id=deployment.id)

    def _mint(self) -> Mint:
        return Mint(self._server.env.now(), self._server.env.uuid)


def _reverted_version(command: SetDeploymentStatus) -> int | None:
    return command.job.version if command.job is not None else None
