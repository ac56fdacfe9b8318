"""Counts of a job's allocations by state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from yurt.sdk.value import INTERNAL, Value, no_entries


class TaskGroupSummary(Value):
    """Allocations of one group by state."""

    queued: int = 0
    complete: int = 0
    failed: int = 0
    running: int = 0
    starting: int = 0
    lost: int = 0
    unknown: int = 0


class JobChildrenSummary(Value):
    """Children of a periodic or parameterized job by state."""

    pending: int = 0
    running: int = 0
    dead: int = 0


class JobSummary(Value):
    """Allocations of a job by group and state."""

    job_id: str = ""
    namespace: str = ""
    summary: Mapping[str, TaskGroupSummary] = no_entries()
    children: JobChildrenSummary | None = None
    create_index: int = 0
    modify_index: int = 0
    plan_index: Annotated[int, INTERNAL] = 0
    """The index of the newest plan that placed allocations of the job: a plan that was made without it is stale."""
    plan_token: Annotated[str, INTERNAL] = ""
    """The token of that plan's evaluation: a large plan is stored in parts, each at an index of its own."""
    plan_snapshot_index: Annotated[int, INTERNAL] = 0
    """The index of the state on which that plan was made: all its parts have it, and no other plan of the token."""
