"""The score terms of one group, compiled for the ranker's inner loop."""

from __future__ import annotations

from collections.abc import Iterable

from yurt.scheduler.placing.terms.binpack import BINPACK, Binpack
from yurt.scheduler.placing.terms.job_anti_affinity import JOB_ANTI_AFFINITY, JobAntiAffinity
from yurt.scheduler.placing.terms.registry import ALWAYS_SHOWN, COUNTED_AT_ZERO, terms_of
from yurt.scheduler.placing.terms.term import UNIT, ScoreTerm, TermContext

_BINPACK, _ANTI_AFFINITY = BINPACK.name, JOB_ANTI_AFFINITY.name


class GroupTerms:
    """The terms, compiled once per group into arrays and two short tuples, which are empty for most groups."""

    def __init__(self, context: TermContext, *, prefers_empty: bool) -> None:
        self.binpack = Binpack(context.ask.plain.usage, prefers_empty=prefers_empty)
        self.anti_affinity = JobAntiAffinity(context.group.count)
        self.others: tuple[ScoreTerm, ...] = terms_of(context)
        """All terms except those that every group has."""
        self.following = tuple(term for term in self.others if term.follows_placements)
        self.evaluated = tuple(term for term in self.others if not term.follows_placements)
        """The terms with valid values: those that follow placements are valid only after all rows were scored."""
        self._counted_at_zero = COUNTED_AT_ZERO | {term.name for term in self.others if term.counts_at_zero}

    def shown(self, binpack: int, anti: int, values: Iterable[int]) -> dict[str, float]:
        """A row's terms as score tables show them, without spread and penalty; `values` are the evaluated ones."""
        shown = ALWAYS_SHOWN.copy()
        shown[_BINPACK], shown[_ANTI_AFFINITY] = binpack / UNIT, anti / UNIT
        for term, value in zip(self.evaluated, values, strict=True):
            shown[term.name] = value / UNIT
        return shown

    def is_counted(self, name: str, value: float) -> bool:
        """Whether a shown term counts for the mean: terms that do not apply show 0 and do not count."""
        return value != 0 or name in self._counted_at_zero
