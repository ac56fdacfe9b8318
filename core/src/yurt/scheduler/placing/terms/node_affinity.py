"""Node affinity: the weighted share of affinities that a node meets, negative weights included."""

from __future__ import annotations

from typing import Final

import numpy as np

from yurt.scheduler.feasibility.masks import check_mask, constraint_check
from yurt.scheduler.placing.terms.term import UNIT, FixedTerm, ScoreTerm, TermContext, TermKind
from yurt.state.arrays import IntArray
from yurt.structs.constraint import Constraint


def _node_affinity(context: TermContext) -> ScoreTerm | None:
    view, job, group = context.view, context.job, context.group
    affinities = (*job.affinities, *group.affinities, *(a for task in group.tasks for a in task.affinities))
    weight = sum(abs(affinity.weight) for affinity in affinities)
    if not weight:
        return None
    total: IntArray = np.zeros(len(view.offered), np.int64)
    for affinity in affinities:
        constraint = Constraint(l_target=affinity.l_target, operand=affinity.operand, r_target=affinity.r_target)
        total += check_mask(view.snapshot, constraint_check(constraint)) * int(affinity.weight)
    return FixedTerm(NODE_AFFINITY.name, np.rint(total / weight * UNIT).astype(np.int64))


NODE_AFFINITY: Final = TermKind("node-affinity", is_always_shown=True, make=_node_affinity)
