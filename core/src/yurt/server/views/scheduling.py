"""The results of scheduling: evaluations, allocations, deployments."""

from __future__ import annotations

from yurt.access import Scope
from yurt.fsm.evals import why_broker_forbids_deletion, why_evaluation_stays
from yurt.server.views.rows import NamespacedRow
from yurt.state.tables import JobKey
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation


class AllocationRows(NamespacedRow[str, Allocation]):
    """Allocations; indexed by `job`, `node` and `eval`."""

    __slots__ = ()
    name = "allocs"

    def count_of_job(self, key: JobKey) -> int:
        """A job's number of allocations; they share its namespace, so one decision suffices."""
        return self._table.count_where("job", key) if self._access.allows(Scope(namespace=key[0])) else 0


class EvaluationRows(NamespacedRow[str, Evaluation]):
    """Evaluations; indexed by `job`."""

    __slots__ = ()
    name = "evals"

    def why_it_stays(self, row: Evaluation) -> str:
        """Why an evaluation must not be deleted; "" when it may."""
        return why_evaluation_stays(self._state, row)

    @property
    def why_none_is_deletable(self) -> str:
        """Why no evaluation may be deleted by hand now; "" while the evaluation broker is paused."""
        return why_broker_forbids_deletion(self._state.scheduler_config)


class DeploymentRows(NamespacedRow[str, Deployment]):
    """Deployments; indexed by `job`."""

    __slots__ = ()
    name = "deployments"

    def newest_of(self, key: JobKey) -> Deployment | None:
        """The newest deployment of a job."""
        deployment = self._state.latest_deployment(*key)
        return deployment if deployment is not None and self._sees(deployment) else None
