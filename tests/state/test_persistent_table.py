"""Tables against plain dictionaries, and the life of older versions."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.state.persistent_table import Table

Row = tuple[str, int]
EXTRACT = {"colour": lambda row: row[0], "odd": lambda row: row[1] if row[1] % 2 else None}

edits = st.lists(
    st.tuples(
        st.integers(0, 9), st.one_of(st.none(), st.tuples(st.sampled_from(["", "red", "blue"]), st.integers(0, 5)))
    ),
    max_size=30,
)


def changed(table: Table[int, Row], changes: list[tuple[int, Row | None]], index: int) -> Table[int, Row]:
    editor = table.edit()
    for key, row in changes:
        if row is None:
            editor.delete(key)
        else:
            editor.put(key, row)
    return editor.finish(index)


def check(table: Table[int, Row], model: dict[int, Row]) -> None:
    assert dict(table.items()) == model
    for column, extract in EXTRACT.items():
        for value in ("red", "blue", 1, 3, 5):
            expected = sorted(key for key, row in model.items() if extract(row) == value)
            assert list(table.keys_where(column, value)) == expected
            assert table.count_where(column, value) == len(expected)
            assert list(table.where(column, value)) == [model[key] for key in expected]
            assert sorted(table.each_where(column, value)) == sorted(table.where(column, value))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(edits, max_size=5))
def test_a_table_is_a_dictionary_with_indexes_and_its_past_stays(batches: list[list[tuple[int, Row | None]]]) -> None:
    table: Table[int, Row] = Table("rows", EXTRACT)
    model: dict[int, Row] = {}
    past = [(table, dict(model))]
    for index, batch in enumerate(batches, 1):
        table = changed(table, batch, index)
        for key, row in batch:
            if row is None:
                model.pop(key, None)
            else:
                model[key] = row
        past.append((table, dict(model)))
    for old, expected in past:
        check(old, expected)


def test_a_row_replaced_as_alike_that_is_missing_is_inserted() -> None:
    editor = changed(Table("rows", EXTRACT), [(1, ("red", 1))], 1).edit()
    assert editor.put_alike(1, ("red", 1)) == ("red", 1)
    assert editor.put_alike(2, ("red", 3)) is None
    check(editor.finish(2), {1: ("red", 1), 2: ("red", 3)})


def test_an_editor_shows_the_index_as_edited_so_far() -> None:
    table = changed(Table("rows", EXTRACT), [(1, ("red", 1)), (2, ("red", 2))], 1)
    editor = table.edit()
    assert editor.keys_where("colour", "red") == (1, 2)
    editor.put(2, ("blue", 2))
    editor.put(3, ("red", 2))
    editor.delete(1)
    assert editor.keys_where("colour", "red") == (3,)
    assert (editor.count_where("colour", "red"), editor.count_where("colour", "blue")) == (1, 1)
    editor.put(4, ("red", 2))
    assert editor.finish(2).keys_where("colour", "red") == (3, 4)
    assert table.keys_where("colour", "red") == (1, 2)


def test_a_table_that_was_not_changed_keeps_its_index() -> None:
    table = changed(Table("rows", EXTRACT), [(1, ("red", 1))], 4)
    assert table.edit().finish(9) is table
    assert changed(table, [(1, None)], 9).index == 9


def test_deleting_what_is_not_there_changes_nothing() -> None:
    table: Table[int, Row] = Table("rows", EXTRACT)
    assert changed(table, [(1, None)], 5) is table


def test_rows_put_together_are_the_same_as_rows_put_one_by_one() -> None:
    rows = {number: ("red" if number % 3 else "", number) for number in range(20)}
    one_by_one = changed(Table("things", EXTRACT), list(rows.items()), 1)
    editor = Table[int, Row]("things", EXTRACT).edit()
    editor.put_new(rows)
    together = editor.finish(1)
    assert dict(together.items()) == dict(one_by_one.items())
    for column, value in (("colour", "red"), ("colour", ""), ("odd", 7), ("odd", 8)):
        assert together.keys_where(column, value) == one_by_one.keys_where(column, value)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.integers(0, 9), st.tuples(st.sampled_from(["", "red", "blue"]), st.integers(0, 5)), max_size=6),
    st.dictionaries(st.integers(10, 12), st.tuples(st.sampled_from(["", "red"]), st.integers(0, 3)), min_size=1),
)
def test_new_rows_one_by_one_or_together_make_the_same_table(there: dict[int, Row], new: dict[int, Row]) -> None:
    table: Table[int, Row] = changed(Table("rows", EXTRACT), list(there.items()), 1)
    together, singly = table.edit(), table.edit()
    together.put_new(new)
    for key, row in new.items():
        singly.put_new({key: row})
    for editor in (together, singly):
        check(editor.finish(2), {**there, **new})


def test_equal_index_entries_of_rows_that_come_one_by_one_stay_one_object() -> None:
    table: Table[int, Row] = Table("rows", {"first": lambda _: "all", "second": lambda _: "all"})
    for key in range(3):
        editor = table.edit()
        editor.put_new({key: ("red", key)})
        table = editor.finish(key + 1)
        assert table._by["first"]["all"] is table._by["second"]["all"]
    assert table.keys_where("second", "all") == (0, 1, 2)
