"""The last launch of each periodic job, so that a new leader launches no instant twice."""

from __future__ import annotations

from yurt.fsm.edit import Edit
from yurt.sdk.value import UnixNano
from yurt.state import Tables
from yurt.structs.cluster import PeriodicLaunch
from yurt.structs.job import Job


def record_launch(edit: Edit, job: Job, launched_at: UnixNano) -> None:
    """Record a launch, unless a later one is recorded already."""
    existing: PeriodicLaunch | None = edit.tx.get(Tables.periodic_launches, job.key)
    if existing is not None and existing.launch >= launched_at:
        return
    launch = PeriodicLaunch(
        namespace=job.namespace,
        id=job.id,
        launch=launched_at,
        create_index=edit.index if existing is None else existing.create_index,
        modify_index=edit.index,
    )
    edit.tx.put(Tables.periodic_launches, job.key, launch)
