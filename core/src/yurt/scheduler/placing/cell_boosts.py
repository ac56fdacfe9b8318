"""The boosts of cells: the total for each combination of values, computed ahead of use.

With many cells the attribute with the most values is left out (`fine`): a placement changes what many cells are worth
by it, and a group of `cells` adds that part by its level. The other attributes have few combinations.
"""

from __future__ import annotations

from collections.abc import Iterable

from yurt.scheduler.placing.spread import SpreadScore


class CellBoosts:
    """The boosts: `boosts` has the present boost of each combination, and `combination` that of each cell by number."""

    def __init__(self, spread: SpreadScore, fine: int) -> None:
        """`fine` is the omitted attribute; -1 for none."""
        codes_of = spread.cells.codes
        others = [codes[:fine] + codes[fine + 1 :] for codes in codes_of] if fine >= 0 else codes_of
        numbers = {codes: number for number, codes in enumerate(dict.fromkeys(others))}
        self.combination = [numbers[codes] for codes in others]
        parts = [part for number, part in enumerate(spread.parts) if number != fine]
        self._having: list[dict[int, list[int]]] = [{} for _ in parts]
        """For each of these attributes, the combinations with each value."""
        for number, codes in enumerate(numbers):
            for having, code in zip(self._having, codes, strict=True):
                having.setdefault(code, []).append(number)
        self._values = [tuple(zip(parts, codes, strict=True)) for codes in numbers]
        """The values of each combination."""
        self.boosts = [0] * len(numbers)
        self._sum_up(range(len(numbers)))

    def placed(self, codes: tuple[int, ...], changed: tuple[bool, ...]) -> None:
        """Update after a placement with these values, `fine` excluded; `changed`: whether other boosts changed."""
        for having, code, is_everywhere in zip(self._having, codes, changed, strict=True):
            self._sum_up(range(len(self.boosts)) if is_everywhere else having[code])

    def _sum_up(self, combinations: Iterable[int]) -> None:
        for number in combinations:
            boost = 0
            for part, code in self._values[number]:
                boost += part.worths[part.levels[code]]
            self.boosts[number] = boost
