"""What one group of a job is reconciled against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from yurt.scheduler.ids import SeededIds
from yurt.sdk.value import UnixNano
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node


class GroupContext(NamedTuple):
    """What a group is reconciled against; `deployment` is the one of this very job version, if any."""

    job: Job
    group: TaskGroup
    evaluation: Evaluation
    deployment: Deployment | None
    nodes: Mapping[str, Node | None]
    now: UnixNano
    ids: SeededIds
    fits_in_place: Callable[[Allocation], bool]
