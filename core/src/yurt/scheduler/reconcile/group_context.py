"""The inputs for reconciling one group of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from yurt.scheduler.ids import SeededIds
from yurt.sdk.value import UnixNano
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node


class GroupContext(msgspec.Struct, frozen=True):
    """The inputs for reconciling a group; `deployment` is that of this job version, if any."""

    job: Job
    group: TaskGroup
    evaluation: Evaluation
    deployment: Deployment | None
    nodes: Mapping[str, Node | None]
    waiting_evals: frozenset[str]
    """Evaluations that wait of those for which idle allocations of the job ended."""
    now: UnixNano
    ids: SeededIds
    fits_in_place: Callable[[Allocation], bool]
