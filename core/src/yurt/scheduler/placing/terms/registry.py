"""All score terms, in the order of score tables.

The order is part of the API's answers and of what `eval replay` compares: a new term goes to the end.
"""

from __future__ import annotations

from typing import Final

from yurt.scheduler.placing.preemption import PREEMPTION
from yurt.scheduler.placing.spread import ALLOCATION_SPREAD
from yurt.scheduler.placing.terms.binpack import BINPACK
from yurt.scheduler.placing.terms.device_affinity import DEVICE_AFFINITY
from yurt.scheduler.placing.terms.job_anti_affinity import JOB_ANTI_AFFINITY
from yurt.scheduler.placing.terms.node_affinity import NODE_AFFINITY
from yurt.scheduler.placing.terms.reschedule_penalty import RESCHEDULE_PENALTY
from yurt.scheduler.placing.terms.suspect_devices import SUSPECT_DEVICES
from yurt.scheduler.placing.terms.term import ScoreTerm, TermContext, TermKind

KINDS: Final[tuple[TermKind, ...]] = (
    BINPACK,
    JOB_ANTI_AFFINITY,
    NODE_AFFINITY,
    RESCHEDULE_PENALTY,
    DEVICE_AFFINITY,
    ALLOCATION_SPREAD,
    PREEMPTION,
    SUSPECT_DEVICES,
)
ALWAYS_SHOWN: Final = {kind.name: 0.0 for kind in KINDS if kind.is_always_shown}
"""The zeros with which every score table begins; copied, never changed."""
COUNTED_AT_ZERO: Final = frozenset(kind.name for kind in KINDS if kind.counts_at_zero)
ALONE: Final = frozenset(kind.name for kind in KINDS if not kind.compares_nodes)
"""Terms that depend on one node only."""


def terms_of(context: TermContext) -> tuple[ScoreTerm, ...]:
    """The terms that apply to a group, except those computed by the ranker itself."""
    made = [kind.make(context) for kind in KINDS if kind.make is not None]
    return tuple(term for term in made if term is not None)
