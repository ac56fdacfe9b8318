"""Nodes that refuse plan after plan are taken out, few at a time."""

from __future__ import annotations

from yurt.broker.rejections import NODES_MAX, Rejections
from yurt.sdk.value import UnixNano, seconds


def at(after_s: float) -> UnixNano:
    return UnixNano(seconds(after_s))


def made(threshold: int = 3) -> Rejections:
    return Rejections(threshold=threshold, window=seconds(300))


def test_a_node_is_taken_out_at_the_threshold_and_begins_anew() -> None:
    rejections = made()
    assert [rejections.add("n1", at(0)) for _ in range(7)] == [False, False, True, False, False, True, False]


def test_rejections_of_different_nodes_do_not_add_up() -> None:
    rejections = made()
    assert not any(rejections.add(node_id, at(0)) for node_id in ("n1", "n2", "n1", "n2"))


def test_rejections_older_than_the_window_do_not_count() -> None:
    rejections = made()
    assert [rejections.add("n1", at(time)) for time in (0, 200, 301, 500)] == [False, False, False, True]


def test_the_node_that_has_not_refused_for_longest_is_forgotten() -> None:
    rejections = made(threshold=2)
    for number in range(NODES_MAX + 1):
        rejections.add(f"n{number}", at(0))
    assert not rejections.add("n0", at(1))
    assert rejections.add(f"n{NODES_MAX}", at(1))


def test_ten_nodes_are_taken_out_at_once_and_then_one_in_six_minutes() -> None:
    rejections = made(threshold=1)
    assert sum(rejections.add(f"n{number}", at(0)) for number in range(40)) == 10
    assert not rejections.add("m0", at(359))
    assert rejections.add("m1", at(361))
    assert not rejections.add("m2", at(361))


def test_a_clock_that_is_set_back_takes_no_right_to_take_nodes_out_away() -> None:
    rejections = made(threshold=1)
    assert rejections.add("n0", at(10 * 3600))
    assert sum(rejections.add(f"n{number}", at(0)) for number in range(1, 40)) == 9
