"""Operations on deployments: fail, pause, promote, set health manually."""

from __future__ import annotations

from yurt.duties.deployments import failed_by_user
from yurt.fsm.basis import expectation
from yurt.fsm.eval_triggers import Mint, evaluation_of
from yurt.sdk.errors import Invalid, NotFound
from yurt.sdk.value import replace
from yurt.server.log.log_writer import Committed
from yurt.server.log.replica import Replica
from yurt.server.results import DeploymentChanged
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.commands import (
    Expectation,
    PromoteDeployment,
    SetDeploymentAllocHealth,
    SetDeploymentStatus,
)
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.predicates import is_deployment_active


class Deployments:
    """Operations on deployments."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def fail(self, deployment_id: str) -> DeploymentChanged:
        """Fail a deployment, with the rollback that its groups require."""
        mint, eval_id, reverted = self._replica.mint(), self._replica.env.uuid(), None

        async def decision(state: Snapshot) -> SetDeploymentStatus:
            nonlocal reverted
            deployment, job = _find_active(state, deployment_id, "can't fail terminal deployment")
            command = failed_by_user(state, deployment, job, mint)
            reverted = command.job.version if command.job is not None else None
            evaluation = _evaluation(job, deployment, mint, eval_id)
            return replace(command, evaluation=evaluation, based_on=_basis(state, deployment))

        changed = _changed(await self._replica.decide(decision), eval_id)
        return replace(changed, reverted_job_version=reverted)

    async def pause(self, deployment_id: str, *, pause: bool) -> DeploymentChanged:
        """Pause or resume a deployment."""
        mint, eval_id = self._replica.mint(), self._replica.env.uuid()
        update = DeploymentUpdate(
            deployment_id=deployment_id,
            status=status.DEPLOYMENT_PAUSED if pause else status.DEPLOYMENT_RUNNING,
            status_description="Deployment is paused" if pause else "Deployment is running",
        )

        async def decision(state: Snapshot) -> SetDeploymentStatus:
            refusal = f"can't {'pause' if pause else 'resume'} terminal deployment"
            deployment, job = _find_active(state, deployment_id, refusal)
            evaluation = None if pause else _evaluation(job, deployment, mint, eval_id)
            basis = _basis(state, deployment)
            return SetDeploymentStatus(update=update, evaluation=evaluation, now=mint.now, based_on=basis)

        return _changed(await self._replica.decide(decision), eval_id)

    async def promote(self, deployment_id: str, *, groups: tuple[str, ...] | None = ()) -> DeploymentChanged:
        """Promote the canaries of the named groups, of all for (); None: the request does not say of which."""
        mint, eval_id = self._replica.mint(), self._replica.env.uuid()

        async def decision(state: Snapshot) -> PromoteDeployment:
            deployment, job = _find_active(state, deployment_id, "can't promote terminal deployment")
            if groups is None:
                raise Invalid("All or Groups must be specified, and only one of them")
            evaluation, basis = _evaluation(job, deployment, mint, eval_id), _basis(state, deployment)
            return PromoteDeployment(
                deployment_id=deployment_id, groups=groups, evaluation=evaluation, now=mint.now, based_on=basis
            )

        return _changed(await self._replica.decide(decision), eval_id)

    async def set_alloc_health(
        self, deployment_id: str, *, healthy: tuple[str, ...] = (), unhealthy: tuple[str, ...] = ()
    ) -> DeploymentChanged:
        """Set the health of a deployment's allocations manually."""
        mint, eval_id = self._replica.mint(), self._replica.env.uuid()

        async def decision(state: Snapshot) -> SetDeploymentAllocHealth:
            refusal = "can't set health of allocations for a terminal deployment"
            deployment, job = _find_active(state, deployment_id, refusal)
            if not healthy and not unhealthy:
                raise Invalid("must specify at least one healthy/unhealthy allocation ID")
            return SetDeploymentAllocHealth(
                deployment_id=deployment_id,
                healthy=healthy,
                unhealthy=unhealthy,
                evaluation=_evaluation(job, deployment, mint, eval_id),
                now=mint.now,
                based_on=_basis(state, deployment),
            )

        return _changed(await self._replica.decide(decision), eval_id)


def _find_active(state: Snapshot, deployment_id: str, refusal: str) -> tuple[Deployment, Job]:
    deployment = state.deployments.get(deployment_id)
    if deployment is None:
        raise NotFound("deployment not found")
    if not is_deployment_active(deployment):
        raise Invalid(refusal)
    job = state.jobs.get((deployment.namespace, deployment.job_id))
    if job is None:
        raise NotFound(f'job "{deployment.job_id}" of the deployment not found')
    return deployment, job


def _basis(state: Snapshot, deployment: Deployment) -> tuple[Expectation, ...]:
    """The basis of a decision on a deployment: its job, which a rollback replaces. `apply` checks the status."""
    return (expectation(state, "jobs", (deployment.namespace, deployment.job_id)),)


def _evaluation(job: Job, deployment: Deployment, mint: Mint, eval_id: str) -> Evaluation:
    evaluation = evaluation_of(job, status.TRIGGER_DEPLOYMENT_WATCHER, mint)
    return replace(evaluation, id=eval_id, deployment_id=deployment.id)


def _changed(committed: Committed, eval_id: str) -> DeploymentChanged:
    """The result of a deployment command in the API's form."""
    is_evaluated = eval_id in committed.state.evals
    return DeploymentChanged(
        eval_id=eval_id if is_evaluated else "",
        eval_create_index=committed.index if is_evaluated else 0,
        deployment_modify_index=committed.index,
        index=committed.index,
    )
