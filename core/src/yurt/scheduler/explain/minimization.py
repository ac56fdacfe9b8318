"""Minimizes a sufficient set of edits: drops edits and reduces numbers while the rest is sufficient.

Sufficiency is tested by dry runs, not computed. The result is a local minimum: no edit can be dropped and no number be
nearer to its original by 1, since each of these was tested with the others unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from yurt.scheduler.explain.edits import with_numbers
from yurt.structs.explain.explanation import SuggestedEdit

Edits = tuple[SuggestedEdit, ...]


class Minimizer:
    """Minimizes changes with at most `tries` tests."""

    def __init__(self, is_sufficient: Callable[[Edits], bool], *, tries: int) -> None:
        self._is_sufficient = is_sufficient
        self._tries = tries
        self._results: dict[Edits, bool] = {}
        self.is_proved = True
        """Whether everything smaller than the outcome was tried."""

    def smallest(self, edits: Edits) -> Edits:
        """A sufficient subset of sufficient edits, the smallest that was found."""
        subset, at, unchanged = edits, 0, 0
        while unchanged < len(subset):
            at %= len(subset)
            smaller = self._reduced(subset, at)
            if len(smaller) < len(subset):
                unchanged = 0
            else:
                unchanged = unchanged + 1 if smaller == subset else 1
                at += 1
            subset = smaller
        return subset

    def _reduced(self, edits: Edits, at: int) -> Edits:
        """The edits without the one at an index, or with its number as close to the original as is sufficient."""
        before, edit, after = edits[:at], edits[at], edits[at + 1 :]
        if self._try((*before, *after)):
            return (*before, *after)

        def with_number(number: int) -> Edits:
            return (*before, with_numbers(edit, before=edit.before, after=number), *after)

        near, far = edit.before, edit.after
        middle = far + (1 if near > far else -1)
        while abs(far - near) > 1:
            if self._try(with_number(middle)):
                far = middle
            else:
                near = middle
            middle = (near + far) // 2
        return with_number(far)

    def _try(self, edits: Edits) -> bool:
        if not edits:
            return False
        is_sufficient = self._results.get(edits)
        if is_sufficient is None and self._tries:
            self._tries -= 1
            is_sufficient = self._results[edits] = self._is_sufficient(edits)
        if is_sufficient is None:
            self.is_proved = is_sufficient = False
        return is_sufficient
