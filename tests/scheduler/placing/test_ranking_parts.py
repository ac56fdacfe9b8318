"""The parts of a ranking by themselves: the window of the best rows, and the rows that are open."""

from __future__ import annotations

import numpy as np
from yurt.scheduler.ids import Ties
from yurt.scheduler.placing.open_rows import OpenRows
from yurt.scheduler.placing.top_k import IMPOSSIBLE
from yurt.scheduler.placing.window import Window


def _filled(scores: list[float], size: int) -> Window:
    window = Window()
    window.fill(np.array(scores), Ties(np.arange(len(scores), dtype=np.uint64), 0), size)
    return window


def _rows(window: Window) -> list[int]:
    return [row for _, _, row in window.entries]


def test_a_window_has_the_best_rows_in_order() -> None:
    assert _rows(_filled([0.1, 0.9, IMPOSSIBLE, 0.5, 0.7], 3)) == [1, 4, 3]


def test_a_row_that_falls_below_the_window_leaves_it_because_better_rows_may_wait_outside() -> None:
    window = _filled([0.1, 0.9, 0.4, 0.5, 0.7], 3)
    window.move((-0.3, 0, 1))
    assert _rows(window) == [4, 3]


def test_a_window_with_all_rows_keeps_one_however_far_it_falls() -> None:
    window = _filled([0.1, 0.9, IMPOSSIBLE], 3)
    window.move((-0.05, 0, 1))
    assert _rows(window) == [0, 1]


def test_a_row_that_takes_no_more_leaves_the_window() -> None:
    window = _filled([0.1, 0.9, 0.5], 3)
    window.remove(2)
    assert _rows(window) == [1, 0]


def test_closing_rows_leaves_the_shared_mask_of_the_feasible_ones_alone() -> None:
    feasible = np.array([True, True, True, False])
    rows = OpenRows(feasible)
    rows.close(0)
    assert rows.close_all(np.array([False, True, False, False]))
    assert rows.mask.tolist() == [False, False, True, False]
    assert feasible.tolist() == [True, True, True, False]


def test_closing_rows_that_are_closed_changes_nothing() -> None:
    rows = OpenRows(np.array([True, False]))
    assert not rows.close_all(np.array([False, True]))
    assert rows.mask is rows.feasible


def test_reopening_opens_all_feasible_rows() -> None:
    rows = OpenRows(np.array([True, True]))
    rows.close(1)
    rows.reopen()
    assert rows.mask.tolist() == [True, True]
