"""JSON in pieces is the JSON of the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.api.encode import encode_builtins
from yurt.api.page import GATHERED, in_order
from yurt.api.pieces import PIECE_BYTES, JsonList, object_pieces

TEXT = st.text(st.sampled_from('a\n"\\{[,é '), max_size=4)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
LOTS = st.lists(st.lists(PLAIN, max_size=3), max_size=3)
"""Elements of a list as they come, some at a time."""


def filled(lots: list[list[Any]], *, pretty: bool, depth: int) -> JsonList:
    made = JsonList(pretty=pretty, depth=depth)
    for lot in lots:
        made.add(lot)
    return made


@given(LOTS, st.booleans())
def test_a_list_that_comes_in_lots_is_written_as_one(lots: list[list[Any]], pretty: bool) -> None:
    whole = [element for lot in lots for element in lot]
    assert b"".join(filled(lots, pretty=pretty, depth=0).taken()) == encode_builtins(whole, pretty=pretty)


@given(st.dictionaries(TEXT, PLAIN, max_size=3), st.dictionaries(TEXT, LOTS, min_size=1, max_size=3), st.booleans())
def test_an_object_with_lists_that_come_in_lots_is_written_as_one(
    plain: dict[str, Any], lists: dict[str, list[list[Any]]], pretty: bool
) -> None:
    whole = plain | {name: [element for lot in lots for element in lot] for name, lots in lists.items()}

    def fields(depth: int) -> dict[str, Any]:
        return plain | {name: filled(lots, pretty=pretty, depth=depth) for name, lots in lists.items()}

    assert b"".join(object_pieces(fields(1), pretty=pretty)) == encode_builtins(whole, pretty=pretty)
    rows = JsonList(pretty=pretty)
    rows.add_object(fields(2))
    rows.add_object(fields(2))
    assert b"".join(rows.taken()) == encode_builtins([whole, whole], pretty=pretty)


def test_small_pieces_are_joined_and_large_ones_stay_apart() -> None:
    rows = JsonList()
    for _ in range(3 * PIECE_BYTES // 100):
        rows.add(["x" * 100])
    sizes = [len(piece) for piece in rows.taken()]
    assert len(sizes) == 4
    assert max(sizes) < PIECE_BYTES + 200


@pytest.mark.parametrize("count", [0, 1, GATHERED, 3 * GATHERED + 1])
def test_rows_are_put_in_order_in_as_many_steps_before_as_after_the_first(count: int) -> None:
    rows = [number * 7919 % 12_007 for number in range(count)]
    assert list(in_order(rows, lambda row: -row)) == [None] * count + sorted(rows, reverse=True)
