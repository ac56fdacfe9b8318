"""Explanations: why an allocation is on its node, why a job is unplaced, and replays of evaluations.

An explanation looks at the whole state, as the scheduler does. Whether the caller may ask for it depends on the
namespace of the allocation, job or evaluation that it is about. It names nodes, with their attributes and free amounts,
only to callers who may read nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from yurt.access import Access, Scope, needs
from yurt.rules.child_jobs import instance_of
from yurt.sdk.errors import DENIED, PermissionDenied
from yurt.sdk.value import UnixNano, replace
from yurt.server.config import ServerConfig
from yurt.server.resources.admission import Admission, admitted, with_defaults
from yurt.state import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.explanation import AllocationExplanation, JobExplanation, Replay
from yurt.structs.job import Job

if TYPE_CHECKING:
    from yurt.scheduler.capacity.limits import LimitsOf
    from yurt.scheduler.explain.disclosure import Disclosure


class Explanations:
    """Explanations on one state for one caller; each is computed in a thread."""

    __slots__ = ("_access", "_config", "_limits", "_replay", "_state")

    def __init__(
        self,
        state: Snapshot,
        access: Access,
        *,
        config: ServerConfig,
        limits: Mapping[str, LimitsOf],
        replay: Callable[[str], Awaitable[Replay]],
    ) -> None:
        self._state = state
        self._access = access
        self._config = config
        self._limits = limits
        self._replay = replay

    @property
    def index(self) -> int:
        """The index of the state."""
        return self._state.index

    async def why(self, alloc: Allocation, *, seed: int) -> AllocationExplanation:
        """The reasons why an allocation is on its node."""
        from yurt.scheduler import explain

        self._access.require(Scope(namespace=alloc.namespace))
        work = partial(explain.why, self._state, alloc, seed=seed, disclosure=self._disclosure())
        explanation = await asyncio.to_thread(work)
        return replace(explanation, preempted_allocations=self._visible(explanation.preempted_allocations))

    def _disclosure(self) -> Disclosure:
        """What the caller may learn of nodes and of other jobs."""
        from yurt.scheduler.explain.disclosure import Disclosure

        allows = self._access.for_thread().allows_namespace
        return Disclosure(reads_nodes=self._access.reads_nodes, reads_jobs_in=allows)

    def _visible(self, alloc_ids: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the allocations that the caller may read, since preemption crosses namespaces.

        Where a forgotten one lay nobody can tell any more.
        """
        if self._access.sees_all:
            return alloc_ids
        rows = ((alloc_id, self._state.allocs.get(alloc_id)) for alloc_id in alloc_ids)
        return tuple(
            alloc_id
            for alloc_id, alloc in rows
            if alloc is not None and self._access.allows(Scope(namespace=alloc.namespace))
        )

    async def admission(self, job: Job) -> Admission:
        """The problems of an unregistered job."""
        self._access.require(Scope(namespace=job.namespace))
        ready, reads_nodes = with_defaults(self._state, job), self._access.reads_nodes
        return await admitted(self._state, ready, self._config, reads_nodes=reads_nodes)

    async def why_not(self, job: Job, *, now: UnixNano, seed: int, node_id: str = "") -> JobExplanation:
        """The placements of registering or evaluating the job, and the reasons for its unplaced allocations.

        With `node_id` also what that node lacks, for callers who may read nodes.
        """
        from yurt.scheduler import explain

        self._access.require(Scope(namespace=job.namespace))
        disclosure = self._disclosure()._replace(node_id=node_id)
        if node_id and not disclosure.reads_nodes:
            raise PermissionDenied(DENIED)
        instance = instance_of(with_defaults(self._state, job))
        work = partial(explain.why_not, self._state, instance, now=now, seed=seed, disclosure=disclosure)
        explanation = replace(await asyncio.to_thread(work, **self._limits), job_id=job.id)
        access = self._access.narrowed(needs.ANY_CAPABILITY).for_thread()
        return await asyncio.to_thread(self._with_quota_notes, explanation, access)

    def _with_quota_notes(self, explanation: JobExplanation, access: Access) -> JobExplanation:
        """The explanation with the usage of an exhausted quota, by the namespaces that the caller may see."""
        if not any(blocker.kind == "quota" for group in explanation.groups for blocker in group.blockers):
            return explanation
        from yurt.scheduler.explain.quota_notes import quota_notes

        notes_of = partial(
            quota_notes,
            self._state,
            namespace=explanation.namespace,
            region=self._config.region,
            sees=lambda name: access.allows(Scope(namespace=name)),
        )
        groups = tuple(replace(group, notes=(*group.notes, *notes_of(group))) for group in explanation.groups)
        return replace(explanation, groups=groups)

    async def replay(self, evaluation: Evaluation) -> Replay:
        """Repeat an evaluation's attempts and compare; raises NotFound or Conflict."""
        self._access.require(Scope(namespace=evaluation.namespace))
        return await self._replay(evaluation.id)
