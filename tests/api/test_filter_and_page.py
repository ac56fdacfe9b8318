"""The filter language and pages."""

from __future__ import annotations

import contextlib
import gc
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.api.page import FORGOTTEN, GATHERED, STEP, Pager, by_index, escaped_token, make_page, read_token
from yurt.filters import PATTERNS_MAX, TERMS_MAX, compile_filter
from yurt.http.query import ReadOptions
from yurt.sdk.errors import Invalid

from tests.regexps.test_automaton import lines_run

ROW: dict[str, Any] = {
    "ID": "a", "Meta": {"x-y": "1", "n": "5"}, "Tags": ["a", "b"], "Count": 3, "Stop": False, "Job": {"Name": "web"},
    "Nothing": None,
}  # fmt: skip


@pytest.mark.parametrize(
    "expression",
    [
        "", 'ID == "a"', "ID==a", "ID != b", '"a" in Tags', "c not in Tags", 'Meta["x-y"] == 1', '"n" in Meta',
        'Tags contains "b"', 'Tags not contains "c"', "Tags is not empty", "Nothing is empty", 'ID contains "a"',
        'Job.Name matches "^w.b$"', "Job.Name not matches `x`", '"/Job/Name" == "web"', "Stop == false",
        "not Stop == true",
        'ID == "b" or Count == 3', 'ID == "b" or (Count == 3 and not (Meta.n == "6"))', "Meta.missing is empty",
        'Meta.missing != "a"', "Tags.0 == a",
    ],
)  # fmt: skip
def test_an_expression_that_holds(expression: str) -> None:
    assert compile_filter(expression)(ROW)


@pytest.mark.parametrize(
    "expression", ['ID == "b"', "Meta is empty", "Count == 4", 'ID == "a" and Count == 4', "not ID == a", "z in Tags"]
)
def test_an_expression_that_does_not_hold(expression: str) -> None:
    assert not compile_filter(expression)(ROW)


@pytest.mark.parametrize(
    "expression",
    ["ID ==", "ID === a", "((", "ID == a)", "== a", "ID", 'ID == "a', 'ID matches "(?=a)"', 'ID matches "[a"',
     "(" * 1000 + "ID == a", "not " * 1000 + "ID == a", "ID == " + "a" * 5000, r'ID matches `(a)\1`'],
)  # fmt: skip
def test_an_expression_that_cannot_be_read(expression: str) -> None:
    with pytest.raises(Invalid):
        compile_filter(expression)


HOSTILE_LINES_MAX = 500_000
"""Lines of Python for one pattern and one text, about 30 ms: twice what the costliest takes."""


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", ".*" * 9 + "x", "(a?){500}a{500}$", "(?i)(x+x+)+y", "(a|b)*a(a|b){500}"]
)
def test_a_hostile_pattern_is_answered_or_refused_at_once(pattern: str) -> None:
    def ask(text: str) -> None:
        with contextlib.suppress(Invalid):
            compile_filter(f"ID matches `{pattern}`")({"ID": text})

    for text in ("a" * 4096, "ab" * 2048, "x" * 4096):
        lines_run(lambda text=text: ask(text), HOSTILE_LINES_MAX)  # type: ignore[misc]


def test_work_that_adds_up_over_rows_is_bounded() -> None:
    keep, texts = compile_filter("ID matches `(a|b)*a(a|b){90}$`"), Random(3)
    with pytest.raises(Invalid, match="take too much work on this list"):
        for _ in range(100_000):
            keep({"ID": "".join(texts.choices("ab", k=60))})


@pytest.mark.parametrize(
    ("expression", "bound"),
    [
        (" or ".join(["A==1"] * (TERMS_MAX + 1)), f"more than {TERMS_MAX} comparisons"),
        (" or ".join(["A matches b"] * (PATTERNS_MAX + 1)), f"more than {PATTERNS_MAX} regular expressions"),
    ],
)
def test_a_filter_of_too_many_parts_is_refused_with_the_bound(expression: str, bound: str) -> None:
    with pytest.raises(Invalid, match=bound):
        compile_filter(expression)


def test_a_step_with_a_costly_filter_ends_early() -> None:
    rows = [Row("ab" * 18 + f"{number:06}", number) for number in range(STEP)]
    pager = Pager(
        rows,
        lambda row: {"ID": "".join(Random(row.id).choices("ab", k=40))},
        key=by_index,
        options=ReadOptions(filter="ID matches `(a|b)*a(a|b){60}$`"),
    )
    pager.step(STEP)
    steps = 1
    while not pager.step(STEP):
        steps += 1
    assert steps > 1


def test_a_field_that_a_row_lacks_is_an_error() -> None:
    with pytest.raises(Invalid, match='struct field with name "Nonsense"'):
        compile_filter("Nonsense == 1")(ROW)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        compile_filter(text)(ROW)
    except Invalid as error:
        assert str(error)


class Row(msgspec.Struct, frozen=True):
    """A row with the key of a page."""

    id: str
    create_index: int


@given(st.sets(st.integers(1, 60)), st.integers(1, 7), st.booleans(), st.sets(st.integers(1, 60)), st.integers(1, 3))
def test_pages_show_each_row_once_whatever_comes_and_goes(
    numbers: set[int], per_page: int, reverse: bool, gone: set[int], sharing: int
) -> None:
    rows = {number: Row(f"{number:02}", number // sharing) for number in numbers}
    seen: list[str] = []
    token = ""
    for _ in range(len(rows) + 1):
        options = ReadOptions(per_page=per_page, next_token=token, reverse=reverse)
        page = make_page(rows.values(), lambda row: {"ID": row.id}, key=by_index, options=options)
        seen += [row["ID"] for row in page.rows]
        token = page.next_token
        if not token:
            break
        rows = {number: row for number, row in rows.items() if number not in gone}
    assert len(seen) == len(set(seen))
    assert {f"{number:02}" for number in numbers - gone} <= set(seen)


@given(st.text(), st.integers(0, 9))
def test_a_token_is_read_as_it_was_written_and_fits_into_a_header(last: str, first: int) -> None:
    token = escaped_token(f"{first}.{last}")
    assert read_token(token) == f"{first}.{last}"
    assert token.isascii() and token.isprintable() and " " not in token


def test_a_token_without_special_characters_is_the_same_as_nomads() -> None:
    assert escaped_token("default.web/periodic-1700000000") == "default.web/periodic-1700000000"
    assert escaped_token("default.a%b\n\x7fé") == "default.a%25b%0A%7F%C3%A9"


def test_a_bad_token_is_refused() -> None:
    with pytest.raises(Invalid, match="Invalid next_token"):
        make_page([Row("a", 1)], lambda row: {}, key=by_index, options=ReadOptions(next_token="x.y"))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("expression", ["", 'ID matches "7"'])
def test_pages_of_a_long_list_are_those_of_the_sorted_one(reverse: bool, expression: str) -> None:
    rows = [Row(f"id-{number * 7919 % 12_007}", number * 31 % 997) for number in range(12_007)]
    expected = [row.id for row in sorted(rows, key=by_index, reverse=reverse) if not expression or "7" in row.id]
    shown: list[str] = []
    token = ""
    for _ in range(3):
        options = ReadOptions(per_page=100, next_token=token, reverse=reverse, filter=expression)
        page = make_page(rows, lambda row: {"ID": row.id}, key=by_index, options=options)
        shown += [row["ID"] for row in page.rows]
        token = page.next_token
    assert shown == expected[:300]
    everything = make_page(rows, lambda row: {"ID": row.id}, key=by_index, options=ReadOptions(reverse=reverse))
    assert len(everything.rows) == len(rows) and not everything.next_token


@pytest.mark.parametrize("options", [ReadOptions(), ReadOptions(per_page=3), ReadOptions(filter="ID == a")])
def test_a_step_looks_at_a_bounded_number_of_rows_also_when_none_is_wanted(options: ReadOptions) -> None:
    looked_at = 0

    def is_selected(_: Row) -> bool:
        nonlocal looked_at
        looked_at += 1
        return False

    rows = [Row(id=f"{number:06}", create_index=1) for number in range(3 * GATHERED + 1)]
    pager = Pager(rows, msgspec.to_builtins, key=by_index, options=options, is_selected=is_selected)
    counts = []
    while not pager.step(STEP):
        counts.append(looked_at)
    assert counts == [GATHERED, 2 * GATHERED, 3 * GATHERED]
    assert pager.take() == []


def test_what_was_gathered_is_let_go_of_in_parts() -> None:
    rows = [Row(id=f"{number:06}", create_index=1) for number in range((2 * FORGOTTEN + 1) * GATHERED)]
    pager = Pager(rows, msgspec.to_builtins, key=by_index, options=ReadOptions())
    while not pager.found:
        pager.step(1)
    assert [pager.forget() for _ in range(3)] == [True, True, False]


def test_gathered_rows_are_not_looked_at_by_the_collector_one_by_one() -> None:
    rows = [Row(id=f"{number:06}", create_index=1) for number in range(5 * GATHERED)]
    pager = Pager(rows, msgspec.to_builtins, key=by_index, options=ReadOptions(filter="id == none"))
    before = len(gc.get_objects())
    for _ in range(5):
        pager.step(0)
    assert len(gc.get_objects()) - before < GATHERED


def test_rows_that_were_taken_count_for_the_page() -> None:
    rows = [Row(id=f"{number:06}", create_index=1) for number in range(5)]
    pager, taken = Pager(rows, msgspec.to_builtins, key=by_index, options=ReadOptions(per_page=3)), []
    while not pager.step(1):
        taken += pager.take()
    assert [row["id"] for row in taken + pager.take()] == ["000000", "000001", "000002"]
    assert pager.next_token == "1.000003"
