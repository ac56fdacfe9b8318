"""The protocol by which explanations read a finished attempt.

`job_types` implements these protocols without knowing of them. `dry_runs` is the only module of this package that makes
attempts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.scheduler.reconcile.results import PlacementRequest
from yurt.structs.deployment import Deployment
from yurt.structs.explain.metrics import AllocationMetric


class _Finished(Protocol):
    """Common parts of the attempts of all job types."""

    @property
    def context(self) -> AttemptContext:
        """The state that the attempt saw, its time, its job and evaluation."""
        ...

    @property
    def draft(self) -> PlanDraft:
        """Its stops and placements, and the unplaced groups."""
        ...

    @property
    def view(self) -> ClusterView:
        """The cluster including the plan."""
        ...

    @property
    def placers(self) -> Mapping[str, GroupPlacer]:
        """By group: its feasible nodes, its ranking and the refusals of nodes."""
        ...

    @property
    def limit_reached(self) -> str:
        """The cluster-wide limit that refused a placement; "" for none."""
        ...


class FinishedGeneric(_Finished, Protocol):
    """An attempt at a service or batch job."""

    @property
    def kind(self) -> Literal["generic"]:
        """Discriminates the two protocols."""
        ...

    @property
    def version_deployment(self) -> Deployment | None:
        """The deployment of the job's version, ended or not."""
        ...

    @property
    def requests(self) -> Sequence[PlacementRequest]:
        """All placements requested by the reconciler."""
        ...

    @property
    def broken(self) -> Mapping[str, AllocationMetric]:
        """Gangs with too few placed members, with the reason."""
        ...


class FinishedSystem(_Finished, Protocol):
    """An attempt at a system or sysbatch job."""

    @property
    def kind(self) -> Literal["system"]:
        """Discriminates the two protocols."""
        ...

    @property
    def done(self) -> Mapping[str, int]:
        """The nodes on which a sysbatch job has completed, by group."""
        ...

    @property
    def failed_nodes(self) -> Mapping[str, set[str]]:
        """The groups without capacity on a node, by node."""
        ...


FinishedAttempt = FinishedGeneric | FinishedSystem
