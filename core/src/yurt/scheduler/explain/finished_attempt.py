"""What explanations read of an attempt that has run; nothing else of an attempt is theirs to read.

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
    """Common to the schedulers of all types of job."""

    @property
    def context(self) -> AttemptContext:
        """The state that the attempt saw, its time, its job and evaluation."""
        ...

    @property
    def draft(self) -> PlanDraft:
        """What it stops and places, and the groups that found no node."""
        ...

    @property
    def view(self) -> ClusterView:
        """The cluster with the plan laid over it."""
        ...

    @property
    def placers(self) -> Mapping[str, GroupPlacer]:
        """By group: its feasible nodes, its ranking and why nodes refused."""
        ...

    @property
    def limit_reached(self) -> str:
        """The limit beside the nodes that refused a placement; empty for none."""
        ...


class FinishedGeneric(_Finished, Protocol):
    """An attempt at a service or batch job."""

    @property
    def kind(self) -> Literal["generic"]:
        """Tells both protocols apart."""
        ...

    @property
    def version_deployment(self) -> Deployment | None:
        """The deployment of the job's version, ended or not."""
        ...

    @property
    def wanted(self) -> Sequence[PlacementRequest]:
        """All placements that the reconciler asked for."""
        ...

    @property
    def broken(self) -> Mapping[str, AllocationMetric]:
        """Gangs with too few members placed, and why."""
        ...


class FinishedSystem(_Finished, Protocol):
    """An attempt at a system or sysbatch job."""

    @property
    def kind(self) -> Literal["system"]:
        """Tells both protocols apart."""
        ...

    @property
    def done(self) -> Mapping[str, int]:
        """By group: nodes on which a sysbatch job has ended."""
        ...

    @property
    def failed_nodes(self) -> Mapping[str, set[str]]:
        """By node: the groups that found no capacity on it."""
        ...


FinishedAttempt = FinishedGeneric | FinishedSystem
