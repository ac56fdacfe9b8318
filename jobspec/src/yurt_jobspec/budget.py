"""The budget of one job's evaluation: steps and sizes.

A few lines can ask for gigabytes ("billion laughs"), because values share their parts: ten levels of a list of ten
references to the level below are ten small tuples, but writing them out takes ten billion elements. So each value has
a weight, the number of elements it would have if it were written out, with text counted by length; weights are
remembered by identity, so that weighing costs no more than building. No value may outweigh MAX_WEIGHT. Besides,
everything that produces elements or text, and every function that looks at a value, is charged to a budget for the
whole job. Real files use less than a hundredth of it.
"""

from __future__ import annotations

from typing import Any, NoReturn

from .diagnostics import EvaluationError, OffsetDiagnostic
from .values import Value, entries_of, items_of

MAX_ELEMENTS = 100_000
"""Elements that the expressions of one job may produce altogether."""
MAX_CHARACTERS = 32 * 1024 * 1024
"""Characters of text that the expressions of one job may produce altogether."""
MAX_WEIGHT = 200_000
"""Elements that one value may have when written out."""
MAX_WORK = 1_000_000
"""Elements that functions and comparisons of one job may look at altogether."""

_CHARACTERS_PER_ELEMENT = 64


class BudgetExhausted(EvaluationError):
    """The budget is exhausted; `try` does not catch this error."""


class EvaluationBudget:
    """The remaining budget. `node` is any object with a start and an end: the place to report."""

    __slots__ = ("_weights", "characters", "elements", "work")

    def __init__(self) -> None:
        self.elements = MAX_ELEMENTS
        self.characters = MAX_CHARACTERS
        self.work = MAX_WORK
        self._weights: dict[int, tuple[int, Value]] = {}

    def charge(self, elements: int, node: Any) -> None:
        """Charge for new elements."""
        self.elements -= elements
        if self.elements < 0:
            exhausted(node, f"The job's expressions may produce {MAX_ELEMENTS} elements altogether.")

    def charge_text(self, length: int, node: Any) -> None:
        """Charge for new text."""
        self.characters -= length
        if self.characters < 0:
            exhausted(node, f"The job's expressions may produce {MAX_CHARACTERS} characters of text altogether.")

    def charge_work(self, value: Value, node: Any) -> None:
        """Charge for a traversal of a whole value."""
        self.charge_steps(self.weigh(value, node), node)

    def charge_steps(self, steps: int, node: Any) -> None:
        """Charge for work that is not proportional to a value's size."""
        self.work -= steps
        if self.work < 0:
            exhausted(node, f"The job's functions may work on {MAX_WORK} elements altogether.")

    def weigh(self, value: Value, node: Any) -> int:
        """The weight of a value; raises for one above the limit."""
        if type(value) is str:
            return 1 + len(value) // _CHARACTERS_PER_ELEMENT
        items = items_of(value)
        if items is None:
            entries = entries_of(value)
            if entries is None:
                return 1
            items = tuple(entries.values())
        cached = self._weights.get(id(value))
        if cached is not None:
            return cached[0]
        weight = 1
        for item in items:
            weight += self.weigh(item, node)
            if weight > MAX_WEIGHT:
                exhausted(node, f"A value may have {MAX_WEIGHT} elements at most.")
        self._weights[id(value)] = (weight, value)
        return weight


def exhausted(node: Any, detail: str) -> NoReturn:
    """Raise for a value or a job above its limit."""
    raise BudgetExhausted((OffsetDiagnostic("Expression result too large", detail, node.start, node.end),))
