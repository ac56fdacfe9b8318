"""A state with plans laid over it that are not stored yet.

Only what the plans take of the nodes is foreseen, for that is all in which one job's plan can spoil another's: nothing
else of a job is looked at by the schedulers of other jobs, nor by the check of their plans. A stop frees nothing until
its client says so, here as in the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from yurt.sdk.value import replace
from yurt.state import Change, Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.plan import Plan


def foresee(snapshot: Snapshot, plans: Iterable[Plan]) -> Snapshot:
    """The snapshot with the usage of the plans' placements and updates; what is stored already counts once."""
    changes = [change for plan in plans for change in _changes(snapshot, plan)]
    return snapshot.with_columns(snapshot.columns.apply(changes)) if changes else snapshot


def _changes(snapshot: Snapshot, plan: Plan) -> Iterator[Change]:
    for placement in plan.placements:
        if placement.id not in snapshot.allocs:
            job = snapshot.version(plan.namespace, plan.job_id, placement.job_version)
            alloc = Allocation(
                id=placement.id,
                node_id=placement.node_id,
                job=job,
                task_group=placement.task_group,
                allocated_resources=placement.resources,
            )
            yield Change("allocs", placement.id, None, alloc)
    for update in plan.in_place:
        before = snapshot.allocs.get(update.id)
        if before is not None and update.resources is not None:
            yield Change("allocs", update.id, before, replace(before, allocated_resources=update.resources))
