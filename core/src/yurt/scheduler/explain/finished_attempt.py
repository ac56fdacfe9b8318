"""What explanations read of an attempt that has run; nothing else of an attempt is theirs to read.

`job_types` implements these protocols without knowing of them. `dry_runs` is the only module of this package that makes
attempts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.scheduler.reconcile.results import PlacementRequest
from yurt.sdk.value import UnixNano
from yurt.state.store import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop


class _Finished(Protocol):
    """Common to the schedulers of all types of job."""

    @property
    def snapshot(self) -> Snapshot:
        """The state that the attempt saw."""
        ...

    @property
    def now(self) -> UnixNano:
        """Its time."""
        ...

    @property
    def job(self) -> Job | None:
        """The job; None when it was purged."""
        ...

    @property
    def allocs(self) -> Sequence[Allocation]:
        """All stored allocations of the job."""
        ...

    @property
    def stops(self) -> Sequence[AllocStop]:
        """The allocations that the plan stops."""
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
    def failed(self) -> Mapping[str, AllocationMetric]:
        """By group: the metrics of its first placement that found no node."""
        ...

    @property
    def queued(self) -> Mapping[str, int]:
        """By group: how many allocations are not placed."""
        ...

    @property
    def replacing(self) -> Mapping[str, Sequence[Allocation]]:
        """By group: allocations whose capacity counted as free for a placement that found no node even so."""
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
    def evaluation(self) -> Evaluation:
        """The evaluation that asked for the attempt."""
        ...

    @property
    def deployment(self) -> Deployment | None:
        """The active deployment of the job's version."""
        ...

    @property
    def told_deployment(self) -> Deployment | None:
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

    @property
    def withdrawn(self) -> Mapping[str, int]:
        """By group: placements withdrawn because `all_at_once` was not met."""
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
