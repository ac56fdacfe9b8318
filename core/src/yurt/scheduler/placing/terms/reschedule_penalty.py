"""Node reschedule penalty: applies to nodes on which the allocation or a predecessor failed."""

from __future__ import annotations

from typing import Final

from yurt.scheduler.placing.terms.term import UNIT, TermKind

RESCHEDULE_PENALTY: Final = TermKind("node-reschedule-penalty", is_always_shown=True)
PENALTY: Final = -UNIT
"""The value on penalized nodes; on all others the term does not count."""
