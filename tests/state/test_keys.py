"""The entries of an index: few keys and many are the same set."""

from __future__ import annotations

import pytest
from yurt.state.keys import FEW, NO_KEYS, Keys, with_keys, without_key
from yurt.state.persistent_table import Table


@pytest.mark.parametrize("lot", [1, 3, FEW, FEW + 1])
def test_keys_that_come_and_go_are_the_same_set_however_many_there_are(lot: int) -> None:
    entry: Keys[int] = NO_KEYS
    for first in range(0, 3 * FEW, lot):
        entry = with_keys(entry, range(first, first + lot))
        assert sorted(entry) == list(range(first + lot))

    for key in range(0, len(entry), 2):
        entry = without_key(entry, key)

    assert all(key % 2 for key in entry) and len(entry) == (3 * FEW + lot - 1) // lot * lot // 2


def test_entries_that_get_the_same_rows_are_kept_once() -> None:
    by = {"job": lambda row: row, "eval": lambda row: f"of {row}", "odd": lambda row: "" if row == "web" else row}
    table: Table[int, str] = Table("allocs", by)
    for first in range(0, 4 * FEW, FEW):
        editor = table.edit()
        editor.put_new(dict.fromkeys(range(first, first + FEW), "web"))
        table = editor.finish(1)

    entries = table._by["job"]["web"], table._by["eval"]["of web"]

    assert entries[0] is entries[1] and len(entries[0]) == 4 * FEW
    assert not table.count_where("odd", "web")
