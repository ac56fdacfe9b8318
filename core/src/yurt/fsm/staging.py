"""Plans too large for one command: staged in parts and applied atomically.

Their parts are staged under the plan's id, where nobody looks, and one command applies all of them at its own index.
What a leader staged and did not apply, the next one drops. The applier of the leader counts staged placements as taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from yurt.fsm.edit import Edit
from yurt.fsm.host_volumes import PlanWriters
from yurt.fsm.plans import apply_plan, beyond_guarantees, gang_below_minimum
from yurt.fsm.reject import invalid, not_found, stale
from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.structs.commands import ApplyPlan, Rejected, StagePlan
from yurt.structs.commands.packed import unpacked
from yurt.structs.plan import Plan, StagedPlan

PARTS_MAX: Final = 16_384


def stage_plan(edit: Edit, command: StagePlan) -> Rejected | None:
    """Stage one part of a plan."""
    if not command.plan_id or not 0 <= command.number < PARTS_MAX:
        return invalid(f"a staged plan has an id and at most {PARTS_MAX} parts")
    try:
        plan = unpacked(command.plan)
    except Invalid as error:
        return invalid(str(error))
    edit.tx.put(Tables.staged_plans, (command.plan_id, command.number), StagedPlan(plan=plan))
    return None


def drop_staged(edit: Edit, plan_id: str) -> Rejected | None:
    """Drop the parts of one plan, or of all plans."""
    for key in sorted(edit.tx.base.staged_plans.keys()):
        if plan_id in ("", key[0]):
            edit.tx.delete(Tables.staged_plans, key)
    return None


def apply_staged(edit: Edit, command: ApplyPlan) -> Rejected | None:
    """Apply a plan with its staged parts, if any."""
    present = edit.tx.present(Tables.allocs, command.follows)
    missing = set(command.follows).difference(present)
    if missing:
        return stale(f'an earlier part of the plan was rejected: allocation "{min(missing)}" is not there')
    if not command.staged:
        return apply_plan(edit, command.plan, checked_at=command.checked_at)
    if not 0 < command.parts <= PARTS_MAX:
        return invalid(f"a staged plan has 1 to {PARTS_MAX} parts")
    keys = [(command.staged, number) for number in range(command.parts)]
    if len(edit.tx.present(Tables.staged_plans, keys)) < len(keys):
        return not_found(f'parts of the staged plan "{command.staged}" are missing')
    parts = [*(row.plan for row in edit.tx.rows(Tables.staged_plans, keys)), command.plan]
    for key in keys:
        edit.tx.delete(Tables.staged_plans, key)
    rejected = _whole_beyond_guarantees(edit, parts)
    writers: PlanWriters = {}
    for part in parts:
        rejected = rejected or apply_plan(edit, part, checked_at=command.checked_at, writers=writers)
    return rejected or gang_below_minimum(edit, parts[-1])


def _whole_beyond_guarantees(edit: Edit, parts: Sequence[Plan]) -> Rejected | None:
    """The rejection of parts that together preempt guaranteed allocations; each alone might not."""
    if not (parts[-1].guarantees_of and any(part.preemptions for part in parts)):
        return None
    try:
        bare = tuple(map(unpacked, parts))
    except Invalid as error:
        return invalid(str(error))
    whole = replace(
        bare[-1],
        placements=tuple(each for part in bare for each in part.placements),
        stops=tuple(each for part in bare for each in part.stops),
        preemptions=tuple(each for part in bare for each in part.preemptions),
    )
    return beyond_guarantees(edit, whole)
