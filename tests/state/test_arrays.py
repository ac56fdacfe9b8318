"""What distinct values arrays hold, told in each of the ways."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from yurt.state.arrays import DENSE, FEW, distinct, tally


@pytest.mark.parametrize("values", [[], [7], [3, 1, 3, 0], [5, 5, 5 * DENSE * 3], list(range(2 * FEW)) * 2])
def test_distinct_values_are_counted(values: list[int]) -> None:
    found, times = tally(np.array(values, np.int64))

    assert dict(zip(found.tolist(), times.tolist(), strict=True)) == Counter(values)
    assert found.tolist() == sorted(set(values)) == distinct(np.array(sorted(values), np.int64))
