"""The verdict on recorded histories: violations as text, and how much was checked."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.checker import Undecided
from yurt.testing.histories.clients import Recorded
from yurt.testing.histories.counterexample import counterexample
from yurt.testing.histories.history import Operation
from yurt.testing.histories.indexes import index_faults
from yurt.testing.histories.kinds import Kind

SHOWN_MAX: Final = 8


class HistoryReport(NamedTuple):
    """The number of checked operations, and the violations found."""

    operations: int
    unknown: int
    objects: int
    violations: tuple[str, ...]
    undecided: tuple[str, ...]
    seed: int = 0
    outcomes: str = ""
    """The answers by kind of object, request and status."""
    unexplained: tuple[Recorded, ...] = ()
    """The histories for which no order was found."""
    evidence: str = ""
    """Their operations, and what the servers hold of their objects."""

    @property
    def is_clean(self) -> bool:
        """Whether every object was decided and no violation found."""
        return not self.violations and not self.undecided

    @property
    def is_clean_but_for_faults(self) -> bool:
        """Whether no violation was found and at most one object in ten is undecided.

        Each request of unknown outcome multiplies the orders to try. A leader that is frozen in the middle of a burst
        leaves too many of them with one object for a search to end.
        """
        return not self.violations and len(self.undecided) * 10 <= self.objects

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: {self.operations} operations on {self.objects} objects, "
            f"{self.unknown} of unknown outcome: {len(self.violations)} violations, {len(self.undecided)} undecided"
        )
        shortest: dict[str, str] = {}
        for text in sorted(self.violations, key=len):
            shortest.setdefault(text.partition(":")[0], text)
        return "\n\n".join(
            (head, *list(shortest.values())[:SHOWN_MAX], *self.undecided[:SHOWN_MAX], self.evidence)
        ).rstrip()


def report_on(recorded: Sequence[Recorded]) -> HistoryReport:
    """Check every object, and the indexes across objects."""
    violations, undecided, unexplained = [], [], []
    objects = _by_object(recorded)
    for each in objects:
        kind, key, operations = each
        try:
            found: Any = counterexample(kind.model, operations)
        except Undecided as error:
            undecided.append(f"{kind.name} {key}: {error}")
            unexplained.append(each)
            continue
        if found is not None:
            violations.append(f"{kind.name}: {found}")
            unexplained.append(each)
    violations += [f"indexes: {fault}" for fault in index_faults((each.kind, each.operations) for each in objects)]
    everything = list(itertools.chain.from_iterable(each.operations for each in objects))
    unknown = sum(not each.is_known for each in everything)
    return HistoryReport(
        operations=len(everything), unknown=unknown, objects=len(objects), violations=tuple(violations),
        undecided=tuple(undecided), unexplained=tuple(unexplained),
    )  # fmt: skip


def _by_object(recorded: Sequence[Recorded]) -> list[Recorded]:
    """One history for each object; several lanes may have used the same object."""
    found: dict[tuple[str, str], tuple[Kind, list[Operation]]] = {}
    for each in recorded:
        found.setdefault((each.kind.name, each.key), (each.kind, []))[1].extend(each.operations)
    return [Recorded(kind, key, tuple(operations)) for (_, key), (kind, operations) in found.items()]


def outcomes_text(outcomes: Counter[str]) -> str:
    """The number of answers by kind of object, request and status."""
    return "\n".join(f"{count:8} {name}" for name, count in sorted(outcomes.items()))
