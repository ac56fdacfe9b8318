"""The kept text of a row is the text that a fresh encoding gives."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from yurt.api.encode import encode_builtins, to_wire
from yurt.api.pieces import JsonList
from yurt.api.row_texts import ENTRY_BYTES, IDLE_S, TEXT_BYTES_MAX, RowTexts, row_form
from yurt.api.stubs import alloc_stub, job_stub, node_stub
from yurt.structs.node import Node
from yurt.testing import factories

ROWS = [factories.node(name=f"node-{number}") for number in range(6)]
ASKED = st.lists(st.tuples(st.sampled_from(ROWS), st.booleans(), st.booleans()), max_size=40)
SIZES = st.sampled_from((0, 500, 2_000, 5_000, 1_000_000))


@given(ASKED, SIZES)
def test_a_kept_text_is_the_text_that_a_fresh_encoding_gives(asked: list[tuple[Node, bool, bool]], most: int) -> None:
    texts = RowTexts(most)
    for node, resources, os in asked:
        fresh = encode_builtins(node_stub(node, resources, os))
        assert texts.text(row_form(node_stub, resources, os), node) == fresh
        assert texts.bytes <= most


@given(st.lists(st.integers(0, 5), max_size=30), SIZES)
def test_a_row_that_was_let_go_of_lends_its_text_to_no_other(names: list[int], most: int) -> None:
    texts, form = RowTexts(most), row_form(to_wire)
    for name in names:
        evaluation = factories.evaluation(id=f"made-now-{name}")  # its identity is free again after each turn
        assert texts.text(form, evaluation) == encode_builtins(to_wire(evaluation))


def test_a_row_beside_another_has_a_text_for_each_pair() -> None:
    texts, form, job = RowTexts(), row_form(job_stub, False), factories.job()
    alone, beside = (job, None), (job, factories.job(id="other"))
    assert texts.text_with_related(form, alone) == encode_builtins(job_stub(job, None))
    assert texts.text_with_related(row_form(pair), alone) != texts.text_with_related(row_form(pair), beside)


def pair(*rows: Any) -> list[str]:
    """A form of two rows."""
    return [row.id if row is not None else "" for row in rows]


def test_a_text_that_nobody_asks_for_is_dropped_with_its_row() -> None:
    now_s = [0.0]
    texts, form = RowTexts(now_s=lambda: now_s[0]), row_form(node_stub, False, False)
    asked, deleted, *others = ROWS
    kept = texts.text(form, asked)
    texts.text(form, deleted)
    for now_s[0] in (IDLE_S, 2 * IDLE_S, 3 * IDLE_S):
        texts.text(form, others.pop())
        assert texts.text(form, asked) is kept
    assert len(texts) == 3, "the first one, and those of the last two minutes"
    now_s[0] = 9 * IDLE_S
    size = len(texts.text(form, others.pop()))
    assert (len(texts), texts.bytes) == (1, size + ENTRY_BYTES)


def test_a_text_is_made_once() -> None:
    texts, made = RowTexts(), list[str]()

    def form(row: Any) -> str:
        made.append(row.id)
        return "text"

    counted, alloc = row_form(form), factories.alloc()
    assert [texts.text(counted, alloc) for _ in range(3)] == [b'"text"'] * 3
    assert made == [alloc.id]


def test_the_least_recently_used_text_is_dropped() -> None:
    form, first, second, third = row_form(node_stub, False, False), *ROWS[:3]
    texts = RowTexts(2 * (len(form.text(first)) + ENTRY_BYTES + 10))
    for node in (first, second, first, third):
        texts.text(form, node)
    assert len(texts) == 2
    kept = texts.text(form, first)
    assert texts.text(form, first) is kept


def test_a_very_long_text_is_not_kept() -> None:
    texts, long = RowTexts(), factories.job(meta={"long": "x" * TEXT_BYTES_MAX})
    assert len(texts.text(row_form(to_wire), long)) > TEXT_BYTES_MAX
    assert len(texts) == 0


@given(
    st.lists(st.lists(st.sampled_from([factories.alloc() for _ in range(3)]), max_size=4), max_size=4), st.booleans()
)
def test_a_list_of_texts_is_the_list_of_their_rows(lots: list[list[Any]], pretty: bool) -> None:
    written, form = JsonList(pretty=pretty), row_form(alloc_stub)
    for lot in lots:
        written.add_texts([form.text(alloc) for alloc in lot])
    whole = [alloc_stub(alloc) for lot in lots for alloc in lot]
    assert b"".join(written.taken()) == encode_builtins(whole, pretty=pretty)
